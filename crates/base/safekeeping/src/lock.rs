//! Locks on files. The kernel releases them when their holder dies, however it dies.

use std::fs::File;
use std::io;
use std::ops::Deref;
use std::os::fd::AsFd;
use std::path::Path;
use std::time::{Duration, Instant};

use rustix::fs::FlockOperation;
use rustix::io::Errno;

use crate::error::FileError;
use crate::trust::{Access, Trust, open_or_make};

/// The longest sleep between two tries.
const LONGEST_PAUSE: Duration = Duration::from_millis(5);

/// Who may hold the lock at the same time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Hold {
    Shared,
    Alone,
}

/// How long to wait for other holders.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wait {
    Never,
    For(Duration),
    /// The lock is gone as soon as its holder is.
    Forever,
}

/// Takes the lock of an opened file. It lasts until the last copy of the descriptor is closed, also
/// one that another process inherited. `false`: others held it for too long.
pub fn hold(file: impl AsFd, hold: Hold, wait: Wait) -> io::Result<bool> {
    let operation = match (hold, wait) {
        (Hold::Shared, Wait::Forever) => FlockOperation::LockShared,
        (Hold::Alone, Wait::Forever) => FlockOperation::LockExclusive,
        (Hold::Shared, _) => FlockOperation::NonBlockingLockShared,
        (Hold::Alone, _) => FlockOperation::NonBlockingLockExclusive,
    };
    let patience = if let Wait::For(patience) = wait { patience } else { Duration::ZERO };
    let give_up = Instant::now() + patience;
    let mut pause = Duration::from_micros(50);
    loop {
        match rustix::fs::flock(file.as_fd(), operation) {
            Ok(()) => return Ok(true),
            Err(Errno::INTR) => {}
            Err(Errno::WOULDBLOCK) if Instant::now() < give_up => {
                std::thread::sleep(pause);
                pause = (pause * 2).min(LONGEST_PAUSE);
            }
            Err(Errno::WOULDBLOCK) => return Ok(false),
            Err(error) => return Err(error.into()),
        }
    }
}

/// Holds the lock of a file until it is dropped.
///
/// It gives the lock back by name. Closing the descriptor is not enough: a process that another thread
/// starts at this moment has a copy of it until it executes its program.
#[derive(Debug)]
pub struct Lock<F: AsFd = File>(F);

impl<F: AsFd> Lock<F> {
    /// `None`: others held it for too long.
    pub fn take(file: F, how: Hold, wait: Wait) -> io::Result<Option<Lock<F>>> {
        Ok(hold(&file, how, wait)?.then(|| Lock(file)))
    }
}

impl<F: AsFd> Deref for Lock<F> {
    type Target = F;

    fn deref(&self) -> &F {
        &self.0
    }
}

impl<F: AsFd> Drop for Lock<F> {
    fn drop(&mut self) {
        // Closing the last descriptor does the same.
        let _ = rustix::fs::flock(self.0.as_fd(), FlockOperation::Unlock);
    }
}

/// Waits for the lock of a file that is there only to be locked, and makes it where it is missing.
pub fn lock(path: &Path, how: Hold) -> Result<Lock, FileError> {
    let file = lock_file(path)?;
    hold(&file, how, Wait::Forever).map_err(FileError::at(path))?;
    Ok(Lock(file))
}

/// The same, but `None` where others held it for too long.
pub fn lock_within(path: &Path, how: Hold, wait: Wait) -> Result<Option<Lock>, FileError> {
    Lock::take(lock_file(path)?, how, wait).map_err(FileError::at(path))
}

fn lock_file(path: &Path) -> Result<File, FileError> {
    open_or_make(path, Trust::Owned, Access::Change)
}
