//! What is shown of the host: under overlays to which nothing can be written.
//!
//! A read-only bind mount has the host's own inodes. Through one a job connects to named sockets,
//! writes to pipes, watches what others do with files, and takes locks that hold up programs of the
//! host. An overlay has inodes of its own, so none of that gets further than the ring.

use std::ffi::CString;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::path::Path;

use rustix::fs::{AtFlags, CWD, FileType, Mode, OFlags, ResolveFlags};
use rustix::mount::{FsMountFlags, FsOpenFlags, MountAttrFlags, MountFlags, UnmountFlags};

use super::overlay::{PLACE, in_directory, mount_by_name};
use super::{REPLACED, attach, clone_tree, open_checked, open_place};
use crate::step::FileId;

/// The inode numbers of an overlay's files.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Numbers {
    /// As on the host. Then files and directories have different device numbers.
    OfHost,
    /// All of one device: programs that stay on one file system compare these (`du -x`, `tar
    /// --one-file-system`).
    OneDevice,
}

impl Numbers {
    fn option(self) -> &'static str {
        match self {
            Numbers::OfHost => "off",
            Numbers::OneDevice => "on",
        }
    }
}

/// What overlays are made with, besides the directory that they show.
pub struct Workbench<'a> {
    /// An empty directory, attached in the own mount namespace: an overlay without an upper layer
    /// needs two lower ones.
    pub empty: OwnedFd,
    /// Opens a directory in which a mount can be attached for a moment. Rarely needed.
    pub place: &'a dyn Fn() -> io::Result<OwnedFd>,
    /// Opens a proc file system in which this process is. Needed by old kernels.
    pub proc: &'a dyn Fn() -> io::Result<OwnedFd>,
}

impl std::fmt::Debug for Workbench<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Workbench").field("empty", &self.empty).finish_non_exhaustive()
    }
}

impl Workbench<'_> {
    /// An overlay of a directory that is attached in the own mount namespace, detached. It shows
    /// nothing of what is mounted below the directory: the kernel refuses where something is.
    pub fn directory(&self, directory: &OwnedFd) -> io::Result<OwnedFd> {
        self.overlay(directory, Numbers::OneDevice)
    }

    fn overlay(&self, directory: &OwnedFd, numbers: Numbers) -> io::Result<OwnedFd> {
        let made = match self.by_descriptor(directory, numbers) {
            Ok(None) => self.by_name(directory, numbers),
            Ok(Some(tree)) => Ok(tree),
            Err(error) => Err(error),
        };
        made.map_err(|error| match error.raw_os_error() {
            Some(libc::EINVAL) => io::Error::new(io::ErrorKind::Unsupported, NO_LAYER),
            _ => error,
        })
    }

    /// One file that was checked, from an overlay of the directory that it is in.
    pub fn file(&self, path: &Path, id: FileId) -> io::Result<OwnedFd> {
        let replaced = || io::Error::new(io::ErrorKind::PermissionDenied, REPLACED);
        open_checked(path, id)?;
        let (parent, name) = path.parent().zip(path.file_name()).ok_or_else(replaced)?;
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let resolve = ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
        let parent = rustix::fs::openat2(CWD, parent, flags, Mode::empty(), resolve)?;
        if FileId::of(open_place(parent.as_fd(), Path::new(name))?)? != id {
            return Err(replaced());
        }
        let overlay = self.overlay(&parent, Numbers::OfHost)?;
        let file = self.below(&overlay, Path::new(name))?;
        // The device is the overlay's own. The number is the host's, and the directory was compared.
        if FileId::of(&file)?.inode != id.inode {
            return Err(replaced());
        }
        Ok(file)
    }

    /// A copy of a part of a detached tree. Before Linux 6.15 only what is attached can be copied.
    fn below(&self, tree: &OwnedFd, path: &Path) -> io::Result<OwnedFd> {
        let place = (self.place)()?;
        rustix::fs::mkdirat(&place, PLACE, Mode::RWXU)?;
        let copy = in_directory(&place, || {
            attach(tree.as_fd(), open_place(place.as_fd(), Path::new(PLACE))?.as_fd())?;
            let part = open_place(place.as_fd(), &Path::new(PLACE).join(path));
            let copy = part.and_then(|part| clone_tree(part.as_fd(), Path::new(""), false));
            rustix::mount::unmount(PLACE, UnmountFlags::DETACH)?;
            copy
        });
        rustix::fs::unlinkat(&place, PLACE, AtFlags::REMOVEDIR)?;
        copy
    }

    /// `None` where the kernel takes no descriptors: before Linux 6.13.
    fn by_descriptor(&self, directory: &OwnedFd, numbers: Numbers) -> io::Result<Option<OwnedFd>> {
        let context = rustix::mount::fsopen("overlay", FsOpenFlags::FSOPEN_CLOEXEC)?;
        rustix::mount::fsconfig_set_flag(&context, "userxattr")?;
        rustix::mount::fsconfig_set_string(&context, "xino", numbers.option())?;
        for lower in [directory, &self.empty] {
            match rustix::mount::fsconfig_set_fd(&context, "lowerdir+", lower) {
                Ok(()) => {}
                Err(_) => return Ok(None),
            }
        }
        rustix::mount::fsconfig_create(&context)?;
        let flags = MountAttrFlags::MOUNT_ATTR_NOSUID
            | MountAttrFlags::MOUNT_ATTR_NODEV
            | MountAttrFlags::MOUNT_ATTR_RDONLY;
        Ok(Some(rustix::mount::fsmount(&context, FsMountFlags::FSMOUNT_CLOEXEC, flags)?))
    }

    fn by_name(&self, directory: &OwnedFd, numbers: Numbers) -> io::Result<OwnedFd> {
        let (numbers, directory, empty) =
            (numbers.option(), directory.as_raw_fd(), self.empty.as_raw_fd());
        let options = format!("userxattr,xino={numbers},lowerdir={directory}:{empty}");
        let options = CString::new(options).map_err(io::Error::other)?;
        let flags = MountFlags::NOSUID | MountFlags::NODEV | MountFlags::RDONLY;
        mount_by_name(&options, &(self.place)()?, flags, (self.proc)()?.as_fd())
    }
}

/// The kernel says no more than `EINVAL`.
const NO_LAYER: &str = "overlayfs does not take this directory: something was mounted in it just now, or \
                        its file system is an overlay of overlays or does not tell large letters \
                        from small ones; use --wall container, which shows an image instead";

/// Copies what a file holds, for a directory that cannot be shown as a whole. One that the caller
/// may not read becomes an empty file that nobody can read, and what is no file stays away.
pub fn copy_file(
    (from, name): (BorrowedFd<'_>, &Path),
    (into, new): (BorrowedFd<'_>, &Path),
    most: u64,
) -> io::Result<()> {
    use rustix::io::Errno;

    // Without waiting: by now it may be a pipe.
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
    let opened = match rustix::fs::openat2(from, name, flags, Mode::empty(), resolve) {
        Ok(file) => Some(file),
        Err(Errno::ACCESS | Errno::PERM) => None,
        // Removed or replaced since it was listed.
        Err(Errno::NOENT | Errno::LOOP | Errno::NXIO) => return Ok(()),
        Err(error) => return Err(error.into()),
    };
    let mode = match &opened {
        Some(file) => {
            let stat = rustix::fs::fstat(file)?;
            if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile {
                return Ok(());
            }
            stat.st_mode & 0o555
        }
        None => 0,
    };
    let flags = OFlags::CREATE | OFlags::EXCL | OFlags::WRONLY | OFlags::CLOEXEC;
    let copy = rustix::fs::openat(into, new, flags, Mode::from_raw_mode(mode))?;
    let Some(file) = opened else { return Ok(()) };
    let (from, mut to) = (std::fs::File::from(file), std::fs::File::from(copy));
    let copied = io::copy(&mut io::Read::take(from, most + 1), &mut to)?;
    if copied > most {
        return Err(io::Error::new(io::ErrorKind::FileTooLarge, GROWN));
    }
    Ok(())
}

const GROWN: &str = "it has grown beyond what can be copied since it was looked at; try again";

#[cfg(test)]
mod tests;
