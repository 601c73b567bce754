//! Directories and files as a ring shows them, by descriptors and by names.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::os::unix::net::{UnixListener, UnixStream};

use rustix::fs::{FlockOperation, flock};

use super::*;
use crate::mount::overlay::tests::{base, directory, in_own_mounts, read};
use crate::mount::tmpfs;
use crate::process;
use crate::step::{IdMaps, IdRange};

fn with_workbench(
    base: &OwnedFd,
    body: impl FnOnce(&Workbench<'_>) -> io::Result<()>,
) -> io::Result<()> {
    let at = |path: &str| open_place(base.as_fd(), Path::new(path));
    let (place, proc) = (|| at(""), || at("proc"));
    body(&Workbench { empty: directory(base, "empty")?, place: &place, proc: &proc })
}

fn open(path: &Path) -> io::Result<OwnedFd> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    Ok(rustix::fs::openat(CWD, path, flags, Mode::empty())?)
}

/// A directory of the host with a file, a socket that somebody listens on and a lock that is held.
fn check_shown(top: &Path, by_name: bool) -> io::Result<()> {
    let base = base()?;
    with_workbench(&base, |bench| {
        let source = open(top)?;
        let tree = match by_name {
            true => bench.by_name(&source, Numbers::OneDevice)?,
            false => bench.directory(&source)?,
        };
        attach(tree.as_fd(), directory(&base, "shown")?.as_fd())?;
        assert_eq!(read(&base, "shown/file")?, "text");
        let flags = OFlags::RDONLY | OFlags::CLOEXEC;
        let file = rustix::fs::openat(&tree, "file", flags, Mode::empty())?;
        assert_eq!(FileId::of(&file)?.device, FileId::of(&tree)?.device);
        flock(&file, FlockOperation::NonBlockingLockExclusive)?;
        let written = rustix::fs::openat(&tree, "file", OFlags::WRONLY, Mode::empty());
        assert_eq!(written.unwrap_err(), rustix::io::Errno::ROFS);
        in_directory(&tree, || {
            let reached = UnixStream::connect("socket").map_err(|error| error.kind());
            assert_eq!(reached.unwrap_err(), io::ErrorKind::ConnectionRefused);
            Ok(())
        })?;
        assert!(rustix::fs::statat(&base, PLACE, AtFlags::empty()).is_err(), "nothing is left");
        Ok(())
    })
}

#[test]
fn what_is_shown_can_be_read_and_has_dead_sockets_and_locks_of_its_own() {
    let top = tempfile::tempdir().unwrap();
    fs::write(top.path().join("file"), "text").unwrap();
    let _listener = UnixListener::bind(top.path().join("socket")).unwrap();
    let held = fs::File::open(top.path().join("file")).unwrap();
    flock(&held, FlockOperation::NonBlockingLockExclusive).unwrap();
    for by_name in [false, true] {
        if !in_own_mounts(|| check_shown(top.path(), by_name)) {
            eprintln!("not tested here: no mount namespaces");
        }
    }
}

fn check_file(top: &Path) -> io::Result<()> {
    let base = base()?;
    with_workbench(&base, |bench| {
        let path = top.join("file");
        let id = FileId::of(fs::File::open(&path)?)?;
        let shown = bench.file(&path, id)?;
        rustix::fs::openat(&base, "shown", OFlags::CREATE | OFlags::WRONLY, Mode::RUSR)?;
        attach(shown.as_fd(), open_place(base.as_fd(), Path::new("shown"))?.as_fd())?;
        assert_eq!(read(&base, "shown")?, "text");
        // Another file of that name, and a link to one that was checked.
        let other = FileId::of(fs::File::open(top.join("other"))?)?;
        for (path, id) in [(path, other), (top.join("link"), id)] {
            let refused = bench.file(&path, id).unwrap_err();
            assert_eq!(refused.kind(), io::ErrorKind::PermissionDenied, "{path:?}");
        }
        Ok(())
    })
}

#[test]
fn one_file_is_the_one_that_was_checked_and_no_other() {
    let top = tempfile::tempdir().unwrap();
    let place = top.path().canonicalize().unwrap();
    fs::write(place.join("file"), "text").unwrap();
    fs::write(place.join("other"), "another").unwrap();
    symlink("file", place.join("link")).unwrap();
    if !in_own_mounts(|| check_file(&place)) {
        eprintln!("not tested here: no mount namespaces");
    }
}

const SOMEBODY: u32 = 12_345;

fn check_mounted(top: &Path) -> io::Result<()> {
    let inner = tmpfs(1 << 20, 16, 0o755)?;
    attach(inner.as_fd(), open(&top.join("inner"))?.as_fd())?;
    process::leave_root(SOMEBODY, SOMEBODY)?;
    let one = || vec![IdRange { inside: 0, outside: SOMEBODY, count: 1 }];
    process::unshare_user_namespace(&IdMaps { uids: one(), gids: one() })?;
    process::unshare_mounts()?;
    let base = base()?;
    with_workbench(&base, |bench| {
        let refused = bench.directory(&open(top)?).unwrap_err();
        assert_eq!(refused.kind(), io::ErrorKind::Unsupported, "{refused}");
        bench.directory(&open(&top.join("inner"))?).map(drop)
    })
}

#[test]
fn a_directory_in_which_something_is_mounted_is_refused_and_what_is_mounted_is_not() {
    if !rustix::process::geteuid().is_root() {
        eprintln!("not tested here: only root mounts, and then becomes somebody else");
        return;
    }
    let top = tempfile::tempdir().unwrap();
    fs::create_dir(top.path().join("inner")).unwrap();
    fs::set_permissions(top.path(), fs::Permissions::from_mode(0o755)).unwrap();
    if !in_own_mounts(|| check_mounted(top.path())) {
        eprintln!("not tested here: no mount namespaces");
    }
}

#[test]
fn copies_are_of_files_only_and_end_where_they_are_too_large() {
    let top = tempfile::tempdir().unwrap();
    let at = |name: &str| top.path().join(name);
    fs::write(at("file"), "text").unwrap();
    symlink("file", at("link")).unwrap();
    let _listener = UnixListener::bind(at("socket")).unwrap();
    let from = open(top.path()).unwrap();
    let copy = |name: &str, most| {
        let new = Path::new("copy");
        copy_file((from.as_fd(), Path::new(name)), (from.as_fd(), new), most)
    };
    copy("file", 4).unwrap();
    assert_eq!(fs::read_to_string(at("copy")).unwrap(), "text");
    fs::remove_file(at("copy")).unwrap();
    for name in ["link", "socket", "none"] {
        copy(name, 4).unwrap();
        assert!(!at("copy").exists(), "{name}");
    }
    assert_eq!(copy("file", 3).unwrap_err().kind(), io::ErrorKind::FileTooLarge);
}
