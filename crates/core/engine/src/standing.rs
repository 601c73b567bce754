//! Whether a ring that lives is still what it was when its evidence was checked.
//!
//! The kernel shows it from outside, where no process inside can lie: the namespaces, users, privileges,
//! filters and limits of the ring's first process, or of a guest's monitor, every mount that it sees, and
//! the limits of its control group. The wardens of rings inside are processes of this kernel, too, unless
//! they are in a guest. All that is read when the wall has been raised, and again before every command,
//! after every change of rights and once a minute. A sandbox in which something differs is stopped.

use std::fs::File;
use std::io::{self, Read};
use std::os::fd::{BorrowedFd, OwnedFd};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use ringwall_audit::{Event, EvidenceChecked, Text};
use ringwall_linux::cgroup::{Group, GroupLimits, Hierarchy};
use ringwall_ring::{EvidenceError, expected_mounts};
use ringwall_spec::{Ending, NamespaceKind, RingKind, WriteRights};
use rustix::fs::{AtFlags, Mode, OFlags, StatxFlags};
use rustix::io::Errno;

use crate::config::Engine;
use crate::sandbox::Sandbox;
use crate::watchdog::processes;
use crate::{ledger, limits};

/// More than a ring's status or its list of mounts.
const MAX_SEEN_BYTES: u64 = 4 << 20;

/// Lines of `/proc/PID/status` that never change once a ring is up.
const FIXED: [&str; 10] = [
    "Uid:",
    "Gid:",
    "CapInh:",
    "CapPrm:",
    "CapEff:",
    "CapBnd:",
    "CapAmb:",
    "NoNewPrivs:",
    "Seccomp:",
    "Seccomp_filters:",
];

/// What a ring must go on to be.
#[derive(Debug)]
pub(crate) struct Standing(Mutex<Stands>);

/// The locked part of a [`Standing`], for those who look at it or change it.
#[derive(Debug)]
pub(crate) struct Stands {
    ring: RingKind,
    /// `/proc/PID`: of this process only, even if another process gets its number later.
    process: OwnedFd,
    /// The mount of a workspace that is the host's own directory. Covers lie on its hidden files; the
    /// kernel takes one away with its file, and a new file gets a new one.
    covered: Option<u64>,
    seen: Seen,
    /// The wardens of rings inside. They share its mounts.
    inner: Vec<Inner>,
    group: Option<Limited>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Seen {
    confined: Confined,
    /// As the kernel wrote it.
    mounts: String,
}

/// What confines a process besides its mounts.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Confined {
    namespaces: Vec<u64>,
    status: String,
    /// As the kernel wrote it.
    limits: String,
}

/// The warden of a ring inside.
#[derive(Debug)]
struct Inner {
    process: OwnedFd,
    confined: Confined,
}

/// A control group, and what it was asked to keep.
#[derive(Debug)]
struct Limited {
    group: Arc<Group>,
    asked: GroupLimits,
}

/// What counts of one mount. Jobs may rename directories that lead to it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct MountLine<'a> {
    id: u64,
    parent: u64,
    device: &'a str,
    /// What of its file system it shows.
    root: &'a str,
    at: &'a str,
    options: &'a str,
}

impl Standing {
    /// The state of a sandbox whose wall has just been checked, and in which no command has run.
    pub(crate) fn of(sandbox: &Sandbox, cgroups: &Hierarchy) -> io::Result<Standing> {
        let first = sandbox.host_process();
        let process = open_process(first)?;
        let seen = Seen::read(&process)?;
        let (ring, covered) = (sandbox.wall().outermost(), sandbox.covered);
        let mut inner = Vec::new();
        // The rings inside a guest are not processes of this kernel.
        if ring != RingKind::Vm && sandbox.wall().rings().len() > 1 {
            let unknown = || io::Error::other("the kernel does not list the processes of the ring");
            let all = processes(first, |_| true).ok_or_else(unknown)?;
            for pid in all.into_iter().filter(|pid| *pid != first) {
                inner.extend(Inner::of(pid)?);
            }
        }
        let asked = limits::group_limits(&sandbox.spec, cgroups);
        let group = sandbox.group.clone().map(|group| Limited { group, asked });
        Ok(Standing(Mutex::new(Stands { ring, process, covered, seen, inner, group })))
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, Stands> {
        // The contents are written in one piece.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Stands {
    /// A ring that has ended has nothing to show.
    pub(crate) fn check(&self) -> Result<(), EvidenceError> {
        let Some(now) = self.now()? else { return Ok(()) };
        self.compare(&now)?;
        if now.mounts != self.seen.mounts {
            self.compare_mounts(&now.mounts, |line| self.is_cover(line))?;
        }
        self.check_limits()
    }

    /// The limits as the kernel has them now.
    fn check_limits(&self) -> Result<(), EvidenceError> {
        let Some(Limited { group, asked }) = &self.group else { return Ok(()) };
        match group.read_back() {
            Ok(found) => limits::compare(self.ring, asked, &found).map(drop),
            // The group is removed when all in it have ended.
            Err(_) if self.now()?.is_none() => Ok(()),
            Err(error) => {
                let expected = "to be read".to_owned();
                Err(self.error("control group", expected, error.to_string()))
            }
        }
    }

    /// Nothing can be written through a cover, wherever it came from.
    fn is_cover(&self, line: &MountLine<'_>) -> bool {
        let Some(covered) = self.covered.filter(|_| line.is_read_only()) else { return false };
        // A directory in it with something hidden is a mount of its own, and was from the start.
        line.parent == covered
            || descendants(&parse(&self.seen.mounts), covered).contains(&line.parent)
    }

    /// After a change of rights: everything is as before but for the mounts on the workspace, and of
    /// these only those of the rights are writable.
    pub(crate) fn expect_rights(
        &mut self,
        workspace: BorrowedFd<'_>,
        rights: &WriteRights,
    ) -> Result<(), EvidenceError> {
        let Some(now) = self.now()? else { return Ok(()) };
        self.compare(&now)?;
        let id = mount_id(workspace).map_err(|error| self.unread(&error))?;
        let lines = parse(&now.mounts);
        let on_workspace = descendants(&lines, id);
        self.compare_mounts(&now.mounts, |line| on_workspace.contains(&line.id))?;
        let top = lines.iter().find(|line| line.id == id).map_or("", |line| line.root);
        let mut writable: Vec<PathBuf> = lines
            .iter()
            .filter(|line| on_workspace.contains(&line.id) && !line.is_read_only())
            .map(|line| relative(line.root, top))
            .collect();
        writable.sort();
        let mut expected = expected_mounts(rights);
        expected.sort();
        if writable != expected {
            let (expected, seen) = (format!("{expected:?}"), format!("{writable:?}"));
            return Err(self.error("writable part of the workspace", expected, seen));
        }
        self.seen = now;
        self.check_limits()
    }

    fn now(&self) -> Result<Option<Seen>, EvidenceError> {
        match Seen::read(&self.process) {
            Ok(seen) => Ok(Some(seen)),
            Err(error) if is_gone(&error) => Ok(None),
            Err(error) => Err(self.unread(&error)),
        }
    }

    /// Compares the first process with this, and the wardens inside with what they were.
    fn compare(&self, now: &Seen) -> Result<(), EvidenceError> {
        self.compare_process("", &self.seen.confined, &now.confined)?;
        for Inner { process, confined } in &self.inner {
            match Confined::read(process) {
                Ok(now) => self.compare_process(" inside", confined, &now)?,
                Err(error) if is_gone(&error) => {}
                Err(error) => return Err(self.unread(&error)),
            }
        }
        Ok(())
    }

    fn compare_process(
        &self,
        place: &str,
        was: &Confined,
        now: &Confined,
    ) -> Result<(), EvidenceError> {
        let parts = [
            ("set of namespaces", was.namespaces == now.namespaces),
            ("set of users, privileges and filters", was.status == now.status),
            ("set of limits", was.limits == now.limits),
        ];
        let Some((layer, _)) = parts.iter().find(|(_, same)| !same) else { return Ok(()) };
        let show = |seen: &Confined| match *layer {
            "set of limits" => format!("{:?}", seen.limits),
            _ => format!("{:?} {:?}", seen.namespaces, seen.status),
        };
        Err(self.error(&format!("{layer}{place}"), show(was), show(now)))
    }

    /// `may_differ` says of a mount that it is judged otherwise.
    fn compare_mounts(
        &self,
        now: &str,
        may_differ: impl Fn(&MountLine<'_>) -> bool,
    ) -> Result<(), EvidenceError> {
        let lines = |text| parse(text).into_iter().filter(|line| !may_differ(line));
        let (was, now): (Vec<_>, Vec<_>) =
            (lines(&self.seen.mounts).collect(), lines(now).collect());
        let differ = |one: &[MountLine<'_>], other: &[MountLine<'_>]| {
            one.iter().find(|line| !other.iter().any(|it| it.is_same(line))).map(MountLine::show)
        };
        let (lost, new) = (differ(&was, &now), differ(&now, &was));
        if lost.is_none() && new.is_none() {
            return Ok(());
        }
        let none = || "no such mount".to_owned();
        Err(self.error("set of mounts", lost.unwrap_or_else(none), new.unwrap_or_else(none)))
    }

    fn unread(&self, error: &io::Error) -> EvidenceError {
        self.error("evidence", "to be read".to_owned(), error.to_string())
    }

    fn error(&self, layer: &str, expected: String, seen: String) -> EvidenceError {
        EvidenceError { ring: self.ring, layer: layer.to_owned(), expected, seen }
    }
}

impl Inner {
    /// None if it has ended.
    fn of(pid: u32) -> io::Result<Option<Inner>> {
        let read = open_process(pid).and_then(|process| {
            let confined = Confined::read(&process)?;
            Ok(Inner { process, confined })
        });
        match read {
            Err(error) if is_gone(&error) => Ok(None),
            read => read.map(Some),
        }
    }
}

impl Seen {
    fn read(process: &OwnedFd) -> io::Result<Seen> {
        let confined = Confined::read(process)?;
        Ok(Seen { confined, mounts: read(process, "mountinfo")? })
    }
}

impl Confined {
    fn read(process: &OwnedFd) -> io::Result<Confined> {
        let mut namespaces = Vec::with_capacity(NamespaceKind::ALL.len());
        for kind in NamespaceKind::ALL {
            let name = format!("ns/{}", kind.proc_name());
            namespaces.push(rustix::fs::statat(process, name, AtFlags::empty())?.st_ino);
        }
        let status = read(process, "status")?;
        let fixed = status.lines().filter(|line| FIXED.iter().any(|name| line.starts_with(name)));
        let status = fixed.collect::<Vec<_>>().join("; ");
        Ok(Confined { namespaces, status, limits: read(process, "limits")? })
    }
}

fn open_process(pid: u32) -> io::Result<OwnedFd> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    Ok(rustix::fs::open(format!("/proc/{pid}"), flags, Mode::empty())?)
}

fn read(process: &OwnedFd, name: &str) -> io::Result<String> {
    let flags = OFlags::RDONLY | OFlags::CLOEXEC;
    let file = File::from(rustix::fs::openat(process, name, flags, Mode::empty())?);
    let mut bytes = Vec::with_capacity(16 << 10);
    file.take(MAX_SEEN_BYTES).read_to_end(&mut bytes)?;
    // Paths in it need not be UTF-8.
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

/// The process has ended: it is not there, or its number is free.
fn is_gone(error: &io::Error) -> bool {
    let gone = [Errno::SRCH, Errno::NOENT].map(Errno::raw_os_error);
    error.raw_os_error().is_some_and(|number| gone.contains(&number))
}

/// As `/proc/PID/mountinfo` numbers it. It cannot come to mean another one: the mount is held.
pub(crate) fn mount_id(mount: BorrowedFd<'_>) -> io::Result<u64> {
    let known = rustix::fs::statx(mount, "", AtFlags::EMPTY_PATH, StatxFlags::MNT_ID)?;
    Ok(known.stx_mnt_id)
}

impl<'a> MountLine<'a> {
    /// `36 35 98:0 /root /at rw,noatime shared:1 - ext4 /dev/x rw` (proc_pid_mountinfo(5)).
    fn parse(line: &'a str) -> Option<MountLine<'a>> {
        let mut words = line.split(' ');
        Some(MountLine {
            id: words.next()?.parse().ok()?,
            parent: words.next()?.parse().ok()?,
            device: words.next()?,
            root: words.next()?,
            at: words.next()?,
            options: words.next()?,
        })
    }

    fn is_same(&self, other: &MountLine<'_>) -> bool {
        (self.id, self.parent, self.device, self.options)
            == (other.id, other.parent, other.device, other.options)
    }

    fn is_read_only(&self) -> bool {
        self.options.split(',').any(|option| option == "ro")
    }

    fn show(&self) -> String {
        format!("{} at {} ({})", self.root, self.at, self.options)
    }
}

fn parse(text: &str) -> Vec<MountLine<'_>> {
    text.lines().filter_map(MountLine::parse).collect()
}

/// A mount and all that lie on it.
fn descendants(lines: &[MountLine<'_>], top: u64) -> Vec<u64> {
    let mut found = vec![top];
    let mut next = 0;
    while let Some(parent) = found.get(next).copied() {
        let below = lines.iter().filter(|line| line.parent == parent && line.id != parent);
        found.extend(below.map(|line| line.id));
        next += 1;
    }
    found
}

/// What a mount shows, seen from the workspace. The kernel writes blanks and the like as `\040`.
fn relative(root: &str, top: &str) -> PathBuf {
    let below = root.strip_prefix(top.trim_end_matches('/')).unwrap_or(root);
    PathBuf::from(unescaped(below.trim_start_matches('/')))
}

fn unescaped(text: &str) -> String {
    let escapes = [("\\040", " "), ("\\011", "\t"), ("\\012", "\n"), ("\\134", "\\")];
    escapes.iter().fold(text.to_owned(), |text, (escape, plain)| text.replace(escape, plain))
}

impl Engine {
    /// Writes down why a sandbox is ended.
    pub(crate) fn end_changed(&self, sandbox: &Sandbox, error: &EvidenceError) -> Ending {
        let checked = EvidenceChecked {
            ring: Text::new(error.ring.to_string()),
            passed: false,
            checks: 1,
            missing: vec![Text::new(error.to_string())],
            digest: None,
        };
        let record = (ledger::ids(&sandbox.id), Event::EvidenceChecked(checked));
        // It is ended in any case.
        let _ = self.record(vec![record]);
        Ending::Stopped
    }
}

#[cfg(test)]
mod tests;
