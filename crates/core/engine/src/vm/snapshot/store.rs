//! Snapshots on disk: who may use them, and which of them can be believed.
//!
//! Invariant: nothing is started from a snapshot that was changed. Its description carries a MAC with a
//! key of this home's, and names the hashes of memory and devices, which are checked on the sealed copy
//! that guests start from.

use std::fs::{self, File};
use std::io::{self, Read};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use ringwall_safekeeping::{Content, FileError, Trust, create_new, random_array, read};
use ringwall_spec::{SandboxId, SandboxName};
use rustix::fs::SealFlags;

use super::{Restored, Snapshot, SnapshotError};
use crate::config::Engine;
use crate::keep::Restore;
use crate::vm::template::{self, Start};

/// Where snapshots are, below the engine's home.
const SNAPSHOTS: &str = "snapshots";
/// How the name of one begins that is not finished, or is there for a fork alone.
const UNFINISHED: &str = ".";
/// After this time no process works on it any more.
const ABANDONED: Duration = Duration::from_secs(3600);
const KEY_FILE: &str = ".key";
const KEY_BYTES: usize = 32;
/// Part of what the MAC is made of: descriptions of another layout are not read.
const LAYOUT: &str = "ringwall snapshot 1";
const MAX_DESCRIPTION_BYTES: u64 = 1 << 20;
/// Bytes that are hashed at once. Zeros are left out, whether they are stored or are gaps of the file.
const CHUNK: usize = 64 << 10;
/// The seals of memory that guests start from.
const SEALED: SealFlags =
    SealFlags::SEAL.union(SealFlags::SHRINK).union(SealFlags::GROW).union(SealFlags::WRITE);

impl Engine {
    pub(super) fn snapshots_dir(&self) -> PathBuf {
        self.home.join(SNAPSHOTS)
    }

    /// A snapshot for a fork alone does not show.
    pub(super) fn snapshot_dir(&self, id: &SandboxId, hidden: bool) -> PathBuf {
        let name = if hidden { format!(".fork-{id}") } else { id.to_string() };
        self.snapshots_dir().join(name)
    }

    pub(super) fn describe(&self, directory: &Path, snapshot: &Snapshot) -> io::Result<()> {
        let text = serde_json::to_vec(snapshot)?;
        create_new(&directory.join("snapshot.json"), Content::quick(&text))?;
        let mac = mac(&self.snapshot_key()?, &text);
        let mac = mac.to_hex();
        Ok(create_new(&directory.join("mac"), Content::quick(mac.as_bytes()))?)
    }

    /// Made when it is first needed. Only the owner of this home can read it.
    fn snapshot_key(&self) -> io::Result<[u8; KEY_BYTES]> {
        let path = self.snapshots_dir().join(KEY_FILE);
        if !path.exists() {
            match create_new(&path, Content::durable(&random_array::<KEY_BYTES>()?)) {
                // The first process makes it.
                Ok(()) | Err(FileError::Exists(_)) => {}
                Err(error) => return Err(error.into()),
            }
        }
        let key = read(&path, Trust::Secret, KEY_BYTES as u64)?;
        key.try_into().map_err(|_| io::ErrorKind::InvalidData.into())
    }

    pub(super) fn check_snapshot_name(&self, name: &SandboxName) -> Result<(), SnapshotError> {
        match self.snapshots()?.iter().any(|other| other.name.as_ref() == Some(name)) {
            true => Err(SnapshotError::NameTaken(name.to_string())),
            false => Ok(()),
        }
    }

    /// All snapshots that are whole, oldest first. One that was tampered with is not among them.
    pub fn snapshots(&self) -> Result<Vec<Snapshot>, SnapshotError> {
        let all = self.snapshots_dir();
        let entries = match fs::read_dir(&all) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            other => other.map_err(|source| read_error(&all, source))?,
        };
        let shown = |path: &PathBuf| {
            path.file_name().is_some_and(|name| !name.as_encoded_bytes().starts_with(b"."))
        };
        let paths = entries.flatten().map(|entry| entry.path()).filter(shown);
        let mut found: Vec<Snapshot> =
            paths.filter_map(|path| self.read_snapshot(&path).ok()).collect();
        found.sort_by(|a, b| (a.created_unix_ms, &a.id).cmp(&(b.created_unix_ms, &b.id)));
        Ok(found)
    }

    /// Finds by name, full id or unique beginning of an id.
    pub fn find_snapshot(&self, id_or_name: &str) -> Result<Snapshot, SnapshotError> {
        let all = self.snapshots()?;
        if let Some(named) =
            all.iter().find(|s| s.name.as_ref().is_some_and(|name| name.as_str() == id_or_name))
        {
            return Ok(named.clone());
        }
        let mut fitting =
            all.iter().filter(|s| !id_or_name.is_empty() && s.id.as_str().starts_with(id_or_name));
        match (fitting.next(), fitting.next()) {
            (Some(found), None) => Ok(found.clone()),
            (Some(_), Some(_)) => Err(SnapshotError::Ambiguous(id_or_name.to_owned())),
            // A snapshot that is there and fails its check gets an error of its own.
            (None, _) => match id_or_name.parse::<SandboxId>() {
                Ok(id) if self.snapshot_dir(&id, false).exists() => {
                    Err(SnapshotError::Tampered(id_or_name.to_owned()))
                }
                _ => Err(SnapshotError::NotFound(id_or_name.to_owned())),
            },
        }
    }

    pub fn remove_snapshot(&self, id_or_name: &str) -> Result<(), SnapshotError> {
        let id = match self.find_snapshot(id_or_name) {
            Ok(snapshot) => snapshot.id,
            Err(SnapshotError::Tampered(id)) => {
                id.parse().map_err(|_| SnapshotError::NotFound(id_or_name.to_owned()))?
            }
            Err(error) => return Err(error),
        };
        self.forget_snapshot(&id, false)
    }

    pub(crate) fn forget_snapshot(
        &self,
        id: &SandboxId,
        hidden: bool,
    ) -> Result<(), SnapshotError> {
        let directory = self.snapshot_dir(id, hidden);
        fs::remove_dir_all(&directory).map_err(|source| read_error(&directory, source))
    }

    fn read_snapshot(&self, directory: &Path) -> Result<Snapshot, SnapshotError> {
        let wrong = |source| read_error(directory, source);
        let id = directory.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let mut text = Vec::new();
        let description = File::open(directory.join("snapshot.json")).map_err(wrong)?;
        description.take(MAX_DESCRIPTION_BYTES).read_to_end(&mut text).map_err(wrong)?;
        let told = fs::read_to_string(directory.join("mac")).map_err(wrong)?;
        let key = self.snapshot_key().map_err(wrong)?;
        let told = blake3::Hash::from_hex(told.trim());
        // Compared in constant time.
        if told.ok() != Some(mac(&key, &text)) {
            return Err(SnapshotError::Tampered(id));
        }
        let snapshot: Snapshot =
            serde_json::from_slice(&text).map_err(|_| SnapshotError::Tampered(id.clone()))?;
        // Another process may have given one the place of another.
        match id.trim_start_matches(".fork-") == snapshot.id.as_str() {
            true => Ok(snapshot),
            false => Err(SnapshotError::Tampered(id)),
        }
    }

    /// The snapshot of a fork under way.
    pub(crate) fn read_fork(&self, id: &SandboxId) -> Result<Snapshot, SnapshotError> {
        self.read_snapshot(&self.snapshot_dir(id, true))
    }

    /// Memory and devices of a snapshot as guests start from them: sealed, and checked after that.
    pub(crate) fn open_snapshot(
        &self,
        snapshot: &Snapshot,
        hidden: bool,
    ) -> Result<(OwnedFd, OwnedFd), SnapshotError> {
        let directory = self.snapshot_dir(&snapshot.id, hidden);
        let wrong = |source| read_error(&directory, source);
        let tampered = || SnapshotError::Tampered(snapshot.id.to_string());
        let mut sealed = Vec::new();
        for (name, hash, most) in [
            ("memory", &snapshot.memory_hash, snapshot.spec.limits.memory_bytes),
            ("state", &snapshot.state_hash, template::MAX_STATE_BYTES),
        ] {
            let file = File::open(directory.join(name)).map_err(wrong)?;
            let length = file.metadata().map_err(wrong)?.len();
            if length > most {
                return Err(tampered());
            }
            let memory = template::new_memory(length).map_err(wrong)?;
            let copy = File::from(memory.try_clone().map_err(wrong)?);
            template::send_data(&file, &copy).map_err(wrong)?;
            rustix::fs::fcntl_add_seals(&memory, SEALED).map_err(|errno| wrong(errno.into()))?;
            if fingerprint(&copy).map_err(wrong)? != *hash {
                return Err(tampered());
            }
            sealed.push(memory);
        }
        match (sealed.pop(), sealed.pop()) {
            (Some(state), Some(memory)) => Ok((memory, state)),
            _ => Err(tampered()),
        }
    }

    /// What a keeper needs, from descriptors of the process that started it.
    pub(crate) fn take_restored(
        &self,
        snapshot: &Snapshot,
        restore: &Restore,
    ) -> Result<Restored, SnapshotError> {
        let Restore { parent, memory, state, .. } = *restore;
        let tampered = || SnapshotError::Tampered(snapshot.id.to_string());
        let own_parent = rustix::process::getppid().map(|pid| pid.as_raw_nonzero().get());
        if own_parent != i32::try_from(parent).ok() {
            return Err(tampered());
        }
        let open = |number: i32, hash: &str| {
            let path = format!("/proc/{parent}/fd/{number}");
            let file = File::options().read(true).write(true).open(path);
            let file = file.map_err(|source| read_error(Path::new("memory"), source))?;
            let seals = rustix::fs::fcntl_get_seals(&file).map_err(|_| tampered())?;
            let whole = seals.contains(SEALED)
                && (hash.is_empty() || fingerprint(&file).is_ok_and(|found| found == hash));
            if whole { Ok(file) } else { Err(tampered()) }
        };
        // The memory was checked by who sealed it, our own parent; it is large.
        let (memory, state) = (open(memory, "")?, open(state, &snapshot.state_hash)?);
        Ok(Restored {
            start: Arc::new(Start::ready(memory.into(), state)),
            kernel_release: snapshot.kernel_release.clone(),
            devices: snapshot.devices.clone(),
        })
    }
}

/// The hash of a file's content, the same whether zeros are stored or are gaps.
pub(super) fn fingerprint(file: &File) -> io::Result<String> {
    let length = file.metadata()?.len();
    let mut hash = blake3::Hasher::new();
    hash.update(&length.to_le_bytes());
    let mut chunk = vec![0; CHUNK];
    let mut next = 0;
    while let Some((data, hole)) = template::next_data(file, next, length)? {
        let mut at = (data / CHUNK as u64 * CHUNK as u64).max(next);
        while at < hole {
            let most = usize::try_from(length - at).unwrap_or(CHUNK).min(CHUNK);
            let part = chunk.get_mut(..most).unwrap_or_default();
            file.read_exact_at(part, at)?;
            if part.iter().any(|byte| *byte != 0) {
                hash.update(&at.to_le_bytes()).update(part);
            }
            at += most as u64;
        }
        next = at;
    }
    Ok(hash.finalize().to_hex().to_string())
}

fn mac(key: &[u8; KEY_BYTES], description: &[u8]) -> blake3::Hash {
    let mut mac = blake3::Hasher::new_keyed(key);
    mac.update(LAYOUT.as_bytes()).update(description);
    mac.finalize()
}

fn read_error(path: &Path, source: io::Error) -> SnapshotError {
    SnapshotError::Read { path: path.display().to_string(), source }
}

/// The number of a descriptor, for a process that is started by this one.
pub(crate) fn number_of(fd: &OwnedFd) -> i32 {
    fd.as_raw_fd()
}

/// Removes unfinished snapshots. Gives how many.
pub(crate) fn sweep(home: &Path) -> u64 {
    let Ok(entries) = fs::read_dir(home.join(SNAPSHOTS)) else {
        return 0;
    };
    let abandoned = |path: &PathBuf| {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        let modified = fs::metadata(path).and_then(|metadata| metadata.modified());
        name.starts_with(UNFINISHED)
            && path.is_dir()
            && modified.is_ok_and(|time| time.elapsed().is_ok_and(|age| age > ABANDONED))
    };
    let paths = entries.flatten().map(|entry| entry.path()).filter(abandoned);
    let removed = paths.filter(|path| fs::remove_dir_all(path).is_ok());
    u64::try_from(removed.count()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use std::time::SystemTime;

    use super::*;

    #[test]
    fn a_fingerprint_does_not_depend_on_holes_and_does_on_every_byte() {
        let (sparse, full) = (tempfile::tempfile().unwrap(), tempfile::tempfile().unwrap());
        let mut bytes = vec![0; 1 << 20];
        bytes[300_000] = 7;
        full.write_all_at(&bytes, 0).unwrap();
        sparse.set_len(1 << 20).unwrap();
        sparse.write_all_at(&[7], 300_000).unwrap();
        let before = fingerprint(&sparse).unwrap();
        assert_eq!(before, fingerprint(&full).unwrap());
        sparse.write_all_at(&[7], 300_001).unwrap();
        assert_ne!(before, fingerprint(&sparse).unwrap());
        full.set_len((1 << 20) + 1).unwrap();
        assert_ne!(before, fingerprint(&full).unwrap());
    }

    #[test]
    fn unfinished_snapshots_go_with_time() {
        let home = tempfile::tempdir().unwrap();
        let all = home.path().join(SNAPSHOTS);
        for name in [".making-a", ".fork-b", "whole"] {
            fs::create_dir_all(all.join(name)).unwrap();
        }
        let long_ago = SystemTime::now() - ABANDONED - Duration::from_secs(60);
        for name in [".fork-b", "whole"] {
            File::open(all.join(name)).unwrap().set_modified(long_ago).unwrap();
        }
        assert_eq!(sweep(home.path()), 1);
        assert!(all.join(".making-a").exists() && all.join("whole").exists());
    }
}
