//! File operations, with the rights of the ring's own user and in the ring's own view.
//!
//! Large ones are tasks that advance in small steps between two polls. Jobs of the same ring may
//! change everything under our hands: that can make an operation fail, not misbehave.

mod content;
mod list;
mod path;
mod remove;

pub(crate) use content::{Reader, Writer};
pub(crate) use list::Listing;
pub(crate) use remove::Removal;

use ringwall_wire::{ErrorCode, FileKind, FileStat, RemoteError};
use rustix::fs::{AtFlags, CWD, FileType, Mode, Stat};
use rustix::io::Errno;

use crate::error::{failed, failed_as, show};
use path::absolute;

/// What became of one step of a task.
#[derive(Debug)]
pub(crate) enum Progress {
    /// More could be done at once.
    Again,
    /// Nothing can be done before the engine has taken or sent something.
    Waiting,
    Finished(Result<(), RemoteError>),
}

pub(crate) fn stat(path: &[u8]) -> Result<FileStat, RemoteError> {
    let found = rustix::fs::statat(CWD, absolute(path)?, AtFlags::SYMLINK_NOFOLLOW);
    found.map(|stat| file_stat(&stat)).map_err(|e| failed(&format!("cannot see {}", show(path)), e))
}

pub(crate) fn make_dir(path: &[u8], mode: u32, parents: bool) -> Result<(), RemoteError> {
    let whole = absolute(path)?;
    let failure = |errno| failed(&format!("cannot make directory {}", show(path)), errno);
    if parents {
        let bytes = whole.as_bytes();
        let ends = (1..bytes.len()).filter(|at| bytes[*at] == b'/');
        for end in ends {
            // Whatever is wrong with a parent, the last one will tell.
            let _ = rustix::fs::mkdirat(CWD, &bytes[..end], Mode::from_raw_mode(0o755));
        }
    }
    match rustix::fs::mkdirat(CWD, &whole, permissions(mode)) {
        Err(Errno::EXIST) if parents && is_directory(&whole) => Ok(()),
        result => result.map_err(failure),
    }
}

pub(crate) fn rename(from: &[u8], to: &[u8]) -> Result<(), RemoteError> {
    rustix::fs::renameat(CWD, absolute(from)?, CWD, absolute(to)?)
        .map_err(|errno| failed(&format!("cannot rename {} to {}", show(from), show(to)), errno))
}

/// No set-user-id, set-group-id or sticky bits from outside.
fn permissions(mode: u32) -> Mode {
    Mode::from_raw_mode(mode & 0o777)
}

fn is_directory(path: &std::ffi::CStr) -> bool {
    rustix::fs::stat(path).is_ok_and(|s| FileType::from_raw_mode(s.st_mode) == FileType::Directory)
}

fn not_a_file(path: &[u8]) -> RemoteError {
    let doing = format!("{} is not an ordinary file", show(path));
    failed_as(ErrorCode::Invalid, &doing, Errno::INVAL)
}

fn file_stat(stat: &Stat) -> FileStat {
    let kind = match FileType::from_raw_mode(stat.st_mode) {
        FileType::RegularFile => FileKind::File,
        FileType::Directory => FileKind::Directory,
        FileType::Symlink => FileKind::Symlink,
        _ => FileKind::Other,
    };
    FileStat {
        kind,
        size: u64::try_from(stat.st_size).unwrap_or(0),
        mode: stat.st_mode & 0o7777,
        uid: stat.st_uid,
        gid: stat.st_gid,
        modified_seconds: stat.st_mtime,
    }
}
