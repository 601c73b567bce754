//! Keeps processes that add to the store and processes that delete from it apart.

use std::fs::{File, OpenOptions};
use std::os::unix::fs::OpenOptionsExt;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;

use super::{Store, StoreError};

/// How long to wait for others: longer than any change takes, shorter than a person's patience.
const PATIENCE: Duration = Duration::from_secs(10);
const RETRY_EVERY: Duration = Duration::from_millis(20);

/// The store's lock; released when dropped, or by the kernel when the process dies.
#[derive(Debug)]
pub(super) struct StoreLock {
    _file: File,
}

impl Store {
    /// For adding: many processes may add at once, and what they add appears by rename.
    pub(super) fn lock_for_adding(&self) -> Result<StoreLock, StoreError> {
        self.lock(FlockOperation::NonBlockingLockShared)
    }

    /// For deleting: nobody adds meanwhile, so what nothing refers to is really unused.
    pub(super) fn lock_for_deleting(&self) -> Result<StoreLock, StoreError> {
        self.lock(FlockOperation::NonBlockingLockExclusive)
    }

    /// A file that is there to be locked.
    pub(super) fn lock_file(&self, name: &str) -> Result<(File, PathBuf), StoreError> {
        let path = self.root.join(name);
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o600)
            .open(&path)
            .map_err(StoreError::io("open", &path))?;
        Ok((file, path))
    }

    fn lock(&self, operation: FlockOperation) -> Result<StoreLock, StoreError> {
        self.make_layout()?;
        let (file, path) = self.lock_file("lock")?;
        match wait_for_lock(&file, operation) {
            Ok(true) => Ok(StoreLock { _file: file }),
            Ok(false) => Err(StoreError::Busy),
            Err(errno) => Err(StoreError::io("lock", &path)(errno.into())),
        }
    }
}

/// Waits for a lock on a file, in a mode that does not block. False if others kept it for longer
/// than anybody should.
pub fn wait_for_lock(file: &File, operation: FlockOperation) -> Result<bool, Errno> {
    let give_up_at = Instant::now() + PATIENCE;
    loop {
        match flock(file, operation) {
            Ok(()) => return Ok(true),
            Err(Errno::WOULDBLOCK) if Instant::now() >= give_up_at => return Ok(false),
            Err(Errno::WOULDBLOCK | Errno::INTR) => std::thread::sleep(RETRY_EVERY),
            Err(errno) => return Err(errno),
        }
    }
}
