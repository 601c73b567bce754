//! The list of revoked grants: a file that only grows, and a signed head that says how far it goes.
//!
//! Every enforcement point looks at the head before each check, which costs one system call, and reads
//! on where it has changed. How far it went is also kept beside the keys, for processes that have not seen
//! it yet: who can only write to the list cannot put an older one back. A list that is missing, cut short, edited, older than one that was seen, or
//! older than allowed is no list: everything is refused until it is whole again.

use std::collections::HashSet;
use std::fs::File;
use std::io::{Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::sync::{PoisonError, RwLock};
use std::time::Duration;

use ringwall_safekeeping::{
    Access, Content, FileError, Trust, hex, open, open_or_make, read, replace,
};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use crate::keys::{PublicKey, SecretKey};
use crate::token::GrantId;

const LIST: &str = "revocations";
const HEAD: &str = "revocations.head";
/// How far the list went, beside the keys.
const SEEN: &str = "revocations.seen";
const SORT: &str = "head of the list of revoked grants";
const MAX_HEAD_BYTES: u64 = 4096;
const MAX_SEEN_BYTES: u64 = 32;
/// A million grants and more.
const MAX_LIST_BYTES: u64 = 64 << 20;

#[derive(Debug, thiserror::Error)]
pub enum RevocationsError {
    #[error("the list of revoked grants cannot be read")]
    File(#[from] FileError),
    #[error("the head of the list of revoked grants is damaged or forged")]
    Head,
    #[error("the list of revoked grants is cut short or edited")]
    List,
    #[error(
        "the list of revoked grants is an old one: it ends at {found}, and {seen} were seen before"
    )]
    RolledBack { found: u64, seen: u64 },
    #[error(
        "the file revocations.seen beside the keys is damaged, so it is not known how many grants were revoked; write the number of lines of grants/revocations into it"
    )]
    Seen,
    #[error("the list of revoked grants was last confirmed {age} seconds ago, {most} are allowed")]
    Stale { age: u64, most: u64 },
    #[error("the list of revoked grants is full")]
    Full,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Head {
    version: u32,
    /// The number of the key that signed it.
    key: u32,
    count: u64,
    bytes: u64,
    /// Of all lines, one after the other.
    chain: String,
    at_unix: u64,
    signature: String,
}

/// An enforcement point's view of the list.
#[derive(Debug)]
pub struct Revocations {
    directory: PathBuf,
    keys: Vec<(u32, PublicKey)>,
    max_age: Option<Duration>,
    /// Where it is kept how far the list went. Copies elsewhere have none.
    seen_in: Option<PathBuf>,
    known: RwLock<Known>,
}

#[derive(Debug)]
struct Known {
    /// The head that was read, kept open: its inode cannot become another file's.
    head: Option<(File, Stamp)>,
    count: u64,
    bytes: u64,
    chain: [u8; 32],
    at_unix: u64,
    ids: HashSet<GrantId>,
}

/// What changes when a file is replaced or touched.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Stamp {
    device: u64,
    inode: u64,
    bytes: i64,
    modified: (i64, i64),
    changed: (i64, i64),
}

impl Revocations {
    /// The list in a directory, under any of these keys. Nothing is read yet.
    pub fn new(directory: &Path, keys: Vec<(u32, PublicKey)>) -> Revocations {
        let known = Known {
            head: None,
            count: 0,
            bytes: 0,
            chain: first_link(),
            at_unix: 0,
            ids: HashSet::new(),
        };
        let directory = directory.to_owned();
        Revocations { directory, keys, max_age: None, seen_in: None, known: RwLock::new(known) }
    }

    /// Refuses a list that is shorter than one that any process of this home has seen.
    pub(crate) fn kept_beside(mut self, keys_directory: &Path) -> Revocations {
        self.seen_in = Some(keys_directory.to_owned());
        self
    }

    /// For copies of the list, which somebody must keep fresh: one that was not confirmed for so long
    /// counts as none.
    pub fn with_max_age(mut self, max_age: Duration) -> Revocations {
        self.max_age = Some(max_age);
        self
    }

    /// Which of these is revoked, if one is.
    pub fn find(
        &self,
        ids: &[GrantId],
        now_unix: u64,
    ) -> Result<Option<GrantId>, RevocationsError> {
        self.refresh()?;
        let known = self.known.read().unwrap_or_else(PoisonError::into_inner);
        if let Some(most) = self.max_age.map(|most| most.as_secs()) {
            let age = now_unix.saturating_sub(known.at_unix);
            if age > most {
                return Err(RevocationsError::Stale { age, most });
            }
        }
        Ok(ids.iter().find(|id| known.ids.contains(id)).copied())
    }

    /// How many are revoked.
    pub fn count(&self) -> Result<u64, RevocationsError> {
        self.refresh()?;
        Ok(self.known.read().unwrap_or_else(PoisonError::into_inner).count)
    }

    fn refresh(&self) -> Result<(), RevocationsError> {
        let path = self.directory.join(HEAD);
        let stamp = Stamp::at(&path)?;
        let seen = |known: &Known| known.head.as_ref().is_some_and(|(_, seen)| *seen == stamp);
        if seen(&self.known.read().unwrap_or_else(PoisonError::into_inner)) {
            return Ok(());
        }
        let mut known = self.known.write().unwrap_or_else(PoisonError::into_inner);
        if seen(&known) {
            return Ok(());
        }
        let seen = self.seen_in.as_deref().map(read_seen).transpose()?.unwrap_or_default();
        known.read_on(&self.directory, &self.keys, seen)
    }
}

impl Known {
    /// Reads what was added. On any error all stays as it was, and the next check tries again.
    fn read_on(
        &mut self,
        directory: &Path,
        keys: &[(u32, PublicKey)],
        seen: u64,
    ) -> Result<(), RevocationsError> {
        let file = open(&directory.join(HEAD), Trust::Secret)?;
        let stamp = Stamp::of(&file, &directory.join(HEAD))?;
        let head = Head::read(&file, &directory.join(HEAD), keys)?;
        let seen = seen.max(self.count);
        if head.count < seen || head.at_unix < self.at_unix {
            return Err(RevocationsError::RolledBack { found: head.count, seen });
        }
        let added = head.bytes.checked_sub(self.bytes).ok_or(RevocationsError::List)?;
        let lines = read_part(&directory.join(LIST), self.bytes, added)?;
        let (mut chain, mut ids) = (self.chain, Vec::<GrantId>::new());
        for line in lines.split_inclusive('\n') {
            chain = next_link(&chain, line);
            let id = line.get(..32).and_then(|id| id.parse().ok());
            ids.push(id.ok_or(RevocationsError::List)?);
        }
        if hex::encode(&chain) != head.chain || self.count + ids.len() as u64 != head.count {
            return Err(RevocationsError::List);
        }
        self.ids.extend(ids);
        (self.chain, self.count, self.bytes) = (chain, head.count, head.bytes);
        self.at_unix = head.at_unix;
        self.head = Some((file, stamp));
        Ok(())
    }
}

impl Head {
    fn read(file: &File, path: &Path, keys: &[(u32, PublicKey)]) -> Result<Head, RevocationsError> {
        let mut text = String::new();
        file.take(MAX_HEAD_BYTES)
            .read_to_string(&mut text)
            .map_err(|source| FileError::Use { path: path.to_owned(), source })?;
        let head: Head = serde_json::from_str(&text).map_err(|_| RevocationsError::Head)?;
        let key = keys.iter().find(|(number, _)| *number == head.key).map(|(_, key)| key);
        let signature = hex::decode_array::<64>(&head.signature);
        let signed = key.zip(signature).is_some_and(|(key, signature)| {
            key.verifies(SORT, head.message().as_bytes(), &signature)
        });
        if signed && head.version == 1 && head.bytes <= MAX_LIST_BYTES {
            Ok(head)
        } else {
            Err(RevocationsError::Head)
        }
    }

    fn message(&self) -> String {
        let Head { version, key, count, bytes, chain, at_unix, signature: _ } = self;
        format!("{version} {key} {count} {bytes} {chain} {at_unix}")
    }

    fn write(
        known: &Known,
        directory: &Path,
        key: (u32, &SecretKey),
        now_unix: u64,
    ) -> Result<(), RevocationsError> {
        let mut head = Head {
            version: 1,
            key: key.0,
            count: known.count,
            bytes: known.bytes,
            chain: hex::encode(&known.chain),
            // A clock that was set back must not make a new head look old.
            at_unix: now_unix.max(known.at_unix),
            signature: String::new(),
        };
        head.signature = hex::encode(&key.1.sign(SORT, head.message().as_bytes()));
        let text = serde_json::to_string(&head).map_err(|_| RevocationsError::Head)?;
        Ok(replace(&directory.join(HEAD), Content::durable(text.as_bytes()))?)
    }
}

fn read_seen(keys_directory: &Path) -> Result<u64, RevocationsError> {
    let text = match read(&keys_directory.join(SEEN), Trust::Secret, MAX_SEEN_BYTES) {
        Ok(text) => text,
        // Of a home whose list was never added to.
        Err(FileError::Missing(_)) => return Ok(0),
        Err(error) => return Err(error.into()),
    };
    let number = std::str::from_utf8(&text).ok().and_then(|text| text.trim_end().parse().ok());
    number.ok_or(RevocationsError::Seen)
}

/// Begins an empty list. The caller holds the lock, and there is no key yet that a token could be
/// signed with.
pub(crate) fn begin(
    directory: &Path,
    key: (u32, &SecretKey),
    now_unix: u64,
) -> Result<(), RevocationsError> {
    replace(&directory.join(LIST), Content::durable(b""))?;
    let empty = Revocations::new(directory, Vec::new()).known;
    let empty = empty.into_inner().unwrap_or_else(PoisonError::into_inner);
    Head::write(&empty, directory, key, now_unix)
}

/// Adds ids to the list; confirms it if there are none to add. The caller holds the lock.
pub(crate) fn append(
    (directory, keys_directory): (&Path, &Path),
    keys: &[(u32, PublicKey)],
    key: (u32, &SecretKey),
    ids: &[GrantId],
    now_unix: u64,
) -> Result<u64, RevocationsError> {
    let list = Revocations::new(directory, keys.to_vec()).kept_beside(keys_directory);
    list.refresh()?;
    let mut known = list.known.into_inner().unwrap_or_else(PoisonError::into_inner);
    let path = directory.join(LIST);
    let wrong = |source| RevocationsError::from(FileError::Use { path: path.clone(), source });
    let mut added = 0;
    let mut lines = String::new();
    for id in ids {
        if known.ids.insert(*id) {
            let line = format!("{id} {now_unix}\n");
            known.chain = next_link(&known.chain, &line);
            lines.push_str(&line);
            added += 1;
        }
    }
    if known.bytes + lines.len() as u64 > MAX_LIST_BYTES {
        return Err(RevocationsError::Full);
    }
    if added > 0 {
        let mut file = open_or_make(&path, Trust::Secret, Access::Append)?;
        // What stands behind the signed part is of a writer that was killed: nobody was told that it
        // had been done.
        file.set_len(known.bytes).map_err(wrong)?;
        file.write_all(lines.as_bytes()).and_then(|()| file.sync_all()).map_err(wrong)?;
    }
    known.count += added;
    known.bytes += lines.len() as u64;
    Head::write(&known, directory, key, now_unix)?;
    // After the list: a crash between them leaves a number that is too small, and never one too large, by
    // which a good list would look like an old one.
    if read_seen(keys_directory)? < known.count {
        let number = format!("{}\n", known.count);
        replace(&keys_directory.join(SEEN), Content::durable(number.as_bytes()))?;
    }
    Ok(added)
}

fn read_part(path: &Path, from: u64, bytes: u64) -> Result<String, RevocationsError> {
    let wrong = |source| FileError::Use { path: path.to_owned(), source };
    let mut file = open(path, Trust::Secret)?;
    file.seek(SeekFrom::Start(from)).map_err(wrong)?;
    let mut part = Vec::new();
    file.take(bytes).read_to_end(&mut part).map_err(wrong)?;
    if part.len() as u64 != bytes {
        return Err(RevocationsError::List);
    }
    String::from_utf8(part).map_err(|_| RevocationsError::List)
}

fn first_link() -> [u8; 32] {
    Sha256::digest(b"ringwall: list of revoked grants, 1\n").into()
}

fn next_link(chain: &[u8; 32], line: &str) -> [u8; 32] {
    Sha256::new().chain_update(chain).chain_update(line.as_bytes()).finalize().into()
}

impl Stamp {
    fn at(path: &Path) -> Result<Stamp, FileError> {
        let stat = rustix::fs::stat(path).map_err(|error| match error {
            rustix::io::Errno::NOENT => FileError::Missing(path.to_owned()),
            error => FileError::Use { path: path.to_owned(), source: error.into() },
        })?;
        Ok(Stamp::from_stat(&stat))
    }

    fn of(file: &File, path: &Path) -> Result<Stamp, FileError> {
        let stat = rustix::fs::fstat(file)
            .map_err(|error| FileError::Use { path: path.to_owned(), source: error.into() })?;
        Ok(Stamp::from_stat(&stat))
    }

    fn from_stat(stat: &rustix::fs::Stat) -> Stamp {
        Stamp {
            device: stat.st_dev,
            inode: stat.st_ino,
            bytes: stat.st_size,
            modified: (stat.st_mtime, stat.st_mtime_nsec as i64),
            changed: (stat.st_ctime, stat.st_ctime_nsec as i64),
        }
    }
}
