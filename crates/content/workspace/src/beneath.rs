//! Opening, reading and listing below a directory descriptor, by the kernel's own rules.
//!
//! Invariant: nothing here follows a symbolic link, leaves the directory or crosses into another
//! mount; the kernel refuses it inside `openat2`, so there is no moment to race.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::Path;

use ringwall_safekeeping::beneath::{self, Mounts};
use rustix::fs::{self, FileType, Mode, OFlags, Stat};
use rustix::io::{Errno, Result};

use crate::RelPath;

/// More than this and the target cannot have come from a Linux file system.
const MAX_LINK_BYTES: usize = 4096;

fn open_beneath(dir: impl AsFd, path: &Path, flags: OFlags) -> Result<OwnedFd> {
    beneath::open(dir, path, flags | OFlags::NOFOLLOW, Mounts::Refused)
}

/// Set on a directory of an upper layer that stands in place of those below it.
pub(crate) const OPAQUE: &str = "user.overlay.opaque";

/// A directory by its whole path, which has no symbolic link in it: `ELOOP` if it has.
pub(crate) fn open_root(path: &Path) -> Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW;
    beneath::open_without_links(path, flags)
}

/// The directory at `path`, for listing and for `*at` calls; `None` is `root` itself.
pub(crate) fn open_dir(root: impl AsFd, path: Option<&RelPath>) -> Result<OwnedFd> {
    let path = path.map_or(Path::new("."), RelPath::as_path);
    open_beneath(root, path, OFlags::RDONLY | OFlags::DIRECTORY)
}

/// The directory at `path` for `*at` calls only: works without permission to list it.
pub(crate) fn open_dir_handle(root: impl AsFd, path: Option<&RelPath>) -> Result<OwnedFd> {
    let path = path.map_or(Path::new("."), RelPath::as_path);
    open_beneath(root, path, OFlags::PATH | OFlags::DIRECTORY)
}

/// Whatever is at `path`, a symbolic link included, without opening it: no device wakes up, no
/// FIFO blocks.
pub(crate) fn open_handle(dir: impl AsFd, path: &Path) -> Result<OwnedFd> {
    open_beneath(dir, path, OFlags::PATH)
}

/// A regular file for reading. Anything else at `path` is `EINVAL`.
pub(crate) fn open_file(dir: impl AsFd, path: &Path) -> Result<(File, Stat)> {
    // A look first, so that a device is not opened by accident; a look after, because the name
    // may lead elsewhere by then.
    let seen = fs::fstat(open_handle(&dir, path)?)?;
    if FileType::from_raw_mode(seen.st_mode) != FileType::RegularFile {
        return Err(Errno::INVAL);
    }
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY;
    let file = open_beneath(dir, path, flags)?;
    let stat = fs::fstat(&file)?;
    if !same_inode(&seen, &stat) {
        return Err(Errno::AGAIN);
    }
    Ok((File::from(file), stat))
}

/// The metadata of `path`, or `None` if there is nothing, also when a parent is missing or no directory.
pub(crate) fn stat(dir: impl AsFd, path: &Path) -> Result<Option<Stat>> {
    match open_handle(dir, path) {
        Ok(handle) => fs::fstat(handle).map(Some),
        Err(Errno::NOENT | Errno::NOTDIR) => Ok(None),
        Err(error) => Err(error),
    }
}

/// The target of the symbolic link at `path`.
pub(crate) fn read_link(dir: impl AsFd, path: &Path) -> Result<Vec<u8>> {
    let handle = open_handle(dir, path)?;
    let target = fs::readlinkat(&handle, "", Vec::with_capacity(256))?.into_bytes();
    if target.len() > MAX_LINK_BYTES { Err(Errno::NAMETOOLONG) } else { Ok(target) }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Entry {
    pub(crate) name: OsString,
    /// `Unknown` on file systems that do not tell.
    pub(crate) kind: FileType,
}

/// The entries of a directory in order of name, or `None` if there are more than `max`.
pub(crate) fn list(dir: impl AsFd, max: u64) -> Result<Option<Vec<Entry>>> {
    let mut entries = Vec::new();
    for entry in fs::Dir::read_from(dir)? {
        let entry = entry?;
        let name = entry.file_name().to_bytes();
        if name == b"." || name == b".." {
            continue;
        }
        if entries.len() as u64 >= max {
            return Ok(None);
        }
        // A broken or hostile (FUSE) file system could hand out a name with a slash in it.
        if name.is_empty() || name.contains(&b'/') {
            return Err(Errno::IO);
        }
        let name = OsStr::from_bytes(name).to_owned();
        entries.push(Entry { name, kind: entry.file_type() });
    }
    entries.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(Some(entries))
}

/// An extended attribute of an open file or directory; `None` if it has none of that name.
pub(crate) fn xattr(file: impl AsFd, name: &str) -> Result<Option<Vec<u8>>> {
    let mut value = [0u8; 64];
    match fs::fgetxattr(file, name, &mut value[..]) {
        Ok(length) => Ok(Some(value[..length].to_vec())),
        Err(Errno::NODATA | Errno::NOTSUP) => Ok(None),
        // Longer than anything that overlayfs writes: there, and not one of its values.
        Err(Errno::RANGE) => Ok(Some(vec![0])),
        Err(error) => Err(error),
    }
}

/// Changes the mode of exactly the inode behind a handle, whatever its name leads to by now.
pub(crate) fn chmod_handle(handle: impl AsFd, mode: u32) -> Result<()> {
    // fchmod refuses O_PATH handles; the magic link is the documented way round (open(2)).
    let link = format!("/proc/self/fd/{}", handle.as_fd().as_raw_fd());
    fs::chmod(link, Mode::from_raw_mode(mode))
}

pub(crate) fn same_inode(a: &Stat, b: &Stat) -> bool {
    (a.st_dev, a.st_ino) == (b.st_dev, b.st_ino)
}

/// Whether the file was neither written to nor replaced between two looks at it.
pub(crate) fn unchanged(a: &Stat, b: &Stat) -> bool {
    same_inode(a, b)
        && (a.st_mode, a.st_size) == (b.st_mode, b.st_size)
        && (a.st_mtime, a.st_mtime_nsec) == (b.st_mtime, b.st_mtime_nsec)
}

pub(crate) fn os_bytes(bytes: &[u8]) -> OsString {
    OsString::from_vec(bytes.to_vec())
}
