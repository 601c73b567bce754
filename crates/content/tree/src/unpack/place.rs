//! Makes entries beneath one directory, and nowhere else.
//!
//! Invariant: the name of a new entry is one part, used with calls that make something new and
//! follow nothing, in a directory that this stream made itself. A directory gets its owner, mode
//! and time when it is left: an ordinary user could not fill one whose mode forbids it, and filling
//! it changes its time.

use std::fs::File;
use std::io::Write;
use std::os::fd::OwnedFd;

use rustix::fs::{AtFlags, FileType, Gid, Mode, OFlags, Timespec, Timestamps, Uid, XattrFlags};
use rustix::io::Errno;

use super::{UnpackError, UnpackOptions};
use crate::beneath;
use crate::entry::{Time, shown, split};

/// Far beyond what any file system stores, and far from where sums of times overflow.
const MAX_SECONDS: i64 = 1 << 40;

#[derive(Debug)]
pub(super) struct Place {
    root: OwnedFd,
    options: UnpackOptions,
    /// The directory being filled, its path, and what it and those above it will become.
    current: OwnedFd,
    path: Vec<u8>,
    pending: Vec<Final>,
    file: Option<Filling>,
}

#[derive(Debug, Clone, Copy)]
struct Final {
    mode: u32,
    mtime: Time,
}

/// A file whose content has not all come.
#[derive(Debug)]
struct Filling {
    path: Vec<u8>,
    file: File,
    left: u64,
    becomes: Final,
}

impl Place {
    pub(super) fn new(root: OwnedFd, options: UnpackOptions) -> Result<Place, UnpackError> {
        let current = beneath::open_dir(&root, b"")
            .map_err(|errno| UnpackError::Open { source: errno.into() })?;
        Ok(Place { root, options, current, path: Vec::new(), pending: Vec::new(), file: None })
    }

    pub(super) fn directory(
        &mut self,
        path: &[u8],
        mode: u32,
        mtime: Time,
        opaque: bool,
    ) -> Result<(), UnpackError> {
        let name = self.go_to_parent(path)?;
        let attribute = match (opaque, self.options.whiteouts) {
            (false, _) => None,
            (true, Some(kind)) => Some(kind.opaque()),
            (true, None) => return Err(UnpackError::NotAnOverlay { path: shown(path) }),
        };
        let enter = || {
            rustix::fs::mkdirat(&self.current, name, Mode::RWXU)?;
            let directory = beneath::open_dir(&self.current, name)?;
            if let Some(attribute) = attribute {
                rustix::fs::fsetxattr(&directory, attribute, b"y", XattrFlags::empty())?;
            }
            Ok(directory)
        };
        self.current = enter().map_err(|errno| failed(path, errno))?;
        self.path = path.to_vec();
        self.pending.push(Final { mode, mtime });
        Ok(())
    }

    /// Makes an empty file; its content comes with [`Place::content`].
    pub(super) fn file(
        &mut self,
        path: &[u8],
        mode: u32,
        mtime: Time,
        size: u64,
    ) -> Result<(), UnpackError> {
        let name = self.go_to_parent(path)?;
        let flags =
            OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let file = rustix::fs::openat(&self.current, name, flags, Mode::RUSR | Mode::WUSR)
            .map_err(|errno| failed(path, errno))?;
        let becomes = Final { mode, mtime };
        self.file =
            Some(Filling { path: path.to_vec(), file: File::from(file), left: size, becomes });
        self.content(b"")
    }

    /// The next bytes of the file that was made last.
    pub(super) fn content(&mut self, content: &[u8]) -> Result<(), UnpackError> {
        let Some(mut filling) = self.file.take() else {
            return Err(UnpackError::BadRecord);
        };
        filling
            .file
            .write_all(content)
            .map_err(|source| UnpackError::Write { path: shown(&filling.path), source })?;
        filling.left = filling.left.saturating_sub(content.len() as u64);
        if filling.left > 0 {
            self.file = Some(filling);
            return Ok(());
        }
        let file = OwnedFd::from(filling.file);
        self.complete(&file, filling.becomes).map_err(|errno| failed(&filling.path, errno))
    }

    pub(super) fn link(
        &mut self,
        path: &[u8],
        target: &[u8],
        mtime: Time,
    ) -> Result<(), UnpackError> {
        let name = self.go_to_parent(path)?;
        let make = || {
            rustix::fs::symlinkat(target, &self.current, name)?;
            self.own(name)?;
            let times = times(mtime);
            rustix::fs::utimensat(&self.current, name, &times, AtFlags::SYMLINK_NOFOLLOW)
        };
        make().map_err(|errno| failed(path, errno))
    }

    pub(super) fn whiteout(&mut self, path: &[u8]) -> Result<(), UnpackError> {
        let name = self.go_to_parent(path)?;
        if self.options.whiteouts.is_none() {
            return Err(UnpackError::NotAnOverlay { path: shown(path) });
        }
        let make = || {
            // An ordinary user may make this one device: it is none, and cannot be opened.
            let kind = FileType::CharacterDevice;
            rustix::fs::mknodat(&self.current, name, kind, Mode::empty(), 0)?;
            self.own(name)
        };
        make().map_err(|errno| failed(path, errno))
    }

    /// Completes every directory that is still being filled.
    pub(super) fn leave_all(&mut self) -> Result<(), UnpackError> {
        self.leave_until(0)
    }

    /// Leaves directories until the one of `path` is being filled; the name in it. That directory
    /// must be the current one or above it, so it is one that this stream made.
    fn go_to_parent<'a>(&mut self, path: &'a [u8]) -> Result<&'a [u8], UnpackError> {
        let (parent, name) = split(path);
        let inside = self.path.strip_prefix(parent);
        let is_open = inside
            .is_some_and(|rest| parent.is_empty() || rest.is_empty() || rest.starts_with(b"/"));
        if !is_open {
            return Err(UnpackError::OutOfPlace { path: shown(path) });
        }
        self.leave_until(parent.len())?;
        Ok(name)
    }

    fn leave_until(&mut self, length: usize) -> Result<(), UnpackError> {
        while self.path.len() > length {
            let left = std::mem::take(&mut self.path);
            if let Some(becomes) = self.pending.pop() {
                self.complete(&self.current, becomes).map_err(|errno| failed(&left, errno))?;
            }
            let (parent, _) = split(&left);
            // Not a stack of descriptors: the stream says how deep it is, and they are few.
            self.current =
                beneath::open_dir(&self.root, parent).map_err(|errno| failed(parent, errno))?;
            self.path = parent.to_vec();
        }
        Ok(())
    }

    /// Owner before mode: a change of owner may take bits of the mode away.
    fn complete(&self, made: &OwnedFd, becomes: Final) -> rustix::io::Result<()> {
        if let Some((user, group)) = self.owner() {
            rustix::fs::fchown(made, user, group)?;
        }
        // Set-id and sticky bits mean nothing good from a stranger.
        rustix::fs::fchmod(made, Mode::from_raw_mode(becomes.mode & 0o777))?;
        rustix::fs::futimens(made, &times(becomes.mtime))
    }

    /// For what cannot be opened. The name itself changes its owner, not what it leads to.
    fn own(&self, name: &[u8]) -> rustix::io::Result<()> {
        match self.owner() {
            Some((user, group)) => {
                rustix::fs::chownat(&self.current, name, user, group, AtFlags::SYMLINK_NOFOLLOW)
            }
            None => Ok(()),
        }
    }

    fn owner(&self) -> Option<(Option<Uid>, Option<Gid>)> {
        let owner = self.options.owner;
        owner.map(|(user, group)| (Some(Uid::from_raw(user)), Some(Gid::from_raw(group))))
    }
}

fn times((seconds, nanoseconds): Time) -> Timestamps {
    let time =
        Timespec { tv_sec: seconds.clamp(-MAX_SECONDS, MAX_SECONDS), tv_nsec: nanoseconds.into() };
    Timestamps { last_access: time, last_modification: time }
}

fn failed(path: &[u8], errno: Errno) -> UnpackError {
    match errno {
        Errno::EXIST => UnpackError::Exists { path: shown(path) },
        errno => UnpackError::Write { path: shown(path), source: errno.into() },
    }
}
