//! Compiled code on disk.
//!
//! Invariant: nothing is handed out that this cache did not write itself. An entry is a file of code
//! and a file that describes it, sealed with a key that only Ringwall can read. Whatever is wrong
//! with either, the entry counts as missing and is written anew.

use std::collections::BTreeSet;
use std::fs::File;
use std::io::{self, Read, Seek, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use ringwall_safekeeping::{Content, Directory, FileError, Trust, if_there, random_array};
use ringwall_spec::{CodeFor, ToolDigest, ToolKind};
use ringwall_wire::{COMPILED_CODE, CompileReport};
use rustix::fs::Stat;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

/// The file of the key that seals entries.
const KEY: &str = "key";

/// A description is a manifest and little more.
const MAX_DESCRIPTION_BYTES: u64 = 2 << 20;

/// Clocks of file systems are coarse: a change so soon after another may not show in a file's times.
const SETTLED: Duration = Duration::from_secs(2);

#[derive(Debug, thiserror::Error)]
pub enum CacheError {
    #[error(
        "the cache of compiled tools in {path:?} cannot be used; make it writable, or set RINGWALL_HOME"
    )]
    Use { path: PathBuf, source: io::Error },
    #[error(
        "the key {path:?} of the cache of compiled tools is not private; remove it, and tools are compiled anew"
    )]
    Key { path: PathBuf },
}

/// A directory of compiled code.
#[derive(Debug)]
pub struct Cache {
    path: PathBuf,
    directory: Directory,
    key: [u8; blake3::KEY_LEN],
    code_for: CodeFor,
}

/// Code that may be run, and what is known of it.
#[derive(Debug)]
pub struct Entry {
    /// Open for reading; its content is what the compiler wrote.
    pub code: File,
    pub code_bytes: u64,
    pub kind: ToolKind,
    pub manifest: Option<Vec<u8>>,
    pub imports: Vec<String>,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
struct Description {
    /// Of the tool; so that an entry cannot stand for another.
    digest: [u8; 32],
    settings: String,
    kind: ToolKind,
    manifest: Option<Vec<u8>>,
    imports: Vec<String>,
    code_bytes: u64,
    code_hash: [u8; blake3::OUT_LEN],
    /// The file whose content was last found to have that hash.
    seen: Option<Stamp>,
}

/// What changes when somebody touches a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
struct Stamp {
    device: u64,
    inode: u64,
    bytes: i64,
    modified: (i64, i64),
    changed: (i64, i64),
}

/// The key of a cache, made at first use.
fn key(directory: &Directory) -> Result<[u8; 32], FileError> {
    let kept = match if_there(kept_key(directory))? {
        Some(kept) => kept,
        None => {
            let fresh = random_array::<32>()?;
            match directory.create_new(KEY, Content::durable(&fresh).with_mode(0o400)) {
                // Another process was quicker.
                Ok(()) | Err(FileError::Exists(_)) => kept_key(directory)?,
                Err(error) => return Err(error),
            }
        }
    };
    kept.try_into().map_err(|_| {
        let path = directory.path().join(KEY);
        FileError::Use { path, source: io::ErrorKind::InvalidData.into() }
    })
}

fn kept_key(directory: &Directory) -> Result<Vec<u8>, FileError> {
    directory.open_file(KEY, Trust::Sealed)?;
    directory.read(KEY, Trust::Secret, 32)
}

impl Cache {
    /// Opens the cache in a directory, which is made if need be.
    pub fn open(path: &Path) -> Result<Cache, CacheError> {
        let wrong = |source| CacheError::Use { path: path.to_owned(), source };
        let directory =
            Directory::make(path, Trust::Secret).map_err(|error| wrong(error.into()))?;
        let key = match key(&directory) {
            Err(FileError::Untrusted { path, .. }) => return Err(CacheError::Key { path }),
            key => key.map_err(|error| wrong(error.into()))?,
        };
        Ok(Cache { path: path.to_owned(), directory, key, code_for: CodeFor::default() })
    }

    /// The same directory, and in it the code for other processors.
    #[must_use]
    pub fn with_code_for(self, code_for: CodeFor) -> Cache {
        Cache { code_for, ..self }
    }

    pub fn code_for(&self) -> CodeFor {
        self.code_for
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Which tool this is.
    pub fn digest(wasm: &[u8]) -> ToolDigest {
        ToolDigest(Sha256::digest(wasm).into())
    }

    /// The code of a tool, if it is there and nobody has touched it.
    pub fn find(&self, digest: &ToolDigest) -> Option<Entry> {
        let name = name_of(digest, self.code_for);
        let described = self.directory.open_file(description(&name), Trust::Sealed).ok()?;
        let mut sealed = Vec::new();
        described.take(MAX_DESCRIPTION_BYTES).read_to_end(&mut sealed).ok()?;
        let known = self.unseal(&sealed)?;
        if known.digest != digest.0 || known.settings != settings(self.code_for) {
            return None;
        }
        let code = self.directory.open_file(code_file(&name), Trust::Sealed).ok()?;
        let stat = rustix::fs::fstat(&code).ok()?;
        if u64::try_from(stat.st_size) != Ok(known.code_bytes) {
            return None;
        }
        let stamp = Stamp::of(&stat);
        if known.seen != Some(stamp) {
            if hash(&code).ok()? != known.code_hash {
                return None;
            }
            // Again afterwards: what was hashed must be what was looked at.
            if Stamp::of(&rustix::fs::fstat(&code).ok()?) != stamp {
                return None;
            }
            if stamp.is_settled() {
                // Only saves time, so it may fail.
                let _ = self.describe(&name, &Description { seen: Some(stamp), ..known.clone() });
            }
        }
        let Description { code_bytes, kind, manifest, imports, .. } = known;
        Some(Entry { code, code_bytes, kind, manifest, imports })
    }

    /// Keeps what the compiler made of a tool.
    pub fn put(
        &self,
        digest: &ToolDigest,
        code: &[u8],
        report: &CompileReport,
    ) -> Result<(), CacheError> {
        let name = name_of(digest, self.code_for);
        let description = Description {
            digest: digest.0,
            settings: settings(self.code_for),
            kind: report.kind,
            manifest: report.manifest.clone(),
            imports: report.imports.clone(),
            code_bytes: code.len() as u64,
            code_hash: *blake3::hash(code).as_bytes(),
            seen: None,
        };
        self.replace(&code_file(&name), code)
            .and_then(|()| self.describe(&name, &description))
            .map_err(|source| CacheError::Use { path: self.path.clone(), source })
    }

    /// Forgets a tool's code: it turned out to be of no use here.
    pub fn remove(&self, digest: &ToolDigest) {
        let name = name_of(digest, self.code_for);
        for file in [description(&name), code_file(&name)] {
            // What is not there need not be removed.
            let _ = self.directory.remove(file);
        }
    }

    /// Removes the code of all tools but these, code of other compilers, and what interrupted writers
    /// left. Code that is in use stays so: its file is open. Gives the number of tools whose code went.
    pub fn keep_only(&self, tools: &BTreeSet<ToolDigest>) -> Result<u64, CacheError> {
        let wrong =
            |error: FileError| CacheError::Use { path: self.path.clone(), source: error.into() };
        self.directory.remove_leftovers().map_err(wrong)?;
        let all = [CodeFor::ThisProcessor, CodeFor::AnyProcessor];
        let names = |tool| all.map(|code_for| name_of(tool, code_for));
        let kept: BTreeSet<String> = tools.iter().flat_map(names).collect();
        let mut removed = 0;
        for file in self.directory.names().map_err(wrong)? {
            let entry = file.strip_suffix(".code").or_else(|| file.strip_suffix(".tool"));
            if entry.is_some_and(|entry| !file.starts_with('.') && !kept.contains(entry)) {
                self.directory.remove(&file).map_err(wrong)?;
                removed += u64::from(file.ends_with(".code"));
            }
        }
        Ok(removed)
    }

    fn replace(&self, name: &str, bytes: &[u8]) -> io::Result<()> {
        // A ring reads code as another user, by a descriptor; the directory keeps all others out.
        Ok(self.directory.replace(name, Content::durable(bytes).with_mode(0o444))?)
    }

    fn describe(&self, name: &str, known: &Description) -> io::Result<()> {
        let bytes = postcard::to_stdvec(known).map_err(io::Error::other)?;
        let mut sealed = blake3::keyed_hash(&self.key, &bytes).as_bytes().to_vec();
        sealed.write_all(&bytes)?;
        self.replace(&description(name), &sealed)
    }

    fn unseal(&self, sealed: &[u8]) -> Option<Description> {
        let (seal, bytes) = sealed.split_first_chunk::<{ blake3::OUT_LEN }>()?;
        // This comparison takes the same time whatever is equal.
        if blake3::keyed_hash(&self.key, bytes) != *seal {
            return None;
        }
        postcard::from_bytes(bytes).ok()
    }
}

impl Stamp {
    fn of(stat: &Stat) -> Stamp {
        let seconds = |time: i64, nanos| (time, i64::try_from(nanos).unwrap_or(i64::MAX));
        Stamp {
            device: stat.st_dev,
            inode: stat.st_ino,
            bytes: stat.st_size,
            modified: seconds(stat.st_mtime, stat.st_mtime_nsec),
            changed: seconds(stat.st_ctime, stat.st_ctime_nsec),
        }
    }

    /// Changed long enough ago that another change would show.
    fn is_settled(&self) -> bool {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let changed = Duration::from_secs(u64::try_from(self.changed.0).unwrap_or(u64::MAX));
        now.checked_sub(SETTLED).is_some_and(|then| changed + Duration::from_secs(1) <= then)
    }
}

fn settings(code_for: CodeFor) -> String {
    match code_for {
        CodeFor::ThisProcessor => COMPILED_CODE.to_owned(),
        CodeFor::AnyProcessor => format!("{COMPILED_CODE}, any processor"),
    }
}

/// The same for the same tool and the same compiler.
fn name_of(digest: &ToolDigest, code_for: CodeFor) -> String {
    let mut hasher = Sha256::new();
    hasher.update(digest.0);
    hasher.update(settings(code_for));
    hasher.update(std::env::consts::ARCH);
    ToolDigest(hasher.finalize().into()).hex()
}

fn description(name: &str) -> String {
    format!("{name}.tool")
}

fn code_file(name: &str) -> String {
    format!("{name}.code")
}

fn hash(mut file: &File) -> io::Result<[u8; blake3::OUT_LEN]> {
    let mut hasher = blake3::Hasher::new();
    hasher.update_reader(file)?;
    file.rewind()?;
    Ok(*hasher.finalize().as_bytes())
}

#[cfg(test)]
mod tests;
