//! Looks at the host from outside Ringwall: what is there on our account?
//!
//! The test process adopts every orphan below it, so whatever Ringwall starts stays in the tree of
//! the test, however it detaches itself. What others do on the same host is told apart or waited
//! out, so that tests can run beside each other.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::{OsStr, OsString};
use std::fmt::Debug;
use std::fs;
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::thread::sleep;
use std::time::{Duration, Instant};

use rustix::fs::inotify::{self, CreateFlags, WatchFlags};
use rustix::process::{Pid, WaitOptions, getpid, set_child_subreaper, waitpid};

/// Far longer than the kernel needs to take anything apart, even on a busy machine.
const PATIENCE: Duration = Duration::from_secs(20);
const PAUSE: Duration = Duration::from_millis(5);

/// One living process below the test.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Process {
    pub pid: i32,
    /// At most 15 bytes of the program's name.
    pub name: String,
    pub parent: i32,
    zombie: bool,
}

/// A namespace that is not the test's own.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Namespace {
    kind: String,
    inode: u64,
}

/// The host as it was at the beginning, and every sandbox since.
#[derive(Debug)]
pub struct Witness {
    mounts: BTreeSet<String>,
    /// Tells of every record that is made.
    records: OwnedFd,
    /// The sandboxes that there were: their control groups are called after them.
    sandboxes: Mutex<BTreeSet<OsString>>,
}

impl Witness {
    /// Watches the sandboxes of the state directory `home` from now on.
    pub fn new(home: &Path) -> Witness {
        set_child_subreaper(Some(getpid())).expect("orphans come to us");
        let flags = CreateFlags::CLOEXEC | CreateFlags::NONBLOCK;
        let records = inotify::init(flags).expect("a watch");
        inotify::add_watch(&records, home.join("sandboxes"), WatchFlags::CREATE)
            .expect("a directory of records");
        Witness { mounts: mounts(), records, sandboxes: Mutex::default() }
    }

    /// Every process that was started by this test, directly or not, and still runs.
    pub fn processes(&self) -> Vec<Process> {
        let mut all = descendants();
        all.retain(|process| !process.zombie);
        all
    }

    /// The namespaces in which processes of this test are, other than the test's own.
    pub fn namespaces(&self) -> BTreeSet<Namespace> {
        let own = namespaces_of("self");
        let mut found = BTreeSet::new();
        for process in self.processes() {
            found.extend(namespaces_of(&process.pid.to_string()));
        }
        found.difference(&own).cloned().collect()
    }

    /// No process, mount or control group more than at the beginning, and none of `namespaces`.
    ///
    /// Waits a little: killed processes take a moment to go, and numbers of namespaces are used
    /// again by others.
    #[track_caller]
    pub fn sees_nothing(&self, namespaces: &BTreeSet<Namespace>) {
        vanish("processes", || self.processes());
        reap_orphans();
        let groups = self.groups();
        assert!(groups.is_empty(), "control groups are left: {groups:?}");
        vanish("mounts", || mounts().difference(&self.mounts).cloned().collect());
        vanish("namespaces", || {
            let all = namespaces_of_host();
            namespaces.intersection(&all).cloned().collect()
        });
    }

    /// The control groups of sandboxes that were made since the beginning.
    fn groups(&self) -> Vec<PathBuf> {
        let mut sandboxes = self.sandboxes.lock().unwrap_or_else(PoisonError::into_inner);
        let mut buffer = [MaybeUninit::uninit(); 4096];
        let mut events = inotify::Reader::new(&self.records, &mut buffer);
        while let Ok(event) = events.next() {
            // A record is a file `ID.json`, beside a directory `ID` where one is needed.
            let name = event.file_name().map(|name| OsStr::from_bytes(name.to_bytes()));
            sandboxes
                .extend(name.and_then(|name| Path::new(name).file_stem().map(OsStr::to_owned)));
        }
        let mut found = groups();
        found.retain(|group| group.file_name().is_some_and(|name| sandboxes.contains(name)));
        found
    }
}

/// Waits until nothing of this kind is there.
#[track_caller]
fn vanish<T: Debug>(kind: &str, look: impl Fn() -> Vec<T>) {
    let give_up = Instant::now() + PATIENCE;
    loop {
        let left = look();
        if left.is_empty() {
            return;
        }
        assert!(Instant::now() < give_up, "{kind} are left: {left:#?}");
        sleep(PAUSE);
    }
}

/// Children of the test itself have been waited for when it asks whether anything is left.
fn reap_orphans() {
    let own = getpid().as_raw_nonzero().get();
    for process in descendants() {
        if process.zombie && process.parent == own {
            let _ = waitpid(Pid::from_raw(process.pid), WaitOptions::NOHANG);
        }
    }
}

fn descendants() -> Vec<Process> {
    let mut children: BTreeMap<i32, Vec<Process>> = BTreeMap::new();
    for pid in numbers() {
        if let Some(process) = read_process(pid) {
            children.entry(process.parent).or_default().push(process);
        }
    }
    let mut found = Vec::new();
    let mut parents = vec![getpid().as_raw_nonzero().get()];
    while let Some(parent) = parents.pop() {
        for process in children.remove(&parent).unwrap_or_default() {
            parents.push(process.pid);
            found.push(process);
        }
    }
    found
}

fn numbers() -> Vec<i32> {
    let entries = fs::read_dir("/proc").expect("/proc is mounted");
    entries.flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect()
}

/// `pid (name) state parent ...`; the name may hold anything, also `)`.
fn read_process(pid: i32) -> Option<Process> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let name = stat.get(stat.find('(')? + 1..stat.rfind(')')?)?;
    let mut rest = stat.get(stat.rfind(')')? + 1..)?.split_whitespace();
    Some(Process {
        pid,
        name: name.to_owned(),
        zombie: matches!(rest.next()?, "Z" | "X"),
        parent: rest.next()?.parse().ok()?,
    })
}

fn namespaces_of(process: &str) -> BTreeSet<Namespace> {
    let Ok(entries) = fs::read_dir(format!("/proc/{process}/ns")) else {
        return BTreeSet::new();
    };
    let read = |entry: fs::DirEntry| {
        let kind = entry.file_name().into_string().ok()?;
        // What children will get counts as the namespace that it is.
        let kind = kind.trim_end_matches("_for_children").to_owned();
        let inode = fs::metadata(entry.path()).ok()?.ino();
        Some(Namespace { kind, inode })
    };
    entries.flatten().filter_map(read).collect()
}

/// All that a process is in, or that is kept by a mount.
fn namespaces_of_host() -> BTreeSet<Namespace> {
    let mut found: BTreeSet<Namespace> =
        numbers().into_iter().flat_map(|pid| namespaces_of(&pid.to_string())).collect();
    for line in mounts() {
        // ... nsfs mounts have `net:[4026531840]` as their root.
        let root = line.split_whitespace().nth(3).unwrap_or_default();
        if let Some((kind, number)) = root.trim_end_matches(']').split_once(":[")
            && let Ok(inode) = number.parse()
        {
            let kind = kind.to_owned();
            found.insert(Namespace { kind, inode });
        }
    }
    found
}

fn mounts() -> BTreeSet<String> {
    let text = fs::read_to_string("/proc/self/mountinfo").expect("/proc is mounted");
    text.lines().map(str::to_owned).collect()
}

/// Every control group below a group that is called after us, of all who use this host.
fn groups() -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut pending = vec![PathBuf::from("/sys/fs/cgroup")];
    while let Some(directory) = pending.pop() {
        let ours = directory.file_name().is_some_and(|name| name == "ringwall");
        let inside = if ours { &mut found } else { &mut pending };
        inside.extend(directories(&directory));
    }
    found
}

fn directories(path: &Path) -> Vec<PathBuf> {
    // A group that is removed while we look is not there.
    let entries = fs::read_dir(path).into_iter().flatten().flatten();
    entries
        .filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()))
        .map(|entry| entry.path())
        .collect()
}
