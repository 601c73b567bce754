//! Makes files beneath one directory, and nowhere else.
//!
//! Invariant: every path is resolved by `openat2` beneath the layer's root without following
//! symlinks, and the last part of a path is only ever used with calls that do not follow it either.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::OwnedFd;
use std::path::Path;

use ringwall_safekeeping::beneath::{self, Mounts};
use rustix::fs::{
    AtFlags, CWD, FileType, Gid, Mode, OFlags, Stat, Timespec, Timestamps, Uid, XattrFlags,
};
use rustix::io::Errno;

use crate::budget::{Bomb, Meter};
use crate::limits::{BLOCK_BYTES, MAX_ID};
use crate::tar_stream::Entry;
use crate::unpack::name::EntryPath;
use crate::unpack::{PlaceError, Refusal, shown};

pub(crate) const OPAQUE_ATTRIBUTE: &str = "user.overlay.opaque";
const IMPLIED_DIRECTORY_MODE: u32 = 0o755;
/// Directories get their final mode and time at the end, so their names are kept until then.
const MAX_DIRECTORY_NAME_BYTES: u64 = 128 << 20;
const COPY_BUFFER_BYTES: usize = 128 * 1024;

/// Who will own the files.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Ownership {
    /// Root keeps the image's own ids; a ring sees them through an id map.
    FromImage,
    /// An ordinary user owns everything, and nothing is changed.
    Caller,
}

/// An entry's metadata, made harmless.
#[derive(Debug, Clone, Copy)]
pub(super) struct Metadata {
    mode: u32,
    owner: Option<(u32, u32)>,
    mtime: u64,
}

impl Metadata {
    pub(super) fn of(entry: &Entry, ownership: Ownership) -> Result<Metadata, Refusal> {
        let owner = match ownership {
            Ownership::Caller => None,
            Ownership::FromImage => Some((checked_id(entry.uid)?, checked_id(entry.gid)?)),
        };
        Ok(Metadata { mode: entry.mode, owner, mtime: entry.mtime })
    }

    /// For a directory that the archive only mentions on the way to something else.
    fn implied(ownership: Ownership) -> Metadata {
        let owner = (ownership == Ownership::FromImage).then_some((0, 0));
        Metadata { mode: IMPLIED_DIRECTORY_MODE, owner, mtime: 0 }
    }

    /// Set-id bits never survive; neither does a sticky bit on a file.
    fn file_mode(&self) -> Mode {
        Mode::from_bits_truncate(self.mode & 0o777)
    }

    fn directory_mode(&self) -> Mode {
        Mode::from_bits_truncate(self.mode & 0o1777)
    }

    fn owner_ids(&self) -> Option<(Option<Uid>, Option<Gid>)> {
        self.owner.map(|(uid, gid)| (Some(Uid::from_raw(uid)), Some(Gid::from_raw(gid))))
    }

    fn times(&self) -> Timestamps {
        // Far beyond what any file system stores; the kernel clamps further.
        let seconds = i64::try_from(self.mtime).unwrap_or(0).min(1 << 40);
        let time = Timespec { tv_sec: seconds, tv_nsec: 0 };
        Timestamps { last_access: time, last_modification: time }
    }
}

fn checked_id(id: u64) -> Result<u32, Refusal> {
    match u32::try_from(id) {
        Ok(small) if id <= MAX_ID => Ok(small),
        _ => Err(Refusal::OwnerTooLarge(id)),
    }
}

/// A layer's directory while it is being filled.
pub(super) struct Tree<'a> {
    root: OwnedFd,
    ownership: Ownership,
    entries: u64,
    meter: &'a Meter<'a>,
    /// Archives list one directory's files in a row: keep the last parent open.
    last_parent: Option<(Vec<u8>, OwnedFd)>,
    directories: BTreeMap<Vec<u8>, Metadata>,
    directory_name_bytes: u64,
    buffer: Vec<u8>,
}

/// What was in the way of a new entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Cleared {
    Nothing,
    Whiteout,
}

impl<'a> Tree<'a> {
    pub(super) fn open(path: &Path, meter: &'a Meter<'a>) -> io::Result<Tree<'a>> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let root = rustix::fs::openat(CWD, path, flags, Mode::empty())?;
        let ownership = if rustix::process::geteuid().is_root() {
            Ownership::FromImage
        } else {
            Ownership::Caller
        };
        let directories = BTreeMap::from([(Vec::new(), Metadata::implied(ownership))]);
        Ok(Tree {
            root,
            ownership,
            entries: 0,
            meter,
            last_parent: None,
            directories,
            directory_name_bytes: 0,
            buffer: vec![0; COPY_BUFFER_BYTES],
        })
    }

    pub(super) fn ownership(&self) -> Ownership {
        self.ownership
    }

    pub(super) fn entries(&self) -> u64 {
        self.entries
    }

    pub(super) fn directory(
        &mut self,
        path: &EntryPath,
        metadata: Metadata,
    ) -> Result<(), PlaceError> {
        self.count_entry(BLOCK_BYTES)?;
        if !path.is_root() {
            let parent = self.open_parent(path)?;
            let name = path.name();
            match make_directory(&parent, name) {
                Err(Errno::EXIST) => {
                    if !is_directory(&stat(&parent, name)?) {
                        let cleared = self.clear(&parent, path)?;
                        make_directory(&parent, name)?;
                        // What a whiteout hid stays hidden when a directory takes its place.
                        if cleared == Cleared::Whiteout {
                            mark_opaque(&parent, name)?;
                        }
                    }
                }
                other => other?,
            }
            self.keep_parent(path, parent);
        }
        self.remember_directory(path.bytes(), metadata)
    }

    pub(super) fn file(
        &mut self,
        path: &EntryPath,
        metadata: Metadata,
        content: &mut impl Read,
    ) -> Result<(), PlaceError> {
        self.count_entry(BLOCK_BYTES)?;
        let parent = self.open_parent(path)?;
        let flags =
            OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let create = |parent: &OwnedFd| {
            rustix::fs::openat(parent, path.name(), flags, Mode::RUSR | Mode::WUSR)
        };
        let mut file = File::from(match create(&parent) {
            Err(Errno::EXIST) => {
                self.clear(&parent, path)?;
                create(&parent)?
            }
            other => other?,
        });
        loop {
            let count = match content.read(&mut self.buffer) {
                Ok(0) => break,
                Ok(count) => count,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => return Err(PlaceError::Read(error)),
            };
            file.write_all(&self.buffer[..count]).map_err(PlaceError::Write)?;
        }
        if let Some((uid, gid)) = metadata.owner_ids() {
            rustix::fs::fchown(&file, uid, gid)?;
        }
        rustix::fs::fchmod(&file, metadata.file_mode())?;
        rustix::fs::futimens(&file, &metadata.times())?;
        self.keep_parent(path, parent);
        Ok(())
    }

    pub(super) fn symlink(
        &mut self,
        path: &EntryPath,
        target: &[u8],
        metadata: Metadata,
    ) -> Result<(), PlaceError> {
        self.make(path, |parent, name| rustix::fs::symlinkat(target, parent, name))?;
        self.set_own_metadata(path, metadata)
    }

    pub(super) fn fifo(&mut self, path: &EntryPath, metadata: Metadata) -> Result<(), PlaceError> {
        let mode = metadata.file_mode();
        self.make(path, |parent, name| rustix::fs::mknodat(parent, name, FileType::Fifo, mode, 0))?;
        self.set_own_metadata(path, metadata)
    }

    /// Links `path` to a file of the same layer that was unpacked earlier.
    pub(super) fn hard_link(
        &mut self,
        path: &EntryPath,
        target: &EntryPath,
    ) -> Result<(), PlaceError> {
        let refused = || Refusal::HardLinkTarget(shown(target.bytes()));
        if path == target || target.is_root() {
            return Err(refused().into());
        }
        let target_parent = self.resolve(target.parent()).map_err(|_| refused())?;
        let found = stat(&target_parent, target.name()).map_err(|_| refused())?;
        if !matches!(file_type(&found), FileType::RegularFile | FileType::Symlink) {
            return Err(refused().into());
        }
        // Without AT_SYMLINK_FOLLOW a symlink is linked itself, not what it points to.
        self.make(path, |parent, name| {
            rustix::fs::linkat(&target_parent, target.name(), parent, name, AtFlags::empty())
        })
    }

    /// Hides `path` of the layers below.
    pub(super) fn whiteout(&mut self, path: &EntryPath) -> Result<(), PlaceError> {
        self.count_entry(0)?;
        let parent = self.open_parent(path)?;
        match make_whiteout(&parent, path.name()) {
            // A whiteout is about lower layers only: what this layer has at the same path stays,
            // and nothing of the lower layers may shine through it.
            Err(Errno::EXIST) if is_directory(&stat(&parent, path.name())?) => {
                mark_opaque(&parent, path.name())?;
            }
            Err(Errno::EXIST) => {}
            other => other?,
        }
        self.keep_parent(path, parent);
        Ok(())
    }

    /// Hides whatever the layers below have in the directory that holds `marker`.
    pub(super) fn opaque(&mut self, marker: &EntryPath) -> Result<(), PlaceError> {
        self.count_entry(0)?;
        let parent = self.open_parent(marker)?;
        mark_opaque(&parent, b".")?;
        self.keep_parent(marker, parent);
        Ok(())
    }

    /// Gives directories their final owner, mode and time. Deepest first: an ordinary user could
    /// not get past a directory whose mode forbids it.
    pub(super) fn finish(&mut self) -> Result<(), PlaceError> {
        self.last_parent = None;
        for (path, metadata) in std::mem::take(&mut self.directories).into_iter().rev() {
            let flags = OFlags::RDONLY | OFlags::DIRECTORY;
            let directory = match self.resolve_with(&path, flags) {
                // Replaced by something else later in the archive.
                Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => continue,
                other => other?,
            };
            if let Some((uid, gid)) = metadata.owner_ids() {
                rustix::fs::fchown(&directory, uid, gid)?;
            }
            let mut mode = metadata.directory_mode();
            if path.is_empty() {
                // The finished layer is moved into place, which takes write access to it.
                mode |= Mode::RWXU;
            }
            rustix::fs::fchmod(&directory, mode)?;
            rustix::fs::futimens(&directory, &metadata.times())?;
        }
        Ok(())
    }

    /// Makes something that needs no open file, clearing the way where it must.
    fn make(
        &mut self,
        path: &EntryPath,
        make: impl Fn(&OwnedFd, &[u8]) -> rustix::io::Result<()>,
    ) -> Result<(), PlaceError> {
        self.count_entry(0)?;
        let parent = self.open_parent(path)?;
        match make(&parent, path.name()) {
            Err(Errno::EXIST) => {
                self.clear(&parent, path)?;
                make(&parent, path.name())?;
            }
            other => other?,
        }
        self.keep_parent(path, parent);
        Ok(())
    }

    /// Sets what can be set without opening, or following, the entry itself.
    fn set_own_metadata(&mut self, path: &EntryPath, metadata: Metadata) -> Result<(), PlaceError> {
        let parent = self.open_parent(path)?;
        let name = path.name();
        if let Some((uid, gid)) = metadata.owner_ids() {
            rustix::fs::chownat(&parent, name, uid, gid, AtFlags::SYMLINK_NOFOLLOW)?;
        }
        rustix::fs::utimensat(&parent, name, &metadata.times(), AtFlags::SYMLINK_NOFOLLOW)?;
        self.keep_parent(path, parent);
        Ok(())
    }

    /// Removes what is at `path`, unless it is a directory with something in it.
    fn clear(&mut self, parent: &OwnedFd, path: &EntryPath) -> Result<Cleared, PlaceError> {
        let found = stat(parent, path.name())?;
        if is_directory(&found) {
            match rustix::fs::unlinkat(parent, path.name(), AtFlags::REMOVEDIR) {
                Err(Errno::NOTEMPTY | Errno::EXIST) => {
                    return Err(Refusal::ReplacesDirectory.into());
                }
                other => other?,
            }
            self.directories.remove(path.bytes());
        } else {
            rustix::fs::unlinkat(parent, path.name(), AtFlags::empty())?;
        }
        Ok(if is_whiteout(&found) { Cleared::Whiteout } else { Cleared::Nothing })
    }

    /// Opens the directory that holds `path`, making it where the archive did not.
    fn open_parent(&mut self, path: &EntryPath) -> Result<OwnedFd, PlaceError> {
        let wanted = path.parent();
        if let Some((open, directory)) = self.last_parent.take()
            && open == wanted
        {
            return Ok(directory);
        }
        match self.resolve(wanted) {
            Ok(directory) => Ok(directory),
            Err(Errno::LOOP) => Err(Refusal::ThroughSymlink.into()),
            Err(Errno::NOENT | Errno::NOTDIR) => self.make_parents(wanted),
            Err(errno) => Err(errno.into()),
        }
    }

    fn keep_parent(&mut self, path: &EntryPath, directory: OwnedFd) {
        self.last_parent = Some((path.parent().to_vec(), directory));
    }

    fn make_parents(&mut self, path: &[u8]) -> Result<OwnedFd, PlaceError> {
        let mut directory = self.resolve(b"")?;
        let mut walked = 0;
        for part in path.split(|byte| *byte == b'/') {
            walked += part.len() + usize::from(walked > 0);
            let next = match open_beneath(&directory, part, OFlags::PATH | OFlags::DIRECTORY) {
                Err(Errno::LOOP) => return Err(Refusal::ThroughSymlink.into()),
                Err(Errno::NOENT) => None,
                Err(Errno::NOTDIR) if is_whiteout(&stat(&directory, part)?) => {
                    rustix::fs::unlinkat(&directory, part, AtFlags::empty())?;
                    make_directory(&directory, part)?;
                    mark_opaque(&directory, part)?;
                    None
                }
                Err(Errno::NOTDIR) => return Err(Refusal::ParentNotDirectory.into()),
                other => Some(other?),
            };
            directory = match next {
                Some(next) => next,
                None => {
                    self.count_entry(BLOCK_BYTES)?;
                    match make_directory(&directory, part) {
                        Err(Errno::EXIST) => {}
                        other => other?,
                    }
                    self.remember_directory(&path[..walked], Metadata::implied(self.ownership))?;
                    open_beneath(&directory, part, OFlags::PATH | OFlags::DIRECTORY)?
                }
            };
        }
        Ok(directory)
    }

    fn resolve(&self, path: &[u8]) -> rustix::io::Result<OwnedFd> {
        self.resolve_with(path, OFlags::PATH | OFlags::DIRECTORY)
    }

    fn resolve_with(&self, path: &[u8], flags: OFlags) -> rustix::io::Result<OwnedFd> {
        open_beneath(&self.root, if path.is_empty() { b"." } else { path }, flags)
    }

    fn count_entry(&mut self, bytes: u64) -> Result<(), PlaceError> {
        self.entries += 1;
        self.meter.count_entry(bytes).map_err(PlaceError::Bomb)
    }

    fn remember_directory(&mut self, path: &[u8], metadata: Metadata) -> Result<(), PlaceError> {
        if self.directories.insert(path.to_vec(), metadata).is_none() {
            self.directory_name_bytes += path.len() as u64;
        }
        if self.directory_name_bytes > MAX_DIRECTORY_NAME_BYTES {
            return Err(PlaceError::Bomb(Bomb::Names { max: MAX_DIRECTORY_NAME_BYTES }));
        }
        Ok(())
    }
}

pub(crate) fn open_beneath(
    root: &OwnedFd,
    path: &[u8],
    flags: OFlags,
) -> rustix::io::Result<OwnedFd> {
    beneath::open(root, path, flags, Mounts::Entered)
}

/// Private until [`Tree::finish`]: as an ordinary user we must be able to fill it first.
fn make_directory(parent: &OwnedFd, name: &[u8]) -> rustix::io::Result<()> {
    rustix::fs::mkdirat(parent, name, Mode::RWXU)
}

fn make_whiteout(parent: &OwnedFd, name: &[u8]) -> rustix::io::Result<()> {
    rustix::fs::mknodat(parent, name, FileType::CharacterDevice, Mode::empty(), 0)
}

fn mark_opaque(parent: &OwnedFd, name: &[u8]) -> rustix::io::Result<()> {
    let directory = open_beneath(parent, name, OFlags::RDONLY | OFlags::DIRECTORY)?;
    rustix::fs::fsetxattr(&directory, OPAQUE_ATTRIBUTE, b"y", XattrFlags::empty())
}

fn stat(parent: &OwnedFd, name: &[u8]) -> rustix::io::Result<Stat> {
    rustix::fs::statat(parent, name, AtFlags::SYMLINK_NOFOLLOW)
}

fn file_type(stat: &Stat) -> FileType {
    FileType::from_raw_mode(stat.st_mode)
}

fn is_directory(stat: &Stat) -> bool {
    file_type(stat) == FileType::Directory
}

fn is_whiteout(stat: &Stat) -> bool {
    file_type(stat) == FileType::CharacterDevice && stat.st_rdev == 0
}
