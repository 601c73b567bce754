//! Files of the store: private directories, one lock, whole files by rename.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::Path;

use ringwall_image::wait_for_lock;
use ringwall_spec::ToolDigest;
use rustix::fs::FlockOperation;
use serde::Serialize;
use serde::de::DeserializeOwned;
use sha2::{Digest as _, Sha256};

use super::{StoreError, ToolStore};

pub(super) fn digest_of(bytes: &[u8]) -> ToolDigest {
    ToolDigest(Sha256::digest(bytes).into())
}

pub(super) fn make_private(directory: &Path) -> Result<(), StoreError> {
    DirBuilder::new()
        .mode(0o700)
        .recursive(true)
        .create(directory)
        .map_err(StoreError::io("create", directory))?;
    let found = fs::metadata(directory).map_err(StoreError::io("inspect", directory))?;
    if found.uid() != rustix::process::geteuid().as_raw() || found.mode() & 0o022 != 0 {
        return Err(StoreError::NotPrivate(directory.to_owned()));
    }
    Ok(())
}

/// The store's lock; released when dropped, or by the kernel when the process dies.
#[derive(Debug)]
pub(super) struct Lock {
    _file: File,
}

impl ToolStore {
    pub(super) fn lock(&self) -> Result<Lock, StoreError> {
        let path = self.root.join("lock");
        let file = OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o600)
            .open(&path)
            .map_err(StoreError::io("open", &path))?;
        match wait_for_lock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(true) => Ok(Lock { _file: file }),
            Ok(false) => Err(StoreError::Busy),
            Err(errno) => Err(StoreError::io("lock", &path)(errno.into())),
        }
    }

    /// Writes a whole file or nothing. The caller holds the lock, so one name for what is not
    /// finished is enough, and what a crash left there is overwritten.
    pub(super) fn write(&self, path: &Path, bytes: &[u8], _: &Lock) -> Result<(), StoreError> {
        let failed = StoreError::io("write", path);
        let unfinished = self.root.join("unfinished");
        let write = || {
            if let Some(parent) = path.parent() {
                DirBuilder::new().mode(0o700).recursive(true).create(parent)?;
            }
            match fs::remove_file(&unfinished) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                _ => {}
            }
            let mut file =
                OpenOptions::new().write(true).create_new(true).mode(0o600).open(&unfinished)?;
            file.write_all(bytes)?;
            file.sync_data()?;
            fs::rename(&unfinished, path)
        };
        write().map_err(failed)
    }

    pub(super) fn write_json(
        &self,
        path: &Path,
        document: &impl Serialize,
        lock: &Lock,
    ) -> Result<(), StoreError> {
        let bytes = serde_json::to_vec_pretty(document)
            .map_err(|error| StoreError::io("write", path)(error.into()))?;
        self.write(path, &bytes, lock)
    }
}

/// `None` if there is no such file.
pub(super) fn read_json<T: DeserializeOwned>(path: &Path) -> Result<Option<T>, StoreError> {
    match fs::read(path) {
        Ok(bytes) => serde_json::from_slice(&bytes)
            .map(Some)
            .map_err(|_| StoreError::Damaged(path.to_owned())),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(StoreError::io("read", path)(error)),
    }
}
