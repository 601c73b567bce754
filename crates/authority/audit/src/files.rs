//! Opens the log's files so that nobody else can have put something in their place.

use std::fs::File;
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::Path;
use std::time::{Duration, Instant};

use rustix::fs::{FileType, FlockOperation, Mode, OFlags};
use rustix::io::Errno;

/// How long a writer waits for the others.
const LOCK_PATIENCE: Duration = Duration::from_secs(10);

#[derive(Debug, thiserror::Error)]
pub enum FileError {
    #[error("{path} cannot be opened")]
    Open { path: String, source: io::Error },
    #[error(
        "{path} is {found}; it must be {wanted} of the user who runs Ringwall, which others can neither read nor write"
    )]
    Unsafe { path: String, found: &'static str, wanted: &'static str },
}

/// Opens a directory, and makes it first where it is missing.
pub(crate) fn directory(path: &Path) -> Result<File, FileError> {
    let failed = |errno: Errno| open_error(path, errno);
    std::fs::DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(path)
        .map_err(|source| FileError::Open { path: path.display().to_string(), source })?;
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let directory = rustix::fs::open(path, flags, Mode::empty()).map_err(failed)?;
    let directory = File::from(directory);
    check(path, &directory, FileType::Directory)?;
    Ok(directory)
}

/// Opens a file that is there; `None` where it is not.
pub(crate) fn existing(path: &Path, flags: OFlags) -> Result<Option<File>, FileError> {
    match rustix::fs::open(path, flags | OFlags::NOFOLLOW | OFlags::CLOEXEC, Mode::empty()) {
        Ok(file) => {
            let file = File::from(file);
            check(path, &file, FileType::RegularFile)?;
            Ok(Some(file))
        }
        Err(Errno::NOENT) => Ok(None),
        Err(errno) => Err(open_error(path, errno)),
    }
}

/// Makes a file that is not there yet. `None` when somebody else was quicker.
pub(crate) fn fresh(path: &Path, mode: u32) -> Result<Option<File>, FileError> {
    let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    match rustix::fs::open(path, flags, Mode::from_raw_mode(mode)) {
        Ok(file) => Ok(Some(File::from(file))),
        Err(Errno::EXIST) => Ok(None),
        Err(errno) => Err(open_error(path, errno)),
    }
}

fn check(path: &Path, file: &File, wanted: FileType) -> Result<(), FileError> {
    let stat = rustix::fs::fstat(file).map_err(|errno| open_error(path, errno))?;
    let found = if FileType::from_raw_mode(stat.st_mode) != wanted {
        "something else"
    } else if stat.st_uid != rustix::process::geteuid().as_raw() {
        "another user's"
    } else if stat.st_mode & 0o077 != 0 {
        "open to others"
    } else {
        return Ok(());
    };
    let wanted = if wanted == FileType::Directory { "a directory" } else { "a file" };
    Err(FileError::Unsafe { path: path.display().to_string(), found, wanted })
}

pub(crate) fn open_error(path: &Path, errno: Errno) -> FileError {
    FileError::Open { path: path.display().to_string(), source: errno.into() }
}

/// Holds the lock of the log for as long as it lives.
#[derive(Debug)]
pub(crate) struct Locked<'a>(&'a File);

impl<'a> Locked<'a> {
    /// Waits for other writers, but not for ever: one may have been stopped. `None` says so.
    pub(crate) fn new(file: &'a File) -> io::Result<Option<Locked<'a>>> {
        Locked::by(file, FlockOperation::NonBlockingLockExclusive)
    }

    /// For those who only read: no writer is in the middle of a record.
    pub(crate) fn to_read(file: &'a File) -> io::Result<Option<Locked<'a>>> {
        Locked::by(file, FlockOperation::NonBlockingLockShared)
    }

    fn by(file: &'a File, operation: FlockOperation) -> io::Result<Option<Locked<'a>>> {
        let give_up = Instant::now() + LOCK_PATIENCE;
        let mut pause = Duration::from_micros(50);
        loop {
            match rustix::fs::flock(file, operation) {
                Ok(()) => return Ok(Some(Locked(file))),
                Err(Errno::WOULDBLOCK | Errno::INTR) if Instant::now() < give_up => {
                    std::thread::sleep(pause);
                    pause = (pause * 2).min(Duration::from_millis(2));
                }
                Err(Errno::WOULDBLOCK | Errno::INTR) => return Ok(None),
                Err(errno) => return Err(errno.into()),
            }
        }
    }
}

impl Drop for Locked<'_> {
    fn drop(&mut self) {
        // Closing the file would do it as well.
        let _ = rustix::fs::flock(self.0, FlockOperation::Unlock);
    }
}
