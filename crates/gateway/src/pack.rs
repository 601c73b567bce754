//! The commits in a pushed pack, as far as they tell whether a branch only moves forward.

use std::collections::{HashMap, HashSet};

use flate2::{Decompress, FlushDecompress, Status};
use ring::digest;
use thiserror::Error;

use crate::needles::hexadecimal;

/// Packs are held in memory for the look; larger ones are refused where it is needed.
pub const LONGEST_PACK: usize = 32 * 1024 * 1024;
/// All objects together, unpacked.
const MOST_UNPACKED: usize = 256 * 1024 * 1024;
const MOST_OBJECTS: u32 = 100_000;

const COMMIT: u8 = 1;
const OFFSET_DELTA: u8 = 6;
const REFERENCE_DELTA: u8 = 7;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[error("the pushed pack is broken or too large to look into")]
pub struct BadPack;

struct Object {
    kind: u8,
    data: Vec<u8>,
}

/// The parents of every commit in a pack; `id_length` is 40 (SHA-1) or 64 (SHA-256) digits.
pub fn parents(pack: &[u8], id_length: usize) -> Result<HashMap<String, Vec<String>>, BadPack> {
    let header = pack.get(..12).ok_or(BadPack)?;
    let number = |at: usize| {
        u32::from_be_bytes([header[at], header[at + 1], header[at + 2], header[at + 3]])
    };
    if &header[..4] != b"PACK" || !matches!(number(4), 2 | 3) || number(8) > MOST_OBJECTS {
        return Err(BadPack);
    }
    let mut reader = Reader { pack, at: 12, unpacked: 0 };
    let mut commits: HashMap<usize, Object> = HashMap::new();
    let mut by_id: HashMap<String, usize> = HashMap::new();
    let mut found = HashMap::new();
    for _ in 0..number(8) {
        let begin = reader.at;
        let (mut kind, size) = reader.object_header()?;
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
        let mut data = reader.inflate(size)?;
        if let Some(base) = base {
            let Some(base) = commits.get(&base) else {
                continue;
            };
            kind = base.kind;
            data = apply_delta(&base.data, &data)?;
        }
        if kind == COMMIT {
            let id = object_id(&data, id_length);
            found.insert(id.clone(), parents_of(&data));
            by_id.insert(id, begin);
            commits.insert(begin, Object { kind, data });
        }
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
    unpacked: usize,
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

    fn inflate(&mut self, size: usize) -> Result<Vec<u8>, BadPack> {
        self.unpacked = self.unpacked.checked_add(size).ok_or(BadPack)?;
        if self.unpacked > MOST_UNPACKED {
            return Err(BadPack);
        }
        let mut inflater = Decompress::new(true);
        // One byte more than said, so that a longer object shows itself.
        let mut data = Vec::with_capacity(size + 1);
        loop {
            let input = &self.pack[self.at..];
            let (read, written) = (inflater.total_in(), inflater.total_out());
            let status = inflater
                .decompress_vec(input, &mut data, FlushDecompress::Finish)
                .map_err(|_| BadPack)?;
            self.at += usize::try_from(inflater.total_in() - read).map_err(|_| BadPack)?;
            match status {
                Status::StreamEnd if data.len() == size => return Ok(data),
                Status::StreamEnd => return Err(BadPack),
                _ if data.len() > size => return Err(BadPack),
                _ if inflater.total_in() == read && inflater.total_out() == written => {
                    return Err(BadPack);
                }
                _ => {}
            }
        }
    }
}

fn apply_delta(base: &[u8], delta: &[u8]) -> Result<Vec<u8>, BadPack> {
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
    if base_size != base.len() || size > MOST_UNPACKED {
        return Err(BadPack);
    }
    let mut data = Vec::new();
    while let Some((command, after)) = rest.split_first() {
        rest = after;
        if command & 0x80 == 0 {
            let (fresh, after) = rest.split_at_checked(usize::from(*command)).ok_or(BadPack)?;
            if fresh.is_empty() {
                return Err(BadPack);
            }
            data.extend_from_slice(fresh);
            rest = after;
        } else {
            let mut part = |bits: std::ops::Range<u8>| -> Result<usize, BadPack> {
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
            let (from, length) = (part(0..4)?, part(4..7)?);
            let length = if length == 0 { 0x10000 } else { length };
            data.extend_from_slice(base.get(from..from + length).ok_or(BadPack)?);
        }
        if data.len() > size {
            return Err(BadPack);
        }
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

fn parents_of(commit: &[u8]) -> Vec<String> {
    let text = String::from_utf8_lossy(commit);
    let head = text.split("\n\n").next().unwrap_or_default();
    head.lines().filter_map(|line| line.strip_prefix("parent ")).map(str::to_owned).collect()
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
}
