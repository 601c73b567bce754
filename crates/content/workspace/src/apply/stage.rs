//! The staging directory: new content before it is moved into place, old content after.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};

use rustix::fs::{self, AtFlags, Gid, Mode, OFlags, Stat, Uid};
use rustix::io::Errno;

use super::{ApplyError, STAGING_PREFIX};
use crate::beneath;
use crate::content::{self, Content, CopyError};
use crate::path::RelPath;
use crate::show::quoted;

/// A directory of ours in the workspace, closed to other users. Its entries are numbered slots.
#[derive(Debug)]
pub(super) struct Stage {
    pub(super) name: String,
    dir: OwnedFd,
}

/// Who a new file is to belong to.
#[derive(Debug, Clone, Copy)]
pub(super) struct NewOwner {
    uid: Option<Uid>,
    gid: Option<Gid>,
}

impl Stage {
    pub(super) fn new_name() -> Result<String, ApplyError> {
        let suffix = ringwall_safekeeping::random_name::<8>()
            .map_err(|error| staging_error(error.into()))?;
        Ok(format!("{STAGING_PREFIX}{suffix}"))
    }

    pub(super) fn create(root: &OwnedFd, name: &str) -> Result<Self, ApplyError> {
        fs::mkdirat(root, name, Mode::RWXU).map_err(|errno| staging_error(errno.into()))?;
        Self::open(root, name).map_err(|errno| {
            // Just made and still empty.
            let _ = fs::unlinkat(root, name, AtFlags::REMOVEDIR);
            staging_error(errno.into())
        })
    }

    pub(super) fn open(root: &OwnedFd, name: &str) -> rustix::io::Result<Self> {
        let path = RelPath::new(name).map_err(|_| Errno::INVAL)?;
        let dir = beneath::open_dir(root, Some(&path))?;
        Ok(Stage { name: name.to_owned(), dir })
    }

    /// Copies content into a new slot and gives it owner and mode. `None` if the content is
    /// larger than `size`.
    pub(super) fn add_file(
        &self,
        slot: &str,
        from: &mut File,
        size: u64,
        mode: u32,
        owner: NewOwner,
    ) -> io::Result<Option<Content>> {
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
        let to = fs::openat(&self.dir, slot, flags, Mode::RUSR | Mode::WUSR)?;
        let mut to = File::from(to);
        let copied = content::copy(from, &mut to, size).map_err(|error| match error {
            CopyError::Read(error) | CopyError::Write(error) => error,
        })?;
        // The owner first: changing it clears mode bits.
        owner.give(|uid, gid| fs::fchown(&to, uid, gid))?;
        fs::fchmod(&to, Mode::from_raw_mode(mode & 0o777))?;
        Ok(copied)
    }

    pub(super) fn add_symlink(&self, slot: &str, target: &[u8], owner: NewOwner) -> io::Result<()> {
        fs::symlinkat(beneath::os_bytes(target), &self.dir, slot)?;
        let dir = &self.dir;
        owner.give(|uid, gid| fs::chownat(dir, slot, uid, gid, AtFlags::SYMLINK_NOFOLLOW))
    }

    /// A directory that its owner can fill; the final mode comes last.
    pub(super) fn add_directory(&self, slot: &str, mode: u32, owner: NewOwner) -> io::Result<()> {
        fs::mkdirat(&self.dir, slot, Mode::RWXU)?;
        let path = RelPath::new(slot).map_err(io::Error::other)?;
        let dir = beneath::open_dir(&self.dir, Some(&path))?;
        owner.give(|uid, gid| fs::fchown(&dir, uid, gid))?;
        Ok(fs::fchmod(&dir, Mode::from_raw_mode(mode & 0o777 | 0o700))?)
    }

    /// The metadata of the file in a slot, if there is one.
    pub(super) fn look(&self, slot: &str) -> rustix::io::Result<Option<Stat>> {
        beneath::stat(&self.dir, Path::new(slot))
    }

    /// Makes the staged contents durable before anything points at them.
    pub(super) fn sync(&self) -> rustix::io::Result<()> {
        fs::syncfs(&self.dir)
    }

    /// Removes the directory and whatever is left in it.
    pub(super) fn remove(&self, root: &OwnedFd) {
        // Slots are files, links and empty directories. A failure leaves rubbish, no damage.
        for entry in beneath::list(&self.dir, u64::MAX).ok().flatten().unwrap_or_default() {
            let flags = match fs::unlinkat(&self.dir, &entry.name, AtFlags::empty()) {
                Err(Errno::ISDIR) => AtFlags::REMOVEDIR,
                _ => continue,
            };
            let _ = fs::unlinkat(&self.dir, &entry.name, flags);
        }
        let _ = fs::unlinkat(root, &self.name, AtFlags::REMOVEDIR);
    }
}

impl AsFd for Stage {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.dir.as_fd()
    }
}

impl NewOwner {
    /// Root writes as the owner of the replaced file, or of the directory that it goes into. An
    /// ordinary user's files are the user's own, with the group that a set-group-id directory
    /// asks for.
    pub(super) fn of(root: &OwnedFd, path: &RelPath, replaced: Option<&Stat>) -> io::Result<Self> {
        let is_root = rustix::process::geteuid().is_root();
        let model = match replaced {
            Some(stat) => *stat,
            None => nearest_directory(root, path)?,
        };
        let takes_group = is_root || replaced.is_some() || model.st_mode & 0o2000 != 0;
        Ok(NewOwner {
            uid: is_root.then(|| Uid::from_raw(model.st_uid)),
            gid: takes_group.then(|| Gid::from_raw(model.st_gid)),
        })
    }

    fn give(
        self,
        chown: impl Fn(Option<Uid>, Option<Gid>) -> rustix::io::Result<()>,
    ) -> io::Result<()> {
        if self.uid.is_none() && self.gid.is_none() {
            return Ok(());
        }
        match chown(self.uid, self.gid) {
            // An ordinary user who is not in the group keeps the file to their own.
            Err(Errno::PERM) if self.uid.is_none() => Ok(()),
            result => Ok(result?),
        }
    }
}

/// The directory above `path` that the host has already.
fn nearest_directory(root: &OwnedFd, path: &RelPath) -> io::Result<Stat> {
    for above in path.ancestors() {
        // An error is a link that is about to be replaced by a directory.
        if let Ok(Some(stat)) = beneath::stat(root, above)
            && fs::FileType::from_raw_mode(stat.st_mode) == fs::FileType::Directory
        {
            return Ok(stat);
        }
    }
    Ok(fs::fstat(root)?)
}

fn staging_error(source: io::Error) -> ApplyError {
    ApplyError::Stage { path: "the staging directory".to_owned(), source }
}

pub(super) fn stage_error(path: &RelPath, source: io::Error) -> ApplyError {
    ApplyError::Stage { path: quoted(path.as_path()), source }
}

/// The parent of `path`, opened for `*at` calls, and the last name.
pub(super) fn parent_of(root: &OwnedFd, path: &RelPath) -> rustix::io::Result<(OwnedFd, PathBuf)> {
    let parent = beneath::open_dir_handle(root, path.parent().as_ref())?;
    Ok((parent, PathBuf::from(path.file_name())))
}
