//! The new mount API: trees as descriptors, attached only when they are ready.

mod copy;
mod overlay;
mod shown;

use std::ffi::CString;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::path::Path;

use rustix::fs::{AtFlags, FileType, Gid, Mode, OFlags, ResolveFlags, Uid};
use rustix::mount::{
    FsMountFlags, FsOpenFlags, MountAttrFlags, MountPropagationFlags, MoveMountFlags, OpenTreeFlags,
};

use crate::detach::Detaching;
use crate::step::{FileId, MountFlags};

pub use copy::{Copied, copied};
pub use overlay::{Layers, WithoutMarks};
pub use shown::{Workbench, copy_file};

/// Opens a place below `dir` as a path descriptor. No symbolic link is followed and the walk cannot
/// leave `dir`, but it may cross mounts: they are our own.
pub fn open_place(dir: BorrowedFd<'_>, path: &Path) -> io::Result<OwnedFd> {
    let path = if path.as_os_str().is_empty() { Path::new(".") } else { path };
    let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
    Ok(rustix::fs::openat2(dir, path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty(), resolve)?)
}

/// Opens a path of the host that was checked before, as a path descriptor. Whoever can rename a
/// directory above it could have put something else there since, so it has to be the very file or
/// directory that was checked, at a path without symbolic links.
pub fn open_checked(path: &Path, id: FileId) -> io::Result<OwnedFd> {
    let flags = OFlags::PATH | OFlags::CLOEXEC;
    let resolve = ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
    let opened = rustix::fs::openat2(rustix::fs::CWD, path, flags, Mode::empty(), resolve);
    match opened {
        Ok(opened) if FileId::of(&opened)? == id => Ok(opened),
        Ok(_) | Err(rustix::io::Errno::LOOP) => {
            Err(io::Error::new(io::ErrorKind::PermissionDenied, REPLACED))
        }
        Err(error) => Err(error.into()),
    }
}

const REPLACED: &str = "it was replaced while the sandbox was made, so what was checked is not \
                        what would be shown; try again when nothing moves it";

/// Opens the directory that holds the last part of `path`, and gives that part back.
pub fn open_parent<'p>(dir: BorrowedFd<'_>, path: &'p Path) -> io::Result<(OwnedFd, &'p Path)> {
    let name = path.file_name().ok_or(io::ErrorKind::InvalidInput)?;
    let parent = open_place(dir, path.parent().unwrap_or(Path::new("")))?;
    Ok((parent, Path::new(name)))
}

/// A detached copy of the mount at `path` below `dir`; with `recursive` also what is mounted below.
pub fn clone_tree(dir: BorrowedFd<'_>, path: &Path, recursive: bool) -> io::Result<OwnedFd> {
    let mut flags = OpenTreeFlags::OPEN_TREE_CLONE
        | OpenTreeFlags::OPEN_TREE_CLOEXEC
        | OpenTreeFlags::AT_EMPTY_PATH;
    if recursive {
        flags |= OpenTreeFlags::AT_RECURSIVE;
    }
    Ok(rustix::mount::open_tree(dir, path, flags)?)
}

pub fn attach(tree: BorrowedFd<'_>, at: BorrowedFd<'_>) -> io::Result<()> {
    let flags = MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH | MoveMountFlags::MOVE_MOUNT_T_EMPTY_PATH;
    Ok(rustix::mount::move_mount(tree, "", at, "", flags)?)
}

pub fn tmpfs(bytes: u64, inodes: u64, mode: u32) -> io::Result<OwnedFd> {
    let context = rustix::mount::fsopen("tmpfs", FsOpenFlags::FSOPEN_CLOEXEC)?;
    rustix::mount::fsconfig_set_string(&context, "size", bytes.to_string())?;
    rustix::mount::fsconfig_set_string(&context, "nr_inodes", inodes.to_string())?;
    rustix::mount::fsconfig_set_string(&context, "mode", format!("{mode:o}"))?;
    finish(&context, MountAttrFlags::MOUNT_ATTR_NOSUID | MountAttrFlags::MOUNT_ATTR_NODEV)
}

/// A tmpfs with one device file, which is the owner's alone. Made by root of the host: what others
/// make has no working devices.
pub fn own_device(device: &Path, (uid, gid): (u32, u32)) -> io::Result<OwnedFd> {
    let name = device.file_name().ok_or(io::ErrorKind::InvalidInput)?;
    let known = rustix::fs::stat(device)?;
    if FileType::from_raw_mode(known.st_mode) != FileType::CharacterDevice {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "not a character device"));
    }
    let context = rustix::mount::fsopen("tmpfs", FsOpenFlags::FSOPEN_CLOEXEC)?;
    rustix::mount::fsconfig_set_string(&context, "size", "4096")?;
    rustix::mount::fsconfig_set_string(&context, "nr_inodes", "4")?;
    rustix::mount::fsconfig_set_string(&context, "mode", "755")?;
    let tree =
        finish(&context, MountAttrFlags::MOUNT_ATTR_NOSUID | MountAttrFlags::MOUNT_ATTR_NOEXEC)?;
    let mode = Mode::RUSR | Mode::WUSR;
    rustix::fs::mknodat(&tree, name, FileType::CharacterDevice, mode, known.st_rdev)?;
    let (uid, gid) = (Uid::from_raw(uid), Gid::from_raw(gid));
    rustix::fs::chownat(&tree, name, Some(uid), Some(gid), AtFlags::SYMLINK_NOFOLLOW)?;
    mount_setattr(tree.as_fd(), false, (libc::MOUNT_ATTR_RDONLY, 0), None)?;
    Ok(tree)
}

/// Of the caller's own process namespace. It can be written until its flags are set.
pub fn proc() -> io::Result<OwnedFd> {
    let context = rustix::mount::fsopen("proc", FsOpenFlags::FSOPEN_CLOEXEC)?;
    let flags = MountAttrFlags::MOUNT_ATTR_NOSUID
        | MountAttrFlags::MOUNT_ATTR_NODEV
        | MountAttrFlags::MOUNT_ATTR_NOEXEC;
    finish(&context, flags)
}

/// Terminals that one ring can have open.
const MAX_TERMINALS: &str = "32";

pub fn devpts() -> io::Result<OwnedFd> {
    let context = rustix::mount::fsopen("devpts", FsOpenFlags::FSOPEN_CLOEXEC)?;
    rustix::mount::fsconfig_set_flag(&context, "newinstance")?;
    rustix::mount::fsconfig_set_string(&context, "ptmxmode", "0666")?;
    rustix::mount::fsconfig_set_string(&context, "mode", "0620")?;
    // Each holds input that nobody has read, and the kernel counts that for nobody.
    rustix::mount::fsconfig_set_string(&context, "max", MAX_TERMINALS)?;
    finish(&context, MountAttrFlags::MOUNT_ATTR_NOSUID | MountAttrFlags::MOUNT_ATTR_NOEXEC)
}

fn finish(context: &OwnedFd, flags: MountAttrFlags) -> io::Result<OwnedFd> {
    rustix::mount::fsconfig_create(context)?;
    Ok(rustix::mount::fsmount(context, FsMountFlags::FSMOUNT_CLOEXEC, flags)?)
}

/// Every tree of a ring is without setuid and without devices; these flags come on top.
pub fn set_flags(tree: BorrowedFd<'_>, flags: MountFlags) -> io::Result<()> {
    let mut set = libc::MOUNT_ATTR_NOSUID;
    if !flags.devices {
        set |= libc::MOUNT_ATTR_NODEV;
    }
    if flags.read_only {
        set |= libc::MOUNT_ATTR_RDONLY;
    }
    if flags.no_exec {
        set |= libc::MOUNT_ATTR_NOEXEC;
    }
    mount_setattr(tree, flags.recursive, (set, 0), None)
}

/// Together with the mounts below. The kernel refuses while a file is open for writing through one
/// of them, and then leaves all as they were.
pub fn forbid_writes(mount: BorrowedFd<'_>) -> io::Result<()> {
    mount_setattr(mount, true, (libc::MOUNT_ATTR_RDONLY, 0), None)
}

pub fn allow_writes(mount: BorrowedFd<'_>) -> io::Result<()> {
    mount_setattr(mount, false, (0, libc::MOUNT_ATTR_RDONLY), None)
}

/// Lays a copy of a place over it, through which nothing can be written.
pub fn keep_read_only(place: BorrowedFd<'_>) -> io::Result<()> {
    let copy = clone_tree(place, Path::new(""), false)?;
    forbid_writes(copy.as_fd())?;
    attach(copy.as_fd(), place)
}

/// Shows the files of a tree with other owners.
pub fn id_map(tree: BorrowedFd<'_>, user_namespace: BorrowedFd<'_>) -> io::Result<()> {
    mount_setattr(tree, false, (libc::MOUNT_ATTR_IDMAP, 0), Some(user_namespace)).map_err(|error| {
        // Of all that can be wrong only the file system is not of our own making.
        match error.raw_os_error() {
            Some(libc::EINVAL) => io::Error::new(io::ErrorKind::Unsupported, NOT_MAPPABLE),
            _ => error,
        }
    })
}

/// `mount_setattr(2)` lists the file systems and their kernels.
const NOT_MAPPABLE: &str = "this file system cannot show its files with other owners on this \
                            kernel; use a directory on ext4, xfs or btrfs (tmpfs: Linux 6.3 or \
                            later), or run Ringwall as an ordinary user";

fn mount_setattr(
    tree: BorrowedFd<'_>,
    recursive: bool,
    (set, clear): (u64, u64),
    user_namespace: Option<BorrowedFd<'_>>,
) -> io::Result<()> {
    let attributes = libc::mount_attr {
        attr_set: set,
        attr_clr: clear,
        propagation: 0,
        userns_fd: user_namespace.map_or(0, |fd| fd.as_raw_fd().unsigned_abs().into()),
    };
    let empty = CString::default();
    let flags = libc::AT_EMPTY_PATH | if recursive { libc::AT_RECURSIVE } else { 0 };
    // SAFETY: the path is a valid C string, the attributes outlive the call and their size is given;
    // the kernel only reads them.
    let result = unsafe {
        libc::syscall(
            libc::SYS_mount_setattr,
            tree.as_raw_fd(),
            empty.as_ptr(),
            flags,
            &raw const attributes,
            size_of::<libc::mount_attr>(),
        )
    };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Nothing mounted from here on spreads to the namespace that ours was copied from.
pub fn make_private() -> io::Result<()> {
    let flags = MountPropagationFlags::PRIVATE | MountPropagationFlags::REC;
    Ok(rustix::mount::mount_change("/", flags)?)
}

/// Makes `tree` the root and begins to let go of the old one.
///
/// The kernel takes the old tree out of the namespace at once, but then waits for all CPUs before
/// it returns. Somebody else does that waiting; see [`Detaching`].
pub fn pivot_to(tree: BorrowedFd<'_>) -> io::Result<Detaching> {
    let old = rustix::fs::open("/", OFlags::PATH | OFlags::CLOEXEC, Mode::empty())?;
    rustix::process::fchdir(tree)?;
    // With both arguments "." the old root lands on top of the new one, so no directory is needed for it.
    rustix::process::pivot_root(".", ".")?;
    rustix::process::chdir("/")?;
    Detaching::begin(old)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_device_of_ones_own_works_and_is_nobody_elses() {
        if !rustix::process::geteuid().is_root() {
            eprintln!("not tested here: only root makes device files");
            return;
        }
        let tree = own_device(Path::new("/dev/zero"), (12_345, 54_321)).unwrap();
        let seen = rustix::fs::statat(&tree, "zero", AtFlags::SYMLINK_NOFOLLOW).unwrap();
        assert_eq!((seen.st_uid, seen.st_gid, seen.st_mode & 0o7777), (12_345, 54_321, 0o600));
        assert_eq!(seen.st_rdev, rustix::fs::stat("/dev/zero").unwrap().st_rdev);
        let flags = OFlags::RDWR | OFlags::CLOEXEC;
        let device = rustix::fs::openat(&tree, "zero", flags, Mode::empty()).unwrap();
        let mut bytes = [1; 4];
        assert_eq!(rustix::io::read(&device, &mut bytes).unwrap(), 4);
        assert_eq!(bytes, [0; 4]);
        let another = rustix::fs::openat(&tree, "new", flags | OFlags::CREATE, Mode::RUSR);
        assert_eq!(another.unwrap_err(), rustix::io::Errno::ROFS);
    }

    #[test]
    fn only_the_very_thing_that_was_checked_is_opened() {
        let place = tempfile::tempdir().unwrap();
        let top = place.path().canonicalize().unwrap();
        let at = |name: &str| top.join(name);
        for name in ["sub", "sub/deep", "evil", "evil/deep"] {
            std::fs::create_dir(at(name)).unwrap();
        }
        std::fs::write(at("sub/file"), "").unwrap();
        let checked = |name: &str| FileId::of(std::fs::File::open(at(name)).unwrap()).unwrap();
        let (sub, deep, file) = (checked("sub"), checked("sub/deep"), checked("sub/file"));
        let opens = || [("sub", sub), ("sub/deep", deep), ("sub/file", file)];
        for (name, id) in opens() {
            assert_eq!(FileId::of(open_checked(&at(name), id).unwrap()).unwrap(), id);
        }
        // Another directory, then a link to another one, then a link to the very one that was checked.
        let refused = |name: &str, id| {
            let error = open_checked(&at(name), id).unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::PermissionDenied, "{name}: {error}");
            assert!(error.to_string().contains("replaced"), "{name}: {error}");
        };
        std::fs::rename(at("sub"), at("checked")).unwrap();
        std::fs::rename(at("evil"), at("sub")).unwrap();
        refused("sub", sub);
        refused("sub/deep", deep);
        assert_eq!(
            open_checked(&at("sub/file"), file).unwrap_err().kind(),
            io::ErrorKind::NotFound
        );
        std::fs::rename(at("sub"), at("evil")).unwrap();
        for target in ["evil", "checked"] {
            std::os::unix::fs::symlink(target, at("sub")).unwrap();
            for (name, id) in opens() {
                refused(name, id);
            }
            std::fs::remove_file(at("sub")).unwrap();
        }
    }

    #[test]
    fn what_is_no_device_is_not_made_one() {
        assert!(own_device(Path::new("/proc/self/status"), (1, 1)).is_err());
        assert!(own_device(Path::new("/dev/no-such-device"), (1, 1)).is_err());
    }
}
