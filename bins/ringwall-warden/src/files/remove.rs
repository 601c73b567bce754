//! Removes a file, or a directory with everything in it, without following symbolic links.
//!
//! Only the current directory is held open, however deep the tree is. On the way back up `..` is
//! compared with what was remembered on the way down, so a directory that someone moved meanwhile
//! ends the removal instead of leading it astray.

use std::ffi::{CStr, CString};
use std::os::fd::OwnedFd;

use ringwall_wire::{ErrorCode, RemoteError};
use rustix::fs::{AtFlags, FileType, Mode, OFlags, RawDir, SeekFrom};
use rustix::io::Errno;

use super::Progress;
use super::list::BUFFER_BYTES;
use super::path::{open, split};
use crate::error::{failed, refused, show};

#[derive(Debug)]
pub(crate) struct Removal {
    path: Vec<u8>,
    /// The directory that the removed entry is in.
    base: OwnedFd,
    /// The way from `base` to the directory that is being emptied.
    way: Vec<Level>,
    current: OwnedFd,
}

#[derive(Debug)]
struct Level {
    name: CString,
    id: (u64, u64),
}

enum Found {
    Nothing,
    Removed,
    Directory(CString),
}

impl Removal {
    /// Removes a single entry at once; gives back a task if there is a whole directory to remove.
    pub(crate) fn begin(path: &[u8], recursive: bool) -> Result<Option<Removal>, RemoteError> {
        let failure = |errno| failed(&format!("cannot remove {}", show(path)), errno);
        let (parent, name) = split(path)?;
        let flags = OFlags::PATH | OFlags::DIRECTORY;
        let base = open(&parent, flags, Mode::empty()).map_err(failure)?;
        match rustix::fs::unlinkat(&base, &name, AtFlags::empty()) {
            Ok(()) => return Ok(None),
            Err(Errno::ISDIR) => {}
            Err(errno) => return Err(failure(errno)),
        }
        match rustix::fs::unlinkat(&base, &name, AtFlags::REMOVEDIR) {
            Ok(()) => return Ok(None),
            Err(Errno::NOTEMPTY) if recursive => {}
            Err(errno) => return Err(failure(errno)),
        }
        let current = open_directory(&base, &name).map_err(failure)?;
        let id = identity(&current).map_err(failure)?;
        let way = vec![Level { name, id }];
        Ok(Some(Removal { path: path.to_vec(), base, way, current }))
    }

    /// Removes one buffer of entries, or goes one level down or up.
    pub(crate) fn step(&mut self) -> Progress {
        let step = self.empty_some().and_then(|found| match found {
            Found::Removed => Ok(Progress::Again),
            Found::Directory(name) => self.descend(name),
            Found::Nothing => self.ascend(),
        });
        step.unwrap_or_else(|errno| {
            let doing = format!("cannot remove everything in {}", show(&self.path));
            Progress::Finished(Err(failed(&doing, errno)))
        })
    }

    fn empty_some(&self) -> Result<Found, Errno> {
        let mut buffer = Vec::with_capacity(BUFFER_BYTES);
        // From the start each time: what was there is gone.
        rustix::fs::seek(&self.current, SeekFrom::Start(0))?;
        let mut raw = RawDir::new(&self.current, buffer.spare_capacity_mut());
        let mut found = Found::Nothing;
        while let Some(entry) = raw.next() {
            let entry = entry?;
            let name = entry.file_name();
            let last = |raw: &RawDir<'_, &OwnedFd>| raw.is_buffer_empty();
            if !matches!(name.to_bytes(), b"." | b"..") {
                if entry.file_type() == FileType::Directory {
                    return Ok(Found::Directory(name.to_owned()));
                }
                match rustix::fs::unlinkat(&self.current, name, AtFlags::empty()) {
                    Ok(()) | Err(Errno::NOENT) => found = Found::Removed,
                    Err(Errno::ISDIR) => return Ok(Found::Directory(name.to_owned())),
                    Err(errno) => return Err(errno),
                }
            }
            if last(&raw) && matches!(found, Found::Removed) {
                break;
            }
        }
        Ok(found)
    }

    fn descend(&mut self, name: CString) -> Result<Progress, Errno> {
        match open_directory(&self.current, &name) {
            Ok(directory) => {
                self.way.push(Level { id: identity(&directory)?, name });
                self.current = directory;
            }
            // Gone or replaced meanwhile: the next look tells.
            Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => {}
            Err(errno) => return Err(errno),
        }
        Ok(Progress::Again)
    }

    /// The current directory is empty: goes back to the one above and removes it there.
    fn ascend(&mut self) -> Result<Progress, Errno> {
        let above = match self.way.len().checked_sub(2).and_then(|index| self.way.get(index)) {
            None => rustix::io::fcntl_dupfd_cloexec(&self.base, 3)?,
            Some(level) => {
                let above = open_directory(&self.current, c"..")?;
                if identity(&above)? != level.id {
                    return Ok(Progress::Finished(Err(self.moved())));
                }
                above
            }
        };
        let Some(level) = self.way.pop() else {
            return Ok(Progress::Finished(Ok(())));
        };
        match rustix::fs::unlinkat(&above, &level.name, AtFlags::REMOVEDIR) {
            Ok(()) | Err(Errno::NOENT) => {}
            // Someone put something in: once more.
            Err(Errno::NOTEMPTY) => {
                self.way.push(level);
                return Ok(Progress::Again);
            }
            Err(errno) => return Err(errno),
        }
        if self.way.is_empty() {
            return Ok(Progress::Finished(Ok(())));
        }
        self.current = above;
        Ok(Progress::Again)
    }

    fn moved(&self) -> RemoteError {
        let what = show(&self.path);
        let message = format!("{what} was moved about while it was being removed; try again");
        refused(ErrorCode::System, &message)
    }
}

fn open_directory(at: &OwnedFd, name: &CStr) -> Result<OwnedFd, Errno> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    rustix::fs::openat(at, name, flags, Mode::empty())
}

fn identity(directory: &OwnedFd) -> Result<(u64, u64), Errno> {
    rustix::fs::fstat(directory).map(|stat| (stat.st_dev, stat.st_ino))
}
