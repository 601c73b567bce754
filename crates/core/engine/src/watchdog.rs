//! Keeps the memory limit where no control group can: adds up the ring many times a second.
//!
//! Invariant: memory is seen here, or charged at what it can be at most, or refused to the ring by
//! `resources/seccomp/watched.filter`. SECURITY.md lists the exceptions.
//!
//! The watchdog adds up nothing for an idle sandbox, without requests and without processes other than
//! its wardens. A process that it cannot read counts as one that runs.

mod bookkeeping;

use std::collections::BTreeSet;
use std::fs;
use std::os::fd::OwnedFd;
use std::os::unix::fs::MetadataExt;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::thread::JoinHandle;
use std::time::Duration;

use crate::gate::Gate;
use crate::sandbox::Killer;
use crate::unaccepted::{Statistics, unaccepted_bytes};
use bookkeeping::{Kernel, Noted};

const INTERVAL: Duration = Duration::from_millis(20);
/// The interval where a control group counts all but unaccepted connections, and there are
/// many connections.
const SOCKET_INTERVAL: Duration = Duration::from_millis(50);
/// The interval while there are only a few.
const QUIET_INTERVAL: Duration = Duration::from_millis(200);
/// The interval while nothing runs. A host may have thousands of idle sandboxes.
const REST: Duration = Duration::from_secs(10);
/// More processes than any limit allows; a bound for the walk.
const MAX_PROCESSES: usize = 1 << 16;

/// What the kernel keeps for a thread: its stack, and all it knows of it.
const THREAD_BYTES: u64 = 32 << 10;
/// What it keeps for a descriptor: once a user has many pipes, a new one holds two pages.
const DESCRIPTOR_BYTES: u64 = 8 << 10;
/// The bytes that a socket holds by default before its writer has to wait.
const SOCKET_BYTES: u64 = 208 << 10;
/// What a file in memory takes besides its content, by the kernel's own reckoning.
const INODE_BYTES: u64 = 1 << 10;
/// How often a process is looked at whose threads are replaced faster than they can be asked.
const LOOKS: usize = 32;
/// How often the tree is walked anew when processes end while it is.
const WALKS: usize = 4;

#[derive(Debug)]
pub(crate) struct Watchdog {
    shared: Arc<Shared>,
    exceeded: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
    /// Whether what it has counted is asked for at the end.
    counts: bool,
}

#[derive(Debug, Default)]
struct Shared {
    done: AtomicBool,
    peak: AtomicU64,
    rest: OnceLock<Rest>,
    /// The reason for an end of the ring that no count explains.
    uncounted: OnceLock<String>,
}

/// What tells whether something runs in a living sandbox.
#[derive(Debug)]
struct Rest {
    /// All requests go through it, and none is inside it that has ended.
    gate: Arc<Gate>,
    /// The processes that were there before anything was asked of the ring.
    wardens: BTreeSet<u32>,
}

impl Shared {
    fn is_done(&self) -> bool {
        self.done.load(Ordering::SeqCst)
    }

    /// Says which process could not be counted, if there is one.
    fn tell(&self, noted: Noted) {
        let Some(pid) = noted.unreadable else { return };
        let name = fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
        let name = name.trim_end();
        let _ = self.uncounted.set(format!(
            "the process {name:?} of the sandbox may not be read, so its locks and mappings could not be \
             counted; give your user the right to read its program, or run Ringwall as root"
        ));
    }

    /// Waits until the next look is due.
    fn pause(&self, warden: u32, interval: Duration) {
        // Asked in this order: what comes in after the first look ends the rest before it begins.
        if let Some(rest) = self.rest.get()
            && let Some(entered) = rest.gate.quiet_after()
            && processes(warden, |pid| rest.wardens.contains(&pid)).is_some()
        {
            rest.gate.wait_for_more(entered, REST, &self.done);
        } else {
            std::thread::park_timeout(interval);
        }
    }
}

impl Watchdog {
    pub(crate) fn start(
        warden: u32,
        scratch: Option<OwnedFd>,
        most: u64,
        killer: Killer,
    ) -> Watchdog {
        let shared = Arc::new(Shared::default());
        let exceeded = Arc::new(AtomicBool::new(false));
        let (state, flag) = (shared.clone(), exceeded.clone());
        let thread = std::thread::spawn(move || {
            let mut kernel = Kernel::default();
            while !state.is_done() {
                let found = tree(warden);
                let held = found.iter().fold(0, |sum: u64, one| sum.saturating_add(one.bytes));
                let used = held.saturating_add(scratch.as_ref().map_or(0, scratch_bytes));
                // An unreadable process counts as more than any limit, which is not its real use.
                state.peak.fetch_max(used.min(most.saturating_mul(2)), Ordering::SeqCst);
                let charged = used.saturating_add(charges(&found) + socket_charges(warden));
                let noted = if charged > most {
                    Noted::default()
                } else {
                    kernel.bookkeeping(|| &found, most)
                };
                if charged.saturating_add(noted.bytes) > most {
                    state.tell(noted);
                    state.peak.fetch_max(charged.min(most.saturating_mul(2)), Ordering::SeqCst);
                    flag.store(true, Ordering::SeqCst);
                    killer.kill_tree();
                    return;
                }
                state.pause(warden, INTERVAL);
            }
        });
        Watchdog { shared, exceeded, thread: Some(thread), counts: true }
    }

    /// For a ring with a memory control group: what that does not count must not exceed the limit by
    /// itself. That is unaccepted connections, and locks on files.
    pub(crate) fn of_connections(warden: u32, most: u64, killer: Killer) -> Watchdog {
        let shared = Arc::new(Shared::default());
        let exceeded = Arc::new(AtomicBool::new(false));
        let (state, flag) = (shared.clone(), exceeded.clone());
        let thread = std::thread::spawn(move || {
            let mut kernel = Kernel::default();
            // What the kernel holds before the command starts is not the command's.
            kernel.bookkeeping(Vec::<Found>::new, most);
            // Most runs are over before there could be many connections.
            std::thread::park_timeout(SOCKET_INTERVAL);
            let mut statistics = None;
            while !state.is_done() {
                let statistics = statistics.get_or_insert_with(|| Statistics::of(warden));
                let noted = kernel.bookkeeping(|| tree(warden), most);
                let too_much_noted = noted.bytes > most;
                if !too_much_noted && !statistics.could_hold_more_than(most) {
                    state.pause(warden, QUIET_INTERVAL);
                    continue;
                }
                if too_much_noted || unaccepted_bytes(warden) > most {
                    state.tell(noted);
                    flag.store(true, Ordering::SeqCst);
                    killer.kill_tree();
                    return;
                }
                std::thread::park_timeout(SOCKET_INTERVAL);
            }
        });
        Watchdog { shared, exceeded, thread: Some(thread), counts: false }
    }

    /// From now on all that is asked of the ring goes through `gate`, and nothing was asked of it yet.
    pub(crate) fn rest_behind(&self, gate: &Arc<Gate>, warden: u32) {
        // Where its processes cannot be told, it never rests.
        if let Some(wardens) = processes(warden, |_| true) {
            let _ = self.shared.rest.set(Rest { gate: gate.clone(), wardens });
        }
    }

    pub(crate) fn exceeded(&self) -> Arc<AtomicBool> {
        self.exceeded.clone()
    }

    /// The reason for an end of the ring although every count is within the limit.
    pub(crate) fn uncounted(&self) -> Option<String> {
        self.shared.uncounted.get().cloned()
    }

    pub(crate) fn peak_bytes(&self) -> u64 {
        self.shared.peak.load(Ordering::SeqCst)
    }

    pub(crate) fn finish(&mut self) {
        self.shared.done.store(true, Ordering::SeqCst);
        if let Some(rest) = self.shared.rest.get() {
            rest.gate.wake();
        }
        if let Some(thread) = self.thread.take() {
            thread.thread().unpark();
            // The other kind ends by itself a moment later, and kills nothing that is not gone already.
            if self.counts {
                let _ = thread.join();
            }
        }
    }
}

/// A process as it was found.
#[derive(Debug)]
struct Found {
    pid: u32,
    /// The directory of a thread that can be asked. That of the process tells nothing once its first
    /// thread has ended, while the others hold on to everything.
    asked: String,
    bytes: u64,
}

/// A process and all its descendants: in a pid namespace, orphans belong to its first process, so
/// nothing gets away. Where a process ended before it was looked at, its memory may be another's by
/// then that was already passed, so the walk is made again, and the fullest one counts.
fn tree(first: u32) -> Vec<Found> {
    let total =
        |found: &[Found]| found.iter().fold(0, |sum: u64, one| sum.saturating_add(one.bytes));
    let mut fullest = Vec::new();
    for _ in 0..WALKS {
        let (found, ended) = walk(first);
        if fullest.is_empty() || total(&found) > total(&fullest) {
            fullest = found;
        }
        if !ended {
            break;
        }
    }
    fullest
}

/// One walk, and whether a process ended meanwhile.
fn walk(first: u32) -> (Vec<Found>, bool) {
    let mut pids = vec![first];
    let mut known = BTreeSet::from([first]);
    let (mut found, mut ended) = (Vec::new(), false);
    let mut next = 0;
    while let Some(pid) = pids.get(next).copied().filter(|_| next < MAX_PROCESSES) {
        next += 1;
        let Some(threads) = threads(pid) else {
            ended = true;
            continue;
        };
        for thread in &threads {
            let path = format!("/proc/{pid}/task/{thread}/children");
            let children = fs::read_to_string(path).unwrap_or_default();
            let children = children.split_whitespace().filter_map(|text| text.parse::<u32>().ok());
            // One whose parent ends meanwhile is the first process's child, too.
            pids.extend(children.filter(|child| known.insert(*child)));
        }
        found.push(look(pid, threads));
    }
    (found, ended)
}

/// The numbers of a process and all its descendants. None if there is one that is not expected, or that
/// could not be asked. The kernel may leave out some children of a process while others of it end, but
/// never all of them, and never the one that comes after one that stays.
pub(crate) fn processes(first: u32, expected: impl Fn(u32) -> bool) -> Option<BTreeSet<u32>> {
    let mut known = BTreeSet::from([first]);
    let mut unasked = vec![first];
    while let Some(pid) = unasked.pop() {
        for thread in threads(pid)? {
            let path = format!("/proc/{pid}/task/{thread}/children");
            for child in fs::read_to_string(path).ok()?.split_whitespace() {
                let child = child.parse().ok().filter(|child| expected(*child))?;
                if known.insert(child) {
                    unasked.push(child);
                }
            }
        }
        if known.len() > MAX_PROCESSES {
            return None;
        }
    }
    Some(known)
}

/// The threads of a process, unless it has ended.
fn threads(pid: u32) -> Option<Vec<u32>> {
    let entries = fs::read_dir(format!("/proc/{pid}/task")).ok()?;
    let number = |entry: fs::DirEntry| entry.file_name().to_str()?.parse::<u32>().ok();
    Some(entries.flatten().filter_map(number).collect())
}

/// Asks the first thread that has memory. A process none of whose threads has any is at its end,
/// unless new ones come: the watchdog could not read those, so it counts as more than any limit.
fn look(pid: u32, mut listed: Vec<u32>) -> Found {
    let of_thread = |thread: &u32| format!("/proc/{pid}/task/{thread}");
    let own = format!("/proc/{pid}");
    if let Some(bytes) = memory(&own) {
        return Found { pid, asked: own, bytes };
    }
    for _ in 0..LOOKS {
        let asked = listed.iter().map(of_thread);
        let holder = asked.filter_map(|asked| memory(&asked).map(|bytes| (asked, bytes))).next();
        if let Some((asked, bytes)) = holder {
            return Found { pid, asked, bytes };
        }
        let now = threads(pid).unwrap_or_default();
        if now.iter().all(|thread| listed.contains(thread)) {
            return Found { pid, asked: own, bytes: 0 };
        }
        listed = now;
    }
    Found { pid, asked: own, bytes: u64::MAX }
}

/// What a thread's process has in memory, in page tables and in swap; nothing once the thread has
/// ended. Files of the host are not counted.
fn memory(thread: &str) -> Option<u64> {
    let text = fs::read_to_string(format!("{thread}/status")).ok()?;
    let counted = text.lines().filter_map(|line| {
        let (name, value) = line.split_once(':')?;
        let kibibytes: u64 = value.trim().strip_suffix(" kB")?.parse().ok()?;
        matches!(name, "RssAnon" | "RssShmem" | "VmPTE" | "VmSwap").then_some(kibibytes * 1024)
    });
    counted.fold(None, |sum, bytes| Some(sum.unwrap_or(0) + bytes))
}

/// The writable space is memory too.
fn scratch_bytes(scratch: &OwnedFd) -> u64 {
    rustix::fs::fstatvfs(scratch).map_or(0, |stat| {
        let blocks = stat.f_blocks.saturating_sub(stat.f_bfree);
        let inodes = stat.f_files.saturating_sub(stat.f_ffree);
        blocks.saturating_mul(stat.f_bsize).saturating_add(inodes.saturating_mul(INODE_BYTES))
    })
}

/// What the kernel keeps for these processes at most, by how many threads and descriptors they have.
fn charges(found: &[Found]) -> u64 {
    let charge = |one: &Found| {
        // A directory of threads has one link for each, beside its own two. That of descriptors
        // tells their number as its size; all threads have the same, as the filter sees to.
        let pid = one.pid;
        let threads = fs::metadata(format!("/proc/{pid}/task")).map_or(0, |found| found.nlink());
        let descriptors = fs::metadata(format!("{}/fd", one.asked)).map_or(0, |found| found.size());
        threads.saturating_sub(2) * THREAD_BYTES + descriptors * DESCRIPTOR_BYTES
    };
    found.iter().map(charge).sum()
}

/// The content of a socket is invisible from outside, so each counts as full; those too that
/// are on their way in another one, or closed and not done.
fn socket_charges(pid: u32) -> u64 {
    let text = fs::read_to_string(format!("/proc/{pid}/net/sockstat")).unwrap_or_default();
    let used = text.lines().find_map(|line| line.strip_prefix("sockets: used "));
    used.and_then(|used| used.trim().parse::<u64>().ok()).unwrap_or(0) * SOCKET_BYTES
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::io::Write;
    use std::process::{Command, Stdio};

    use super::*;

    fn own() -> Found {
        let pid = std::process::id();
        look(pid, threads(pid).unwrap())
    }

    #[test]
    fn descriptors_and_threads_are_charged_to_their_process() {
        let own = [own()];
        let before = charges(&own);
        let files: Vec<_> = (0..200).map(|_| File::open("/dev/null").unwrap()).collect();
        assert!(charges(&own) >= before + 200 * DESCRIPTOR_BYTES);
        drop(files);
        let (ready, wait) = std::sync::mpsc::channel::<()>();
        let thread = std::thread::spawn(move || wait.recv());
        assert!(charges(&own) >= before + THREAD_BYTES);
        drop(ready);
        let _ = thread.join().unwrap();
    }

    #[test]
    fn sockets_are_found_by_way_of_a_process() {
        let _pair = std::os::unix::net::UnixStream::pair().unwrap();
        assert!(socket_charges(std::process::id()) >= 2 * SOCKET_BYTES);
    }

    #[test]
    fn a_process_that_is_not_expected_is_seen() {
        let script = "read go; sleep 100 & read go; kill $!";
        let shell = Command::new("sh").args(["-c", script]).stdin(Stdio::piped()).spawn();
        let mut shell = shell.unwrap();
        let own = BTreeSet::from([shell.id()]);
        assert_eq!(processes(shell.id(), |_| true), Some(own));
        let mut go = shell.stdin.take().unwrap();
        writeln!(go).unwrap();
        while processes(shell.id(), |_| true).is_some_and(|all| all.len() == 1) {
            std::thread::yield_now();
        }
        assert_eq!(processes(shell.id(), |_| false), None);
        drop(go);
        shell.wait().unwrap();
        assert_eq!(processes(u32::MAX, |_| true), None, "one that cannot be asked");
    }

    #[test]
    fn it_rests_only_while_nothing_runs_and_nobody_is_inside() {
        let gate = Arc::new(Gate::default());
        let shared = Arc::new(Shared::default());
        let mut warden = Command::new("sleep").arg("100").spawn().unwrap();
        let wardens = processes(warden.id(), |_| true).unwrap();
        shared.rest.set(Rest { gate: gate.clone(), wardens }).unwrap();
        let pid = warden.id();
        let resting = {
            let shared = shared.clone();
            std::thread::spawn(move || shared.pause(pid, Duration::ZERO))
        };
        // It waits for the gate and not for its interval, which is over at once.
        std::thread::sleep(Duration::from_millis(50));
        assert!(!resting.is_finished());
        let inside = gate.enter();
        resting.join().unwrap();
        shared.pause(pid, Duration::ZERO);
        drop(inside);
        warden.kill().unwrap();
        warden.wait().unwrap();
        // A ring that cannot be asked tells nothing.
        shared.pause(pid, Duration::ZERO);
    }

    #[test]
    fn the_kernel_tells_all_that_is_added_up() {
        let status = fs::read_to_string("/proc/self/status").unwrap();
        for name in ["RssAnon:", "RssShmem:", "VmPTE:", "VmSwap:"] {
            assert!(status.contains(name), "this kernel does not tell {name}");
        }
        assert!(own().bytes > 0);
    }
}
