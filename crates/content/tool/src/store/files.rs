//! Files of the store: private directories, one lock, whole files by rename.

use std::fs;
use std::io;
use std::path::Path;
use std::time::Duration;

use ringwall_safekeeping::{Content, Directory, FileError, Hold, Lock, Trust, Wait, lock_within};
use ringwall_spec::ToolDigest;
use serde::Serialize;
use serde::de::DeserializeOwned;
use sha2::{Digest as _, Sha256};

use super::{StoreError, ToolStore};

/// How long to wait for others: longer than any change takes, shorter than a person's patience.
const PATIENCE: Wait = Wait::For(Duration::from_secs(10));

pub(super) fn digest_of(bytes: &[u8]) -> ToolDigest {
    ToolDigest(Sha256::digest(bytes).into())
}

pub(super) fn make_private(directory: &Path) -> Result<(), StoreError> {
    match Directory::make(directory, Trust::Own) {
        Ok(_) => Ok(()),
        Err(FileError::Untrusted { path, .. }) => Err(StoreError::NotPrivate(path)),
        Err(error) => Err(StoreError::io("create", directory)(error.into())),
    }
}

impl ToolStore {
    pub(super) fn lock(&self) -> Result<Lock, StoreError> {
        let path = self.root.join("lock");
        match lock_within(&path, Hold::Alone, PATIENCE) {
            Ok(lock) => lock.ok_or(StoreError::Busy),
            Err(error) => Err(StoreError::io("lock", &path)(error.into())),
        }
    }

    /// Writes a whole file or nothing. The caller holds the lock.
    pub(super) fn write(&self, path: &Path, bytes: &[u8], _: &Lock) -> Result<(), StoreError> {
        let (Some(above), Some(name)) = (path.parent(), path.file_name()) else {
            return Err(StoreError::io("write", path)(io::ErrorKind::InvalidInput.into()));
        };
        let write = || {
            let directory = Directory::make(above, Trust::Own)?;
            directory.remove_leftovers()?;
            directory.replace(name, Content::durable(bytes))
        };
        write().map_err(|error| StoreError::io("write", path)(error.into()))
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
