//! The way of old kernels, on this one.

use rustix::process::{WaitOptions, waitpid};

use super::*;
use crate::mount::{attach, open_place, tmpfs};
use crate::process::{self, Cloned, clone_into};
use crate::step::{IdMaps, IdRange};

/// Runs `body` in a child with a mount namespace of its own. False where there are none for us.
pub(in crate::mount) fn in_own_mounts(body: impl FnOnce() -> io::Result<()>) -> bool {
    match clone_into(0).unwrap() {
        Cloned::Child => {
            let entered = enter();
            let code = match (entered.is_ok(), entered.and_then(|()| body())) {
                (false, _) => 3,
                (true, Ok(())) => 0,
                (true, Err(error)) => {
                    eprintln!("{error}");
                    1
                }
            };
            process::exit_now(code)
        }
        Cloned::Parent { pid, .. } => {
            let (_, status) = waitpid(Some(pid), WaitOptions::empty()).unwrap().unwrap();
            match status.exit_status() {
                Some(0) => true,
                Some(3) => false,
                other => panic!("the child failed: {other:?}"),
            }
        }
    }
}

fn enter() -> io::Result<()> {
    let (uid, gid) = (rustix::process::getuid().as_raw(), rustix::process::getgid().as_raw());
    if uid != 0 {
        let one = |outside| vec![IdRange { inside: 0, outside, count: 1 }];
        process::unshare_user_namespace(&IdMaps { uids: one(uid), gids: one(gid) })?;
    }
    process::unshare_mounts()
}

/// A tmpfs over /proc, as a ring on its way up has it, with the old /proc at `proc`.
pub(in crate::mount) fn base() -> io::Result<OwnedFd> {
    let proc = clone_tree(CWD, Path::new("/proc"), true)?;
    let base = tmpfs(8 << 20, 1024, 0o755)?;
    attach(base.as_fd(), rustix::fs::open("/proc", OFlags::PATH, Mode::empty())?.as_fd())?;
    attach(proc.as_fd(), directory(&base, "proc")?.as_fd())?;
    Ok(base)
}

pub(in crate::mount) fn directory(base: &OwnedFd, name: &str) -> io::Result<OwnedFd> {
    rustix::fs::mkdirat(base, name, Mode::RWXU)?;
    open_place(base.as_fd(), Path::new(name))
}

pub(in crate::mount) fn write(dir: &OwnedFd, name: &str, text: &str) -> io::Result<()> {
    let flags = OFlags::CREATE | OFlags::WRONLY | OFlags::TRUNC | OFlags::CLOEXEC;
    let file = rustix::fs::openat(dir, name, flags, Mode::RUSR | Mode::WUSR)?;
    io::Write::write_all(&mut std::fs::File::from(file), text.as_bytes())
}

pub(in crate::mount) fn read(dir: &OwnedFd, name: &str) -> io::Result<String> {
    let file = rustix::fs::openat(dir, name, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())?;
    io::read_to_string(std::fs::File::from(file))
}

/// Layers with a file each, and one file that all of them have.
fn layers(base: &OwnedFd, count: usize) -> io::Result<Layers> {
    let mut lower = Vec::new();
    for number in 0..count {
        let layer = directory(base, &format!("layer-{number}"))?;
        write(&layer, &format!("only-{number}"), "")?;
        write(&layer, "all", &number.to_string())?;
        lower.push(layer);
    }
    let (upper, work) = (directory(base, "upper")?, directory(base, "work")?);
    Ok(Layers { lower, upper, work, without_marks: WithoutMarks::Overlay })
}

fn check_by_name(count: usize) -> io::Result<()> {
    let base = base()?;
    assert!(!Path::new("/proc/self/fd").exists(), "no path leads to the descriptors");
    let layers = layers(&base, count)?;
    let mounted = || read(&base, "proc/self/mountinfo").map(|text| text.lines().count());
    let before = (rustix::process::getcwd(Vec::new())?, mounted()?);
    let tree = layers.by_name(open_place(base.as_fd(), Path::new("proc"))?.as_fd())?;
    assert_eq!(before, (rustix::process::getcwd(Vec::new())?, mounted()?), "nothing is left");
    assert_eq!(read(&tree, "all")?, (count - 1).to_string(), "the topmost layer is on top");
    for number in 0..count {
        rustix::fs::statat(&tree, format!("only-{number}"), AtFlags::empty())?;
    }
    write(&tree, "all", "changed")?;
    assert_eq!(read(&layers.upper, "all")?, "changed");
    assert!(rustix::fs::statat(&layers.work, PLACE, AtFlags::empty()).is_err());
    // As any detached tree it can be attached, once.
    attach(tree.as_fd(), directory(&base, "merged")?.as_fd())?;
    assert_eq!(read(&base, "merged/all")?, "changed");
    Ok(())
}

#[test]
fn layers_by_name_make_the_same_overlay_where_no_path_leads_to_proc() {
    if !in_own_mounts(|| check_by_name(2)) {
        eprintln!("not tested here: no mount namespaces");
    }
}

#[test]
fn as_many_layers_as_an_image_may_have_fit_in_the_names() {
    if !in_own_mounts(|| check_by_name(127)) {
        eprintln!("not tested here: no mount namespaces");
    }
}

#[test]
fn names_that_do_not_fit_are_refused_with_the_kernel_that_takes_them() {
    let lower: Vec<RawFd> = (1000..1500).collect();
    let text = options(&lower, 7, 8).unwrap().into_string().unwrap();
    assert!(text.starts_with("userxattr,lowerdir=1499:1498:"), "{text}");
    assert!(text.ends_with(":1000,upperdir=7,workdir=8"), "{text}");
    let lower: Vec<RawFd> = (1000..2000).collect();
    let refused = options(&lower, 7, 8).unwrap_err().to_string();
    assert!(refused.contains("1000 layers") && refused.contains("Linux 6.13"), "{refused}");
}

#[test]
fn a_place_that_is_no_directory_makes_no_overlay_and_leaves_the_working_directory() {
    let tested = in_own_mounts(|| {
        let base = base()?;
        let mut layers = layers(&base, 1)?;
        layers.upper = open_place(base.as_fd(), Path::new("layer-0/all"))?;
        let before = rustix::process::getcwd(Vec::new())?;
        let proc = open_place(base.as_fd(), Path::new("proc"))?;
        assert!(layers.by_name(proc.as_fd()).is_err());
        assert_eq!(before, rustix::process::getcwd(Vec::new())?);
        assert!(rustix::fs::statat(&layers.work, PLACE, AtFlags::empty()).is_err());
        Ok(())
    });
    if !tested {
        eprintln!("not tested here: no mount namespaces");
    }
}

#[test]
fn this_kernel_is_asked_for_marks_and_not_believed() {
    let dir = tempfile::tempdir_in("/dev/shm").unwrap();
    let open = |flags| {
        rustix::fs::open(dir.path(), OFlags::DIRECTORY | OFlags::CLOEXEC | flags, Mode::empty())
            .unwrap()
    };
    let layers = Layers {
        lower: Vec::new(),
        upper: open(OFlags::PATH),
        work: open(OFlags::PATH),
        without_marks: WithoutMarks::Copy,
    };
    let name = "user.overlay.opaque";
    let set =
        rustix::fs::fsetxattr(open(OFlags::RDONLY), name, b"y", rustix::fs::XattrFlags::empty());
    assert_eq!(layers.keeps_marks().unwrap(), set.is_ok());
}
