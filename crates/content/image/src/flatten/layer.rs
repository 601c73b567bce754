//! Reads an unpacked layer, and nothing beside it.
//!
//! Invariant: every path is resolved by `openat2` beneath the layer's root without following
//! symlinks, and names within an open directory are never followed either.

use std::ffi::CString;
use std::fs::File;
use std::os::fd::OwnedFd;
use std::path::Path;

use rustix::fs::{AtFlags, CWD, Dir, FileType, Mode, OFlags, Stat, major, minor};
use rustix::io::Errno;

use crate::erofs::{FileKind, Inode};
use crate::unpack::{OPAQUE_ATTRIBUTE, open_beneath};

const READ_AND_SEARCH: u32 = 0o500;
const READ: u32 = 0o400;

/// Whose the layer's files are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Owners {
    /// Root unpacked it: the image's own.
    OfImage,
    /// An ordinary user did and owns everything, files that even their owner may not read included.
    Caller,
}

#[derive(Debug)]
pub(super) struct Layer {
    root: OwnedFd,
    pub(super) owners: Owners,
}

/// One open directory of a layer.
#[derive(Debug)]
pub(super) struct Directory {
    fd: OwnedFd,
    owners: Owners,
}

impl Layer {
    pub(super) fn open(path: &Path) -> Result<Layer, Errno> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let root = rustix::fs::openat(CWD, path, flags, Mode::empty())?;
        let as_root = rustix::process::geteuid().is_root();
        Ok(Layer { root, owners: if as_root { Owners::OfImage } else { Owners::Caller } })
    }

    pub(super) fn root_inode(&self) -> Result<Inode, Errno> {
        let stat = rustix::fs::fstat(&self.root)?;
        Ok(inode_of(FileKind::Directory, &stat, self.owners))
    }

    pub(super) fn open_directory(&self, path: &[u8]) -> Result<Directory, Errno> {
        let fd = open_beneath(&self.root, or_dot(path), OFlags::RDONLY | OFlags::DIRECTORY)?;
        Ok(Directory { fd, owners: self.owners })
    }

    /// Makes a directory readable for its owner, where the image has it otherwise.
    pub(super) fn lift_directory(&self, path: &[u8]) -> Result<Option<Lifted>, Errno> {
        if self.owners == Owners::OfImage || path.is_empty() {
            return Ok(None);
        }
        let (parent, name) = match path.iter().rposition(|byte| *byte == b'/') {
            Some(slash) => (&path[..slash], &path[slash + 1..]),
            None => (&b""[..], path),
        };
        let parent = open_beneath(&self.root, or_dot(parent), OFlags::PATH | OFlags::DIRECTORY)?;
        let stat = rustix::fs::statat(&parent, name, AtFlags::SYMLINK_NOFOLLOW)?;
        Lifted::new(parent, name, stat.st_mode, READ_AND_SEARCH)
    }
}

impl Directory {
    pub(super) fn names(&self) -> Result<Vec<CString>, Errno> {
        let mut names = Vec::new();
        for entry in Dir::read_from(&self.fd)? {
            let name = entry?.file_name().to_owned();
            if !matches!(name.as_bytes(), b"." | b"..") {
                names.push(name);
            }
        }
        Ok(names)
    }

    pub(super) fn stat(&self, name: &CString) -> Result<Stat, Errno> {
        rustix::fs::statat(&self.fd, name, AtFlags::SYMLINK_NOFOLLOW)
    }

    pub(super) fn is_opaque(&self) -> Result<bool, Errno> {
        let mut value = [0; 1];
        match rustix::fs::fgetxattr(&self.fd, OPAQUE_ATTRIBUTE, &mut value) {
            Ok(length) => Ok(value[..length] == *b"y"),
            // Anything longer is not the mark; a file system without attributes has none.
            Err(Errno::NODATA | Errno::RANGE | Errno::NOTSUP) => Ok(false),
            Err(errno) => Err(errno),
        }
    }

    pub(super) fn open_file(&self, name: &[u8], mode: u32) -> Result<File, Errno> {
        let _lifted = match self.owners {
            Owners::OfImage => None,
            Owners::Caller => {
                let parent = rustix::io::fcntl_dupfd_cloexec(&self.fd, 0)?;
                Lifted::new(parent, name, mode, READ)?
            }
        };
        // Without blocking: should the name be a pipe after all, an error must come of it.
        let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY;
        Ok(File::from(open_beneath(&self.fd, name, flags)?))
    }

    pub(super) fn read_link(&self, name: &[u8]) -> Result<Vec<u8>, Errno> {
        Ok(rustix::fs::readlinkat(&self.fd, name, Vec::new())?.into_bytes())
    }
}

/// An owner's right to read something, given for as long as this lives. Only an ordinary user needs
/// it, and whoever converts keeps other conversions away meanwhile (see `Store::root_image`).
#[derive(Debug)]
pub(super) struct Lifted {
    parent: OwnedFd,
    name: Vec<u8>,
    mode: Mode,
}

impl Lifted {
    fn new(parent: OwnedFd, name: &[u8], mode: u32, needed: u32) -> Result<Option<Lifted>, Errno> {
        if mode & needed == needed {
            return Ok(None);
        }
        let lifted = Lifted { parent, name: name.to_vec(), mode: Mode::from_raw_mode(mode) };
        lifted.set(Mode::from_raw_mode(mode | needed))?;
        Ok(Some(lifted))
    }

    fn set(&self, mode: Mode) -> Result<(), Errno> {
        rustix::fs::chmodat(&self.parent, self.name.as_slice(), mode, AtFlags::empty())
    }
}

impl Drop for Lifted {
    fn drop(&mut self) {
        // Should it fail, the file's owner can read it: no harm, and nothing more can be done.
        let _ = self.set(self.mode);
    }
}

/// What a layer has under a name: nothing, if it is a whiteout; and its number if it has other names.
pub(super) fn entry_of(stat: &Stat, owners: Owners) -> (Option<Inode>, Option<u64>) {
    let (major, minor) = (major(stat.st_rdev), minor(stat.st_rdev));
    let kind = match FileType::from_raw_mode(stat.st_mode) {
        FileType::CharacterDevice if (major, minor) == (0, 0) => return (None, None),
        FileType::CharacterDevice => FileKind::CharacterDevice { major, minor },
        FileType::BlockDevice => FileKind::BlockDevice { major, minor },
        FileType::Directory => FileKind::Directory,
        FileType::Symlink => FileKind::Symlink,
        FileType::Fifo => FileKind::Fifo,
        FileType::Socket => FileKind::Socket,
        FileType::RegularFile | FileType::Unknown => FileKind::File,
    };
    let linked_as = (kind != FileKind::Directory && stat.st_nlink > 1).then_some(stat.st_ino);
    (Some(inode_of(kind, stat, owners)), linked_as)
}

fn inode_of(kind: FileKind, stat: &Stat, owners: Owners) -> Inode {
    let (uid, gid) = match owners {
        Owners::OfImage => (stat.st_uid, stat.st_gid),
        Owners::Caller => (0, 0),
    };
    // Of anything else the size says nothing about content.
    let has_content = matches!(kind, FileKind::File | FileKind::Symlink);
    Inode {
        kind,
        mode: stat.st_mode & 0o7777,
        uid,
        gid,
        mtime: stat.st_mtime,
        mtime_nanoseconds: u32::try_from(stat.st_mtime_nsec).unwrap_or(0),
        size: if has_content { u64::try_from(stat.st_size).unwrap_or(0) } else { 0 },
    }
}

fn or_dot(path: &[u8]) -> &[u8] {
    if path.is_empty() { b"." } else { path }
}
