//! Opens files that nobody else can have put in their place.

use std::fs::File;
use std::io::Read;
use std::path::Path;

use rustix::fs::{CWD, FileType, Mode, OFlags, SeekFrom, Stat};
use rustix::io::Errno;

use crate::error::FileError;

/// What must be true of a file or directory before it is used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Trust {
    /// It is this user's, and nobody else can read or write it: keys, tokens, decisions.
    Secret,
    /// It is this user's, and nobody else can write it: settings and records.
    Own,
    /// The same, or it is root's.
    OwnOrRoots,
    /// It is this user's, nobody can write it, and it has one name: compiled code.
    Sealed,
    /// It is this user's. Nothing depends on what is in it: locks.
    Owned,
}

/// What is done with an opened file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Access {
    Read,
    /// Also for reading. All writes go to the end.
    Append,
    /// Also for reading. Writes go where the caller says.
    Change,
}

impl Trust {
    /// What was found instead, if it cannot be trusted.
    fn fault(self, stat: &Stat, wanted: FileType) -> Option<&'static str> {
        let kind = FileType::from_raw_mode(stat.st_mode);
        let own = stat.st_uid == rustix::process::geteuid().as_raw()
            || (self == Trust::OwnOrRoots && stat.st_uid == 0);
        let forbidden = match self {
            Trust::Secret => 0o077,
            Trust::Own | Trust::OwnOrRoots => 0o022,
            Trust::Sealed => 0o222,
            Trust::Owned => 0,
        };
        if kind == FileType::Symlink {
            Some("a link")
        } else if kind != wanted {
            Some("no plain file or directory, as it should be")
        } else if !own {
            Some("another user's")
        } else if stat.st_mode & forbidden != 0 {
            Some("open to others")
        } else if self == Trust::Sealed && stat.st_nlink != 1 {
            Some("known by a second name")
        } else {
            None
        }
    }

    /// Refuses an opened file or directory that is not trusted.
    pub(crate) fn check(self, path: &Path, file: &File, wanted: FileType) -> Result<(), FileError> {
        let stat = rustix::fs::fstat(file).map_err(FileError::errno(path))?;
        match self.fault(&stat, wanted) {
            Some(found) => Err(self.refused(path, found)),
            None => Ok(()),
        }
    }

    pub(crate) fn refused(self, path: &Path, found: &'static str) -> FileError {
        FileError::Untrusted { path: path.to_owned(), found, trust: self }
    }

    pub(crate) fn rule(self, path: &Path) -> String {
        let path = path.display();
        match self {
            Trust::Secret => format!(
                "it must be yours, and nobody else may be able to open it (chmod go= {path})"
            ),
            Trust::Own | Trust::OwnOrRoots => format!(
                "it must be yours, and nobody else may be able to write it (chmod go-w {path})"
            ),
            Trust::Owned => "it must be a plain file of yours".to_owned(),
            Trust::Sealed => "it must be a read-only file of yours with one name".to_owned(),
        }
    }
}

/// Opens a plain file for reading.
pub fn open(path: &Path, trust: Trust) -> Result<File, FileError> {
    open_for(path, trust, Access::Read)
}

/// Opens a plain file that is there.
pub fn open_for(path: &Path, trust: Trust, access: Access) -> Result<File, FileError> {
    open_at(CWD, path, path, Demand { trust, access, missing: Missing::Refused })
}

/// Opens a plain file, and makes it first, for its owner only, where it is missing.
pub fn open_or_make(path: &Path, trust: Trust, access: Access) -> Result<File, FileError> {
    open_at(CWD, path, path, Demand { trust, access, missing: Missing::Made })
}

/// Makes a file that is not there yet, for its owner only, to be written piece by piece. Nobody may
/// read it before its writer says that it is whole.
pub fn new_file(path: &Path, access: Access) -> Result<File, FileError> {
    open_at(CWD, path, path, Demand { trust: Trust::Owned, access, missing: Missing::Demanded })
}

/// Reads a whole file of at most so many bytes.
pub fn read(path: &Path, trust: Trust, most: u64) -> Result<Vec<u8>, FileError> {
    read_whole(&open(path, trust)?, path, most)
}

/// Reads a file again that was opened before, from its beginning. Errors call it `path`.
pub fn read_opened(file: &File, path: &Path, most: u64) -> Result<Vec<u8>, FileError> {
    rustix::fs::seek(file, SeekFrom::Start(0)).map_err(FileError::errno(path))?;
    read_whole(file, path, most)
}

/// What a file is opened for, and what it must be.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Demand {
    pub(crate) trust: Trust,
    pub(crate) access: Access,
    pub(crate) missing: Missing,
}

/// What becomes of a file that is not there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Missing {
    Refused,
    Made,
    /// The file must not be there.
    Demanded,
}

/// Opens `name`, which errors call `path`.
pub(crate) fn open_at(
    directory: impl std::os::fd::AsFd,
    name: &Path,
    path: &Path,
    demand: Demand,
) -> Result<File, FileError> {
    let access = match demand.access {
        Access::Read => OFlags::RDONLY,
        Access::Append => OFlags::RDWR | OFlags::APPEND,
        Access::Change => OFlags::RDWR,
    };
    // Without waiting: a pipe without a writer never opens.
    let made = match demand.missing {
        Missing::Refused => OFlags::empty(),
        Missing::Made => OFlags::CREATE,
        Missing::Demanded => OFlags::CREATE | OFlags::EXCL,
    };
    let flags = OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    let private = Mode::from_raw_mode(0o600);
    let file = match rustix::fs::openat(directory, name, access | made | flags, private) {
        Ok(file) => File::from(file),
        Err(Errno::LOOP) => return Err(demand.trust.refused(path, "a link")),
        // A directory, a socket or a device, opened for writing.
        Err(Errno::ISDIR | Errno::NXIO) => return Err(demand.trust.refused(path, "no plain file")),
        Err(errno) => return Err(FileError::errno(path)(errno)),
    };
    demand.trust.check(path, &file, FileType::RegularFile)?;
    Ok(file)
}

pub(crate) fn read_whole(file: &File, path: &Path, most: u64) -> Result<Vec<u8>, FileError> {
    // Room for all of it at once, so that growing leaves no copy of a secret behind.
    let length = file.metadata().map_err(FileError::at(path))?.len().min(most);
    let room = usize::try_from(length).unwrap_or(0).saturating_add(1);
    let mut content = Vec::with_capacity(room);
    file.take(most.saturating_add(1)).read_to_end(&mut content).map_err(FileError::at(path))?;
    if content.len() as u64 > most {
        return Err(FileError::TooLarge { path: path.to_owned(), most });
    }
    Ok(content)
}
