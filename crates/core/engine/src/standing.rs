//! Whether a ring that lives is still what it was when its evidence was checked.
//!
//! The kernel shows it from outside, where no process inside can lie: the namespaces, users, privileges
//! and filters of the ring's first process, or of a guest's monitor, and every mount that it sees.
//! That is read when the ring has been raised, and again before every command, after every change of
//! rights and once a minute. A ring in which something differs is stopped.

use std::fs::File;
use std::io::{self, Read};
use std::os::fd::{BorrowedFd, OwnedFd};
use std::path::PathBuf;
use std::sync::{Mutex, MutexGuard, PoisonError};

use ringwall_audit::{Event, EvidenceChecked, Text};
use ringwall_ring::{EvidenceError, expected_mounts};
use ringwall_spec::{Ending, NamespaceKind, RingKind, WriteRights};
use rustix::fs::{AtFlags, Mode, OFlags, StatxFlags};
use rustix::io::Errno;

use crate::config::Engine;
use crate::ledger;
use crate::sandbox::Sandbox;

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
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Seen {
    namespaces: Vec<u64>,
    status: String,
    /// As the kernel wrote it.
    mounts: String,
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
    /// The state of a sandbox whose wall has just been checked.
    pub(crate) fn of(sandbox: &Sandbox) -> io::Result<Standing> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let path = format!("/proc/{}", sandbox.host_process());
        let process = rustix::fs::open(path, flags, Mode::empty())?;
        let seen = Seen::read(&process)?;
        let (ring, covered) = (sandbox.wall().outermost(), sandbox.covered);
        Ok(Standing(Mutex::new(Stands { ring, process, covered, seen })))
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
        Ok(())
    }

    /// Nothing can be written through a cover, wherever it came from.
    fn is_cover(&self, line: &MountLine<'_>) -> bool {
        line.is_read_only() && self.covered == Some(line.parent)
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
        Ok(())
    }

    fn now(&self) -> Result<Option<Seen>, EvidenceError> {
        match Seen::read(&self.process) {
            Ok(seen) => Ok(Some(seen)),
            Err(error) if is_gone(&error) => Ok(None),
            Err(error) => Err(self.unread(&error)),
        }
    }

    fn compare(&self, now: &Seen) -> Result<(), EvidenceError> {
        let (was, now) = (&self.seen, now);
        let same = [
            ("set of namespaces", was.namespaces == now.namespaces),
            ("set of users, privileges and filters", was.status == now.status),
        ];
        let Some((layer, _)) = same.iter().find(|(_, same)| !same) else { return Ok(()) };
        let show = |seen: &Seen| format!("{:?} {:?}", seen.namespaces, seen.status);
        Err(self.error(layer, show(was), show(now)))
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

impl Seen {
    fn read(process: &OwnedFd) -> io::Result<Seen> {
        let mut namespaces = Vec::with_capacity(NamespaceKind::ALL.len());
        for kind in NamespaceKind::ALL {
            let name = format!("ns/{}", kind.proc_name());
            namespaces.push(rustix::fs::statat(process, name, AtFlags::empty())?.st_ino);
        }
        let status = read(process, "status")?;
        let fixed = status.lines().filter(|line| FIXED.iter().any(|name| line.starts_with(name)));
        let status = fixed.collect::<Vec<_>>().join("; ");
        Ok(Seen { namespaces, status, mounts: read(process, "mountinfo")? })
    }
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
    /// The regular check of a shim without requests: the ring, and its limits.
    pub(crate) fn check_again(&self, sandbox: &Sandbox) -> Result<(), EvidenceError> {
        if let Some(standing) = &sandbox.standing {
            standing.lock().check()?;
        }
        match &sandbox.group {
            Some(group) => self.check_limits(group, &sandbox.spec),
            None => Ok(()),
        }
    }

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
mod tests {
    use super::*;

    const BEFORE: &str = "\
20 1 0:20 / / ro,nosuid - tmpfs none rw
21 20 0:21 / /ws rw,nosuid - overlay none rw
";

    fn stands() -> Stands {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let process = rustix::fs::open("/proc/self", flags, Mode::empty()).unwrap();
        let seen = Seen::read(&process).unwrap();
        Stands { ring: RingKind::Process, process, covered: None, seen }
    }

    fn with(mounts: &str) -> Stands {
        let stands = stands();
        Stands { seen: Seen { mounts: mounts.to_owned(), ..stands.seen }, ..stands }
    }

    #[test]
    fn a_process_that_nobody_touched_stands() {
        stands().check().unwrap();
    }

    #[test]
    fn another_mount_other_flags_and_a_lost_mount_are_noticed() {
        let none = |_: &MountLine<'_>| false;
        let was = with(BEFORE);
        was.compare_mounts(BEFORE, none).unwrap();
        let moved = BEFORE.replace("/ws", "/elsewhere");
        was.compare_mounts(&moved, none).unwrap();
        let more = format!("{BEFORE}22 20 0:5 / /dev/x rw - devtmpfs none rw\n");
        let flags = BEFORE.replace("/ / ro", "/ / rw");
        let fewer = BEFORE.lines().next().unwrap().to_owned();
        for other in [more, flags, fewer] {
            let error = was.compare_mounts(&other, none).unwrap_err();
            assert_eq!(error.layer, "set of mounts", "{other}");
        }
    }

    #[test]
    fn covers_of_hidden_files_may_come_and_go_but_nothing_writable_may() {
        let was = Stands { covered: Some(21), ..with(BEFORE) };
        let compare = |now: &str| was.compare_mounts(now, |line| was.is_cover(line));
        let cover = format!("{BEFORE}22 21 0:9 /no-file /ws/.env ro - tmpfs none ro\n");
        compare(&cover).unwrap();
        let before = Stands { covered: Some(21), ..with(&cover) };
        before.compare_mounts(BEFORE, |line| before.is_cover(line)).unwrap();
        compare(&cover.replace("/ws/.env ro", "/ws/.env rw")).unwrap_err();
        compare(&cover.replace("22 21", "22 20")).unwrap_err();
    }

    #[test]
    fn more_privileges_are_noticed() {
        let mut was = stands();
        was.seen.status = was.seen.status.replace("NoNewPrivs:", "NoNewPrivs: 1");
        assert_eq!(was.check().unwrap_err().layer, "set of users, privileges and filters");
        let mut was = stands();
        was.seen.namespaces.pop();
        assert_eq!(was.check().unwrap_err().layer, "set of namespaces");
    }

    #[test]
    fn all_that_lies_on_a_mount_is_found_and_where_it_leads() {
        let text = "\
21 20 0:21 / /ws ro - overlay none rw
30 21 0:21 / /ws ro - overlay none rw
31 30 0:21 /docs\\040of /ws/docs rw - overlay none rw
40 20 0:22 / /tmp rw - tmpfs none rw
";
        let lines = parse(text);
        assert_eq!(descendants(&lines, 21), [21, 30, 31]);
        assert_eq!(relative(lines[2].root, "/"), PathBuf::from("docs of"));
        assert_eq!(relative("/workspace/docs", "/workspace"), PathBuf::from("docs"));
        assert_eq!(relative("/workspace", "/workspace"), PathBuf::new());
    }

    #[test]
    fn a_process_that_has_ended_has_nothing_to_show() {
        let mut child = std::process::Command::new("sleep").arg("600").spawn().unwrap();
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let path = format!("/proc/{}", child.id());
        let process = rustix::fs::open(path, flags, Mode::empty()).unwrap();
        let stands = Stands { process, ..stands() };
        child.kill().unwrap();
        child.wait().unwrap();
        stands.check().unwrap();
    }
}
