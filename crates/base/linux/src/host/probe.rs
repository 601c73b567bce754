//! Tries what a wall needs, for real, in a child that is gone afterwards.
//!
//! The child uses the launcher's own functions, so what works here works there. Settings, kernel
//! versions and security modules are not asked: they are only used to explain a failure.

use std::fmt;
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{CWD, Mode, OFlags, XattrFlags};
use rustix::io::Errno;
use rustix::process::{Pid, Signal, WaitOptions};

use super::ids::{HeldIds, NoIds};
use super::syscalls::may_mount;
use crate::mount;
use crate::process::{self, Cloned, clone_into};
use crate::step::{IdMaps, IdRange};

/// All trials together take milliseconds; a host on which they hang has failed them.
const PATIENCE: Duration = Duration::from_secs(10);

/// Where a ring has its base before it becomes a root, and /proc below that.
const BASE: &str = "/proc";
const PROC: &str = "proc";

/// What is tried, in this order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Trial {
    /// A user namespace with the maps that a ring gets.
    UserNamespace,
    /// Showing a directory of the host with other owners. Only root needs it.
    IdMappedMount,
    MountNamespace,
    Tmpfs,
    /// `user.` attributes on tmpfs: overlayfs keeps its marks there.
    TmpfsXattr,
    /// overlayfs mounted inside the user namespace.
    Overlay,
    PidNamespace,
    /// A fresh /proc for the pid namespace.
    Proc,
    NetworkNamespace,
    IpcNamespace,
    UtsNamespace,
    CgroupNamespace,
}

impl Trial {
    pub const ALL: [Trial; 12] = [
        Trial::UserNamespace,
        Trial::IdMappedMount,
        Trial::MountNamespace,
        Trial::Tmpfs,
        Trial::TmpfsXattr,
        Trial::Overlay,
        Trial::PidNamespace,
        Trial::Proc,
        Trial::NetworkNamespace,
        Trial::IpcNamespace,
        Trial::UtsNamespace,
        Trial::CgroupNamespace,
    ];

    fn index(self) -> usize {
        self as usize
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Tried {
    Works,
    Fails(Errno),
    /// Something that it stands on failed before, or this user has no use for it.
    NotTried,
}

impl fmt::Display for Tried {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Tried::Works => f.write_str("works"),
            Tried::Fails(why) => write!(f, "{}", io::Error::from(*why)),
            Tried::NotTried => f.write_str("not tried"),
        }
    }
}

/// What came of each trial.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Probe {
    results: [Tried; Trial::ALL.len()],
}

impl Probe {
    pub fn result(&self, trial: Trial) -> Tried {
        self.results.get(trial.index()).copied().unwrap_or(Tried::NotTried)
    }

    pub fn works(&self, trial: Trial) -> bool {
        self.result(trial) == Tried::Works
    }
}

#[derive(Debug, thiserror::Error)]
pub enum ProbeError {
    #[error("cannot start a process to try the kernel's features in: {0}")]
    Start(io::Error),
    #[error(
        "trying the kernel's features took longer than {PATIENCE:?}; the host is overloaded or a trial hangs"
    )]
    TooSlow,
}

/// Tries everything. `layers` is a directory on the file system that holds image layers, for the
/// trial of id-mapped mounts.
pub fn probe(layers: &Path) -> Result<Probe, ProbeError> {
    let (reader, writer) = io::pipe().map_err(ProbeError::Start)?;
    match fork().map_err(ProbeError::Start)? {
        None => {
            drop(reader);
            let mut report = Report { to: File::from(OwnedFd::from(writer)) };
            report.try_all(layers);
            process::exit_now(0)
        }
        Some(child) => {
            drop(writer);
            let collected = collect(File::from(OwnedFd::from(reader)));
            if collected.is_err() {
                let _ = rustix::process::kill_process(child, Signal::KILL);
            }
            let _ = rustix::process::waitpid(Some(child), WaitOptions::empty());
            collected
        }
    }
}

/// The C library's fork, not a bare clone: it leaves the child with a working allocator also when
/// other threads were allocating.
fn fork() -> io::Result<Option<Pid>> {
    // SAFETY: the child only runs code of this file, which takes no lock of ours, and leaves by
    // `_exit`.
    let pid = unsafe { libc::fork() };
    if pid < 0 { Err(io::Error::last_os_error()) } else { Ok(Pid::from_raw(pid)) }
}

/// Reads two bytes per trial, its number and the error number or 0, until the child is done.
fn collect(mut from: File) -> Result<Probe, ProbeError> {
    let mut probe = Probe { results: [Tried::NotTried; Trial::ALL.len()] };
    let until = Instant::now() + PATIENCE;
    loop {
        let left = until.saturating_duration_since(Instant::now());
        let timeout = Timespec::try_from(left).map_err(|_| ProbeError::TooSlow)?;
        match poll(&mut [PollFd::new(&from, PollFlags::IN)], Some(&timeout)) {
            Ok(0) => return Err(ProbeError::TooSlow),
            Ok(_) => {}
            Err(Errno::INTR) => continue,
            Err(why) => return Err(ProbeError::Start(why.into())),
        }
        let mut record = [0; 2];
        match from.read_exact(&mut record) {
            Ok(()) => {}
            Err(why) if why.kind() == io::ErrorKind::UnexpectedEof => return Ok(probe),
            Err(why) => return Err(ProbeError::Start(why)),
        }
        let [trial, errno] = record;
        if let Some(slot) = probe.results.get_mut(usize::from(trial)) {
            *slot = match errno {
                0 => Tried::Works,
                errno => Tried::Fails(Errno::from_raw_os_error(errno.into())),
            };
        }
    }
}

/// The child's side.
struct Report {
    to: File,
}

impl Report {
    /// Sends what came of a trial; gives the value back when it worked.
    fn tell<T>(&mut self, trial: Trial, result: io::Result<T>) -> Option<T> {
        let errno = result.as_ref().err().map_or(0, error_number);
        let number = u8::try_from(trial.index()).unwrap_or(u8::MAX);
        // The parent is the only reader; without it there is nobody to try for.
        let _ = self.to.write_all(&[number, errno]);
        result.ok()
    }

    fn try_all(&mut self, layers: &Path) {
        let _ = process::die_with_parent();
        process::default_child_exits();
        if self.enter_user_namespace(layers).is_none() {
            return;
        }
        self.try_namespaces();
        let entered = process::unshare_mounts();
        if self.tell(Trial::MountNamespace, entered).is_some() {
            self.try_mounts();
        }
    }

    fn enter_user_namespace(&mut self, layers: &Path) -> Option<()> {
        let (uid, gid) = (rustix::process::getuid().as_raw(), rustix::process::getgid().as_raw());
        if uid != 0 {
            return self.enter_as_one_user(uid, gid);
        }
        // The engine of a moment: any range will do.
        let held = match HeldIds::take(std::process::id()) {
            Ok(held) => held,
            Err(why) => return self.tell(Trial::UserNamespace, Err(without_ids(&why))),
        };
        let (first, count) = (held.ids.first, held.ids.count);
        if !may_mount() {
            let left = process::leave_root(first, first);
            return match left {
                Ok(()) => self.enter_as_one_user(first, first),
                Err(why) => self.tell(Trial::UserNamespace, Err(why)),
            };
        }
        let namespace = match process::make_user_namespace(&maps(first, first, count)) {
            Ok(namespace) => namespace,
            Err(why) => return self.tell(Trial::UserNamespace, Err(why)),
        };
        let mapped = mount::clone_tree(CWD, layers, false)
            .and_then(|tree| mount::id_map(tree.as_fd(), namespace.as_fd()));
        self.tell(Trial::IdMappedMount, mapped);
        let entered = process::enter_user_namespace(namespace.as_fd());
        let entered = entered.and_then(|()| process::become_user(0, 0));
        self.tell(Trial::UserNamespace, entered)
    }

    fn enter_as_one_user(&mut self, uid: u32, gid: u32) -> Option<()> {
        let entered = process::unshare_user_namespace(&maps(uid, gid, 1));
        let entered = entered.and_then(|()| process::become_user(0, 0));
        self.tell(Trial::UserNamespace, entered)
    }

    fn try_namespaces(&mut self) {
        let simple = [
            (Trial::NetworkNamespace, libc::CLONE_NEWNET),
            (Trial::IpcNamespace, libc::CLONE_NEWIPC),
            (Trial::UtsNamespace, libc::CLONE_NEWUTS),
            (Trial::CgroupNamespace, libc::CLONE_NEWCGROUP),
        ];
        for (trial, flag) in simple {
            self.tell(trial, in_a_child(flag, || Ok(())));
        }
        let made = in_a_child(libc::CLONE_NEWPID, || Ok(()));
        if self.tell(Trial::PidNamespace, made).is_some() {
            let flags = libc::CLONE_NEWPID | libc::CLONE_NEWNS;
            self.tell(Trial::Proc, in_a_child(flags, || mount::proc().map(drop)));
        }
    }

    fn try_mounts(&mut self) {
        let Some(scratch) = self.tell(Trial::Tmpfs, mounted_scratch()) else {
            return;
        };
        let marked = rustix::fs::fsetxattr(&scratch, "user.ringwall", b"y", XattrFlags::empty());
        self.tell(Trial::TmpfsXattr, marked.map_err(io::Error::from));
        self.tell(Trial::Overlay, overlay_on(&scratch));
    }
}

/// A tmpfs in our own mount namespace, where a ring has its base: over /proc, which stays in view
/// only below it. So what a launcher does not find at its old path is not there for a trial either.
fn mounted_scratch() -> io::Result<OwnedFd> {
    let proc = mount::clone_tree(CWD, Path::new(BASE), true)?;
    let scratch = mount::tmpfs(1 << 20, 64, 0o700)?;
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let place = rustix::fs::open(BASE, flags, Mode::empty())?;
    mount::attach(scratch.as_fd(), place.as_fd())?;
    rustix::fs::mkdirat(&scratch, PROC, Mode::RWXU)?;
    let place = mount::open_place(scratch.as_fd(), Path::new(PROC))?;
    mount::attach(proc.as_fd(), place.as_fd())?;
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    Ok(rustix::fs::openat(&scratch, ".", flags, Mode::empty())?)
}

/// An overlay of two layers, as the launcher makes it, and a file in it.
fn overlay_on(scratch: &OwnedFd) -> io::Result<()> {
    let directory = |name: &str| -> io::Result<OwnedFd> {
        rustix::fs::mkdirat(scratch, name, Mode::RWXU)?;
        mount::open_place(scratch.as_fd(), Path::new(name))
    };
    let lower = vec![directory("bottom")?, directory("top")?];
    let layers = mount::Layers {
        lower,
        upper: directory("upper")?,
        work: directory("work")?,
        without_marks: mount::WithoutMarks::Overlay,
    };
    let tree = layers.overlay(|| mount::open_place(scratch.as_fd(), Path::new(PROC)))?;
    let flags = OFlags::CREATE | OFlags::EXCL | OFlags::WRONLY | OFlags::CLOEXEC;
    rustix::fs::openat(&tree, "file", flags, Mode::RUSR)?;
    Ok(())
}

/// Runs `action` in a child in new namespaces; the exit code carries the error number.
fn in_a_child(flags: libc::c_int, action: impl FnOnce() -> io::Result<()>) -> io::Result<()> {
    match clone_into(flags.unsigned_abs().into())? {
        Cloned::Child => {
            let errno = action().as_ref().err().map_or(0, error_number);
            process::exit_now(errno.into())
        }
        Cloned::Parent { pid, .. } => {
            let status = rustix::process::waitpid(Some(pid), WaitOptions::empty())?;
            match status.and_then(|(_, status)| status.exit_status()) {
                Some(0) => Ok(()),
                Some(errno) => Err(io::Error::from_raw_os_error(errno)),
                None => Err(Errno::CHILD.into()),
            }
        }
    }
}

fn maps(first_uid: u32, first_gid: u32, count: u32) -> IdMaps {
    let from = |outside| vec![IdRange { inside: 0, outside, count }];
    IdMaps { uids: from(first_uid), gids: from(first_gid) }
}

/// As the kernel says it of maps with ids that are not there.
fn without_ids(why: &NoIds) -> io::Error {
    match why {
        NoIds::None => Errno::PERM.into(),
        NoIds::AllHeld(_) => Errno::USERS.into(),
        NoIds::Unreadable(_) => Errno::IO.into(),
    }
}

/// Linux's error numbers fit in a byte; an error without one counts as "invalid".
fn error_number(error: &io::Error) -> u8 {
    error.raw_os_error().and_then(|errno| u8::try_from(errno).ok()).unwrap_or(22)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn namespaces() -> Vec<std::path::PathBuf> {
        let link = |name: &&str| std::fs::read_link(format!("/proc/self/ns/{name}")).unwrap();
        ["user", "mnt", "pid", "net", "ipc", "uts", "cgroup"].iter().map(link).collect()
    }

    #[test]
    fn probing_answers_every_trial_and_leaves_this_process_as_it_was() {
        let before = (namespaces(), std::fs::read("/proc/self/mountinfo").unwrap());
        let probe = probe(Path::new("/")).unwrap();
        assert_eq!(before, (namespaces(), std::fs::read("/proc/self/mountinfo").unwrap()));
        if !probe.works(Trial::UserNamespace) {
            println!("not tested here: {}", probe.result(Trial::UserNamespace));
            return;
        }
        for trial in Trial::ALL {
            let needed = trial != Trial::IdMappedMount || rustix::process::getuid().is_root();
            let tried = probe.result(trial) != Tried::NotTried;
            assert!(tried || !needed || !probe.works(Trial::MountNamespace), "{trial:?}");
        }
    }

    #[test]
    fn the_error_of_a_child_reaches_the_parent() {
        let failed = in_a_child(0, || Err(Errno::NODEV.into())).unwrap_err();
        assert_eq!(failed.raw_os_error(), Some(Errno::NODEV.raw_os_error()));
        assert!(in_a_child(0, || Ok(())).is_ok());
    }

    #[test]
    fn a_layer_directory_that_is_not_there_fails_only_the_trial_that_needs_it() {
        let probe = probe(Path::new("/no/such/place")).unwrap();
        if rustix::process::getuid().is_root() && probe.works(Trial::UserNamespace) {
            assert_eq!(probe.result(Trial::IdMappedMount), Tried::Fails(Errno::NOENT));
        }
    }
}
