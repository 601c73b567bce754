//! Keeps the memory limit where no control group can: adds up the tree many times a second.

use std::fs;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use crate::sandbox::Killer;

const INTERVAL: Duration = Duration::from_millis(20);
/// More processes than any limit allows; a bound for the walk.
const MAX_PROCESSES: usize = 1 << 16;

#[derive(Debug)]
pub(crate) struct Watchdog {
    shared: Arc<Shared>,
    exceeded: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Debug, Default)]
struct Shared {
    done: AtomicBool,
    peak: AtomicU64,
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
            while !state.done.load(Ordering::SeqCst) {
                let used = tree_bytes(warden) + scratch.as_ref().map_or(0, scratch_bytes);
                state.peak.fetch_max(used, Ordering::SeqCst);
                if used > most {
                    flag.store(true, Ordering::SeqCst);
                    killer.kill_tree();
                    return;
                }
                std::thread::park_timeout(INTERVAL);
            }
        });
        Watchdog { shared, exceeded, thread: Some(thread) }
    }

    pub(crate) fn exceeded(&self) -> Arc<AtomicBool> {
        self.exceeded.clone()
    }

    pub(crate) fn peak_bytes(&self) -> u64 {
        self.shared.peak.load(Ordering::SeqCst)
    }

    pub(crate) fn finish(&mut self) {
        self.shared.done.store(true, Ordering::SeqCst);
        if let Some(thread) = self.thread.take() {
            thread.thread().unpark();
            let _ = thread.join();
        }
    }
}

/// Memory of a process and all its descendants: in a pid namespace, orphans belong to its first
/// process, so nothing gets away. Files of the host are not counted. Memory that no process has
/// mapped (a memfd that was written and unmapped) is not seen: a control group would see it.
fn tree_bytes(first: u32) -> u64 {
    let mut pending = vec![first];
    let mut seen = 0;
    let mut bytes = 0;
    while let Some(pid) = pending.pop() {
        seen += 1;
        if seen > MAX_PROCESSES {
            break;
        }
        bytes += own_bytes(pid);
        let Ok(threads) = fs::read_dir(format!("/proc/{pid}/task")) else {
            continue;
        };
        for thread in threads.flatten() {
            let children = fs::read_to_string(thread.path().join("children")).unwrap_or_default();
            pending.extend(children.split_whitespace().filter_map(|text| text.parse::<u32>().ok()));
        }
    }
    bytes
}

fn own_bytes(pid: u32) -> u64 {
    let text = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let counted = text.lines().filter_map(|line| {
        let (name, value) = line.split_once(':')?;
        let kibibytes: u64 = value.trim().strip_suffix(" kB")?.parse().ok()?;
        matches!(name, "RssAnon" | "RssShmem").then_some(kibibytes * 1024)
    });
    counted.sum()
}

/// The writable space is memory too.
fn scratch_bytes(scratch: &OwnedFd) -> u64 {
    rustix::fs::fstatvfs(scratch)
        .map_or(0, |stat| stat.f_blocks.saturating_sub(stat.f_bfree).saturating_mul(stat.f_bsize))
}
