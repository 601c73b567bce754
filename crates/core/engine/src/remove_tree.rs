//! Removes a directory that hostile code filled, also where that took the permissions to do so away.

use std::ffi::CString;
use std::fs;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::path::Path;

use rustix::fs::{AtFlags, CWD, Dir, FileType, Mode, OFlags};
use rustix::io::Errno;

/// Directories below one another. Trees that come out of a sandbox are not as deep.
const MAX_DEPTH: usize = 512;

/// Removes a directory with all it holds. The owner of a directory without permissions takes them
/// back first. Links are not followed.
pub(crate) fn remove_tree(path: &Path) -> io::Result<()> {
    match fs::remove_dir_all(path) {
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {}
        other => return other,
    }
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let top = rustix::fs::openat(CWD, path, flags, Mode::empty())?;
    unlock(top.as_fd(), MAX_DEPTH)?;
    fs::remove_dir_all(path)
}

/// Lets the owner read and change a directory and those in it.
fn unlock(directory: BorrowedFd<'_>, depth: usize) -> io::Result<()> {
    let Some(depth) = depth.checked_sub(1) else { return Err(Errno::NAMETOOLONG.into()) };
    // A descriptor of a path cannot be given a mode by itself before Linux 6.6.
    let mode = Mode::RWXU;
    rustix::fs::chmodat(directory, ".", mode, AtFlags::empty()).or_else(|_| {
        let own = format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(&directory));
        rustix::fs::chmodat(CWD, own.as_str(), mode, AtFlags::empty())
    })?;
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let opened = rustix::fs::openat(directory, ".", flags, Mode::empty())?;
    let mut children: Vec<CString> = Vec::new();
    for entry in Dir::read_from(&opened)? {
        let entry = entry?;
        let name = entry.file_name();
        let may_be_directory = matches!(entry.file_type(), FileType::Directory | FileType::Unknown);
        if may_be_directory && name.to_bytes() != b"." && name.to_bytes() != b".." {
            children.push(name.to_owned());
        }
    }
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    for child in &children {
        match rustix::fs::openat(&opened, child, flags, Mode::empty()) {
            Ok(child) => unlock(child.as_fd(), depth)?,
            Err(Errno::NOTDIR | Errno::LOOP | Errno::NOENT) => {}
            Err(errno) => return Err(errno.into()),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt, symlink};

    use super::*;

    #[test]
    fn directories_without_permissions_are_removed_and_links_are_not_followed() {
        let around = tempfile::tempdir().unwrap();
        let outside = around.path().join("outside");
        let tree = around.path().join("tree");
        fs::create_dir_all(tree.join("mod/cache")).unwrap();
        fs::create_dir(&outside).unwrap();
        fs::write(tree.join("mod/cache/file"), "x").unwrap();
        symlink("../outside", tree.join("mod/link")).unwrap();
        let lock = |path: &Path, mode| {
            fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
        };
        lock(&outside, 0o500);
        lock(&tree.join("mod/cache"), 0o000);
        lock(&tree.join("mod"), 0o555);
        // Root may do all this anyway; the walk must be right for both.
        let top = rustix::fs::openat(
            CWD,
            &tree,
            OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC,
            Mode::empty(),
        );
        unlock(top.unwrap().as_fd(), MAX_DEPTH).unwrap();
        let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
        assert_eq!((mode(&tree.join("mod/cache")), mode(&tree.join("mod"))), (0o700, 0o700));
        assert_eq!(mode(&outside), 0o500);
        lock(&tree.join("mod"), 0o000);
        remove_tree(&tree).unwrap();
        assert!(!tree.exists() && outside.exists());
    }
}
