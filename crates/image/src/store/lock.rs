//! Keeps processes that add to the store and processes that delete from it apart.

use std::fs::{File, OpenOptions};
use std::os::unix::fs::OpenOptionsExt;
use std::time::{Duration, Instant};

use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;

use super::{Store, StoreError};

/// How long to wait for others: longer than any deletion takes, shorter than a person's patience.
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

    fn lock(&self, operation: FlockOperation) -> Result<StoreLock, StoreError> {
        self.make_layout()?;
        let path = self.root.join("lock");
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o600)
            .open(&path)
            .map_err(StoreError::io("open", &path))?;
        let give_up_at = Instant::now() + PATIENCE;
        loop {
            match flock(&file, operation) {
                Ok(()) => return Ok(StoreLock { _file: file }),
                Err(Errno::WOULDBLOCK) if Instant::now() >= give_up_at => {
                    return Err(StoreError::Busy);
                }
                Err(Errno::WOULDBLOCK | Errno::INTR) => std::thread::sleep(RETRY_EVERY),
                Err(errno) => return Err(StoreError::io("lock", &path)(errno.into())),
            }
        }
    }
}
