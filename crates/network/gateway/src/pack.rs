//! The commits in a pushed pack, as far as they tell whether a branch only moves forward.

use std::collections::{HashMap, HashSet};

use flate2::{Decompress, FlushDecompress, Status};
use ring::digest;
use thiserror::Error;

use crate::needles::hexadecimal;

/// Packs are held in memory for the look; larger ones are refused where it is needed.
pub const LONGEST_PACK: usize = 32 * 1024 * 1024;
/// What all objects together may unpack to; most of it is thrown away as it comes.
const MOST_UNPACKED: usize = 256 * 1024 * 1024;
/// What is kept at a time: commits, and the deltas that make further ones of them.
const MOST_KEPT: usize = 32 * 1024 * 1024;
const MOST_OBJECTS: u32 = 100_000;
/// Objects that nobody looks at are unpacked into a buffer of this size.
const THROWN_AWAY: usize = 32 * 1024;

const TREE: &[u8] = b"tree ";
const PARENT: &[u8] = b"parent ";

const COMMIT: u8 = 1;
const OFFSET_DELTA: u8 = 6;
const REFERENCE_DELTA: u8 = 7;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[error("the pushed pack is broken or too large to look into")]
pub struct BadPack;

/// The parents of every commit in a pack; `id_length` is 40 (SHA-1) or 64 (SHA-256) digits.
pub fn parents(pack: &[u8], id_length: usize) -> Result<HashMap<String, Vec<String>>, BadPack> {
    let header = pack.get(..12).ok_or(BadPack)?;
    let number = |at: usize| {
        u32::from_be_bytes([header[at], header[at + 1], header[at + 2], header[at + 3]])
    };
    if &header[..4] != b"PACK" || !matches!(number(4), 2 | 3) || number(8) > MOST_OBJECTS {
        return Err(BadPack);
    }
    let mut reader = Reader { pack, at: 12, unpacked: 0, kept: 0 };
    // By where they begin in the pack.
    let mut commits: HashMap<usize, Vec<u8>> = HashMap::new();
    let mut by_id: HashMap<String, usize> = HashMap::new();
    let mut found = HashMap::new();
    for _ in 0..number(8) {
        let begin = reader.at;
        let (kind, size) = reader.object_header()?;
        let base = match kind {
            OFFSET_DELTA => {
                let back = reader.offset()?;
                Some(begin.checked_sub(back).ok_or(BadPack)?)
            }
            // A base that is not in the pack: its kind is not known, so it proves nothing.
            REFERENCE_DELTA => {
                Some(by_id.get(&reader.id(id_length)?).copied().unwrap_or(usize::MAX))
            }
            1..=4 => None,
            _ => return Err(BadPack),
        };
        let commit = match base.map(|base| commits.get(&base)) {
            None if kind == COMMIT => reader.inflate(size)?,
            Some(Some(base)) => {
                let delta = reader.inflate(size)?;
                let made = apply_delta(base, &delta, |size| reader.keep(size))?;
                reader.kept -= delta.len();
                made
            }
            _ => {
                reader.throw_away(size)?;
                continue;
            }
        };
        let id = object_id(&commit, id_length);
        found.insert(id.clone(), parents_of(&commit, id_length)?);
        by_id.insert(id, begin);
        commits.insert(begin, commit);
    }
    Ok(found)
}

/// Whether `old` is shown to be behind `new`.
pub fn moves_forward(parents: &HashMap<String, Vec<String>>, old: &str, new: &str) -> bool {
    let mut seen = HashSet::new();
    let mut waiting = vec![new];
    while let Some(id) = waiting.pop() {
        if id == old {
            return true;
        }
        if seen.insert(id) {
            waiting.extend(parents.get(id).into_iter().flatten().map(String::as_str));
        }
    }
    false
}

struct Reader<'a> {
    pack: &'a [u8],
    at: usize,
    /// The work that was done.
    unpacked: usize,
    /// The memory that is in use.
    kept: usize,
}

impl Reader<'_> {
    fn byte(&mut self) -> Result<u8, BadPack> {
        let byte = *self.pack.get(self.at).ok_or(BadPack)?;
        self.at += 1;
        Ok(byte)
    }

    fn object_header(&mut self) -> Result<(u8, usize), BadPack> {
        let mut byte = self.byte()?;
        let kind = byte >> 4 & 7;
        let mut size = usize::from(byte & 15);
        let mut shift = 4;
        while byte & 0x80 != 0 {
            byte = self.byte()?;
            if shift > 39 {
                return Err(BadPack);
            }
            size |= usize::from(byte & 0x7f) << shift;
            shift += 7;
        }
        Ok((kind, size))
    }

    fn offset(&mut self) -> Result<usize, BadPack> {
        let mut byte = self.byte()?;
        let mut offset = usize::from(byte & 0x7f);
        while byte & 0x80 != 0 {
            byte = self.byte()?;
            if offset > LONGEST_PACK {
                return Err(BadPack);
            }
            offset = (offset + 1) << 7 | usize::from(byte & 0x7f);
        }
        Ok(offset)
    }

    fn id(&mut self, digits: usize) -> Result<String, BadPack> {
        let bytes = self.pack.get(self.at..self.at + digits / 2).ok_or(BadPack)?;
        self.at += digits / 2;
        Ok(String::from_utf8_lossy(&hexadecimal(bytes)).into_owned())
    }

    /// Counts bytes before they are made.
    fn keep(&mut self, size: usize) -> Result<(), BadPack> {
        self.unpacked = self.unpacked.saturating_add(size);
        self.kept = self.kept.saturating_add(size);
        if self.unpacked > MOST_UNPACKED || self.kept > MOST_KEPT { Err(BadPack) } else { Ok(()) }
    }

    fn inflate(&mut self, size: usize) -> Result<Vec<u8>, BadPack> {
        self.keep(size)?;
        let mut data = Vec::with_capacity(size);
        self.unpack(size, |piece| data.extend_from_slice(piece))?;
        Ok(data)
    }

    /// Unpacks what nobody looks at, to find where it ends.
    fn throw_away(&mut self, size: usize) -> Result<(), BadPack> {
        self.unpacked = self.unpacked.saturating_add(size);
        if self.unpacked > MOST_UNPACKED {
            return Err(BadPack);
        }
        self.unpack(size, |_| {})
    }

    fn unpack(&mut self, size: usize, mut take: impl FnMut(&[u8])) -> Result<(), BadPack> {
        let mut inflater = Decompress::new(true);
        let mut piece = vec![0; THROWN_AWAY.min(size + 1)];
        let mut made = 0;
        loop {
            let input = &self.pack[self.at..];
            let (read, written) = (inflater.total_in(), inflater.total_out());
            let status = inflater
                .decompress(input, &mut piece, FlushDecompress::None)
                .map_err(|_| BadPack)?;
            self.at += usize::try_from(inflater.total_in() - read).map_err(|_| BadPack)?;
            let here = usize::try_from(inflater.total_out() - written).map_err(|_| BadPack)?;
            made += here;
            // A longer object shows itself before its bytes are kept.
            if made > size {
                return Err(BadPack);
            }
            take(&piece[..here]);
            match status {
                Status::StreamEnd if made == size => return Ok(()),
                Status::StreamEnd => return Err(BadPack),
                _ if inflater.total_in() == read && here == 0 => return Err(BadPack),
                _ => {}
            }
        }
    }
}

/// What a delta makes of its base; `keep` is asked before it is made.
fn apply_delta(
    base: &[u8],
    delta: &[u8],
    keep: impl FnOnce(usize) -> Result<(), BadPack>,
) -> Result<Vec<u8>, BadPack> {
    let mut rest = delta;
    let mut number = || -> Result<usize, BadPack> {
        let (mut value, mut shift) = (0, 0);
        loop {
            let (byte, after) = rest.split_first().ok_or(BadPack)?;
            rest = after;
            if shift > 35 {
                return Err(BadPack);
            }
            value |= usize::from(byte & 0x7f) << shift;
            shift += 7;
            if byte & 0x80 == 0 {
                return Ok(value);
            }
        }
    };
    let (base_size, size) = (number()?, number()?);
    if base_size != base.len() {
        return Err(BadPack);
    }
    keep(size)?;
    let mut data = Vec::with_capacity(size);
    while let Some((command, after)) = rest.split_first() {
        rest = after;
        let part = if command & 0x80 == 0 {
            let (fresh, after) = rest.split_at_checked(usize::from(*command)).ok_or(BadPack)?;
            if fresh.is_empty() {
                return Err(BadPack);
            }
            rest = after;
            fresh
        } else {
            let mut number = |bits: std::ops::Range<u8>| -> Result<usize, BadPack> {
                let mut value = 0;
                for (place, bit) in bits.enumerate() {
                    if command & (1 << bit) != 0 {
                        let (byte, after) = rest.split_first().ok_or(BadPack)?;
                        rest = after;
                        value |= usize::from(*byte) << (8 * place);
                    }
                }
                Ok(value)
            };
            let (from, length) = (number(0..4)?, number(4..7)?);
            let length = if length == 0 { 0x10000 } else { length };
            base.get(from..from + length).ok_or(BadPack)?
        };
        if part.len() > size - data.len() {
            return Err(BadPack);
        }
        data.extend_from_slice(part);
    }
    if data.len() == size { Ok(data) } else { Err(BadPack) }
}

fn object_id(data: &[u8], digits: usize) -> String {
    let algorithm = if digits == 64 { &digest::SHA256 } else { &digest::SHA1_FOR_LEGACY_USE_ONLY };
    let mut context = digest::Context::new(algorithm);
    context.update(format!("commit {}\0", data.len()).as_bytes());
    context.update(data);
    String::from_utf8_lossy(&hexadecimal(context.finish().as_ref())).into_owned()
}

/// The parents as git's own parser reads them: the lines right behind `tree`, and none further on. A
/// commit that git could not read proves nothing, and is refused.
fn parents_of(commit: &[u8], id_length: usize) -> Result<Vec<String>, BadPack> {
    let named = |rest: &[u8], name: &[u8]| -> Option<String> {
        let id = rest.strip_prefix(name)?.get(..=id_length)?.strip_suffix(b"\n")?;
        let digit = |byte: &u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(byte);
        id.iter().all(digit).then(|| String::from_utf8_lossy(id).into_owned())
    };
    let line = |name: &[u8]| name.len() + id_length + 1;
    named(commit, TREE).ok_or(BadPack)?;
    let mut rest = &commit[line(TREE)..];
    let mut parents = Vec::new();
    while rest.starts_with(PARENT) {
        parents.push(named(rest, PARENT).ok_or(BadPack)?);
        rest = &rest[line(PARENT)..];
    }
    Ok(parents)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;
    use std::process::{Command, Stdio};

    fn git(directory: &std::path::Path, arguments: &[&str], input: &str) -> Vec<u8> {
        let mut child = Command::new("git")
            .args(["-c", "user.name=a", "-c", "user.email=a@example.com"])
            .args(arguments)
            .current_dir(directory)
            .env("HOME", directory)
            .env("GIT_CONFIG_NOSYSTEM", "1")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        child.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
        let output = child.wait_with_output().unwrap();
        assert!(output.status.success(), "git {arguments:?}");
        output.stdout
    }

    #[test]
    fn a_real_pack_tells_whether_a_branch_moves_forward() {
        let files = tempfile::tempdir().unwrap();
        let here = files.path();
        let line = |arguments: &[&str]| {
            String::from_utf8(git(here, arguments, "")).unwrap().trim().to_owned()
        };
        git(here, &["init", "-q", "-b", "main"], "");
        for count in 0..30 {
            std::fs::write(here.join("file"), format!("{count}\n").repeat(100)).unwrap();
            git(here, &["add", "file"], "");
            git(
                here,
                &["commit", "-qm", &format!("number {count}\n\nparent {}", "0".repeat(40))],
                "",
            );
        }
        let (new, old) = (line(&["rev-parse", "HEAD"]), line(&["rev-parse", "HEAD~20"]));
        git(here, &["checkout", "-q", "--orphan", "other"], "");
        git(here, &["commit", "-qm", "other"], "");
        let other = line(&["rev-parse", "HEAD"]);
        for delta in ["--delta-base-offset", "--no-reuse-delta"] {
            let wanted = format!("{new}\n{other}\n^{old}\n");
            let arguments =
                ["pack-objects", "-q", "--stdout", "--revs", "--thin", delta, "--window=50"];
            let pack = git(here, &arguments, &wanted);
            let parents = parents(&pack, 40).unwrap();
            assert_eq!(parents.len(), 21, "{delta}");
            assert!(moves_forward(&parents, &old, &new));
            assert!(!moves_forward(&parents, &new, &old));
            assert!(!moves_forward(&parents, &old, &other));
            assert!(!moves_forward(&parents, &"0".repeat(40), &new), "a message is no parent");
            for cut in (0..pack.len() - 20).step_by(97) {
                assert_eq!(super::parents(&pack[..cut], 40).err(), Some(BadPack), "{cut}");
            }
        }
    }

    #[test]
    fn only_the_parents_behind_the_tree_count() {
        let (tree, old) = ("1".repeat(40), "2".repeat(40));
        let who = "a <a@example.com> 1 +0000";
        let commit = |first: &str, last: &str| {
            format!("tree {tree}\n{first}author {who}\ncommitter {who}\n{last}\nmessage\n")
        };
        let parents = |text: &str| parents_of(text.as_bytes(), 40);
        let line = format!("parent {old}\n");
        assert_eq!(parents(&commit(&line, "")), Ok(vec![old.clone()]));
        assert_eq!(parents(&commit(&line.repeat(2), &line)), Ok(vec![old.clone(), old.clone()]));
        for hidden in [line.clone(), format!("gpgsig x\n {line}"), format!("encoding\n{line}")] {
            assert_eq!(parents(&commit("", &hidden)), Ok(Vec::new()), "{hidden:?}");
        }
        assert_eq!(parents(&commit(&format!("\n{line}"), "")), Ok(Vec::new()));
        for broken in [
            line.clone(),
            format!("tree {tree}"),
            format!("tree {tree} \n{line}"),
            format!("tree {tree}\nparent {old} \n"),
            format!("tree {tree}\nparent {}\n", old.replace('2', "A")),
            format!("tree {tree}\nparent 22\n{line}"),
        ] {
            assert_eq!(parents(&broken), Err(BadPack), "{broken:?}");
        }
    }

    /// A pack of a commit and deltas on it, each of which makes as much as it may.
    fn pack_of_deltas(base: &[u8], deltas: &[Vec<u8>]) -> Vec<u8> {
        let mut pack = b"PACK\0\0\0\x02".to_vec();
        pack.extend_from_slice(&u32::try_from(1 + deltas.len()).unwrap().to_be_bytes());
        let mut add = |kind: u8, before: &[u8], data: &[u8]| {
            let begin = pack.len();
            let mut size = data.len();
            let mut byte = kind << 4 | u8::try_from(size & 15).unwrap();
            size >>= 4;
            while size > 0 {
                pack.push(byte | 0x80);
                byte = u8::try_from(size & 0x7f).unwrap();
                size >>= 7;
            }
            pack.push(byte);
            pack.extend_from_slice(before);
            let mut packed =
                flate2::write::ZlibEncoder::new(Vec::new(), flate2::Compression::best());
            packed.write_all(data).unwrap();
            pack.extend_from_slice(&packed.finish().unwrap());
            begin
        };
        add(COMMIT, &[], base);
        for delta in deltas {
            let id = object_id(base, 40);
            let id: Vec<u8> = (0..40)
                .step_by(2)
                .map(|at| u8::from_str_radix(&id[at..at + 2], 16).unwrap())
                .collect();
            add(REFERENCE_DELTA, &id, delta);
        }
        pack
    }

    fn number(mut value: usize) -> Vec<u8> {
        let mut bytes = Vec::new();
        while value > 0x7f {
            bytes.push(u8::try_from(value & 0x7f).unwrap() | 0x80);
            value >>= 7;
        }
        bytes.push(u8::try_from(value).unwrap());
        bytes
    }

    #[test]
    fn what_deltas_make_is_counted_before_it_is_made() {
        let base = [format!("tree {}\n\n", "1".repeat(40)).as_bytes(), &[b'x'; 100_000]].concat();
        let copies = |count: usize| {
            let mut delta = [number(base.len()), number(count * 0x10000)].concat();
            delta.extend(std::iter::repeat_n(0x80, count));
            delta
        };
        let small = pack_of_deltas(&base, &[copies(2), copies(3)]);
        assert_eq!(parents(&small, 40).unwrap().len(), 3);
        let one = copies(MOST_KEPT / 0x10000 + 1);
        let many = vec![copies(64); 9];
        for bomb in [vec![one], many] {
            let pack = pack_of_deltas(&base, &bomb);
            assert!(pack.len() < 32 * 1024, "{}", pack.len());
            assert_eq!(parents(&pack, 40), Err(BadPack));
        }
        // A size that no memory has is only a number.
        let delta = [number(base.len()), number(1 << 34)].concat();
        assert_eq!(parents(&pack_of_deltas(&base, &[delta]), 40), Err(BadPack));
    }
}
