//! The oracles on the host: memory, leftovers at the end, the kernel's log, the engine's words.

use std::collections::BTreeSet;
use std::fs;
use std::io::{Read, Seek, SeekFrom};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::fs::FlockOperation;
use rustix::io::Errno;

/// What an oracle saw that must not be.
#[derive(Debug, Clone)]
pub(crate) struct Sight {
    pub(crate) oracle: &'static str,
    pub(crate) detail: String,
}

pub(crate) fn sight(oracle: &'static str, detail: impl Into<String>) -> Sight {
    Sight { oracle, detail: detail.into() }
}

/// Longer than killed processes need to go, even on a busy machine.
const PATIENCE: Duration = Duration::from_secs(20);
const PAUSE: Duration = Duration::from_millis(20);
/// The longest text with which the engine may refuse something.
const MOST_WORDS: usize = 2000;
const MOST_LOG: usize = 1 << 20;
/// What the kernel says when something went wrong in it. That a group is out of memory is no such thing.
const ALARMS: [&str; 8] = [
    "WARNING:",
    "BUG:",
    "Oops",
    "general protection",
    "blocked for more than",
    "soft lockup",
    "KASAN:",
    "UBSAN:",
];

/// The processes whose arguments hold the mark: all of the adversary's, for what it starts has them too.
pub(crate) fn marked(mark: &str, but: i32) -> Vec<i32> {
    let numbers = fs::read_dir("/proc").into_iter().flatten().flatten();
    let numbers = numbers.filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok());
    let own = i32::try_from(std::process::id()).unwrap_or_default();
    numbers
        .filter(|pid| *pid != but && *pid != own)
        .filter(|pid| {
            let line = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
            String::from_utf8_lossy(&line).contains(mark)
        })
        .collect()
}

/// Memory of these processes; what several share is counted once. A process whose first thread has ended is
/// asked by another one.
pub(crate) fn memory(processes: &[i32]) -> u64 {
    let of = |pid: &i32| -> u64 {
        let threads = fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
        threads.filter_map(|thread| proportional(&thread.path())).max().unwrap_or_default()
    };
    processes.iter().map(of).sum()
}

fn proportional(thread: &Path) -> Option<u64> {
    let text = fs::read_to_string(thread.join("smaps_rollup"))
        .or_else(|_| fs::read_to_string(thread.join("smaps")))
        .ok()?;
    let lines = text.lines().filter_map(|line| line.strip_prefix("Pss:"));
    let kib = lines.filter_map(|line| line.split_whitespace().next()?.parse::<u64>().ok());
    Some(kib.sum::<u64>() << 10)
}

/// Whether a process holds a lock on a file of the host that a sandbox is shown: programs outside would
/// wait for it.
pub(crate) fn locked(shown: &Path) -> Option<Sight> {
    let file = std::fs::File::options().read(true).write(true).open(shown).ok()?;
    let alone = FlockOperation::NonBlockingLockExclusive;
    let whole = rustix::fs::flock(&file, alone);
    let range = rustix::fs::fcntl_lock(&file, alone);
    let held = |answer| matches!(answer, Err(Errno::AGAIN | Errno::ACCESS));
    let words = || format!("{} is locked", shown.display());
    (held(whole) || held(range)).then(|| sight("locks", words()))
}

/// The namespaces of processes and mounts that a process is in. A launcher that is kept for the next sandbox
/// may still hold others.
pub(crate) fn namespaces(pid: impl std::fmt::Display) -> BTreeSet<PathBuf> {
    let kinds = ["pid", "mnt"].into_iter();
    kinds.filter_map(|kind| fs::read_link(format!("/proc/{pid}/ns/{kind}")).ok()).collect()
}

/// The leftovers of a sandbox that has ended and was removed.
pub(crate) fn leftovers(
    id: &str,
    mark: &str,
    victim: i32,
    own: &BTreeSet<PathBuf>,
) -> Option<Sight> {
    let left = || -> Vec<String> {
        let mut left: Vec<String> =
            marked(mark, victim).iter().map(|pid| format!("process {pid}")).collect();
        let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
        left.extend(mounts.lines().filter(|line| line.contains(id)).map(str::to_owned));
        left.extend(groups(id));
        let numbers = fs::read_dir("/proc").into_iter().flatten().flatten();
        let numbers = numbers.filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok());
        let inside = numbers.filter(|pid| namespaces(pid).intersection(own).next().is_some());
        left.extend(inside.map(|pid| format!("process {pid} in a namespace of the sandbox")));
        left
    };
    let give_up = Instant::now() + PATIENCE;
    loop {
        let left = left();
        if left.is_empty() {
            return None;
        }
        if Instant::now() > give_up {
            return Some(sight("leftovers", left.join("; ")));
        }
        std::thread::sleep(PAUSE);
    }
}

/// Control groups that are named after the sandbox.
fn groups(id: &str) -> Vec<String> {
    let (mut found, mut pending) = (Vec::new(), vec![PathBuf::from("/sys/fs/cgroup")]);
    while let Some(directory) = pending.pop() {
        let entries = fs::read_dir(&directory).into_iter().flatten().flatten();
        for entry in entries.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir())) {
            if entry.file_name().to_string_lossy().contains(id) {
                found.push(format!("control group {}", entry.path().display()));
            }
            pending.push(entry.path());
        }
    }
    found
}

/// The engine refuses in one line of plain text.
pub(crate) fn plain_words(asked: &str, answer: &str) -> Option<Sight> {
    let wrong = if answer.trim().is_empty() {
        "nothing was said"
    } else if answer.len() > MOST_WORDS {
        "too much was said"
    } else if answer.chars().any(char::is_control) {
        "control characters were said"
    } else if answer.contains("panicked") || answer.contains("unwrap") {
        "it panicked"
    } else {
        return None;
    };
    Some(sight("engine-answers", format!("{asked}: {wrong}: {answer:?}")))
}

/// The kernel's log from now on, where it can be read.
pub(crate) struct KernelLog(Option<fs::File>);

impl KernelLog {
    pub(crate) fn from_now(path: &Path) -> KernelLog {
        let nonblocking = i32::try_from(rustix::fs::OFlags::NONBLOCK.bits()).unwrap_or_default();
        let opened = fs::File::options().read(true).custom_flags(nonblocking).open(path);
        let at_end = opened.and_then(|mut log| log.seek(SeekFrom::End(0)).map(|_| log));
        KernelLog(at_end.ok())
    }

    pub(crate) fn alarm(&mut self) -> Option<Sight> {
        let log = self.0.as_mut()?;
        let mut buffer = vec![0; MOST_LOG];
        // One record at each call, until there is none.
        while let Ok(size @ 1..) = log.read(&mut buffer) {
            let text = String::from_utf8_lossy(buffer.get(..size).unwrap_or_default());
            if is_alarm(&text) {
                return Some(sight("kernel-log", text.trim()));
            }
        }
        None
    }
}

fn is_alarm(record: &str) -> bool {
    ALARMS.iter().any(|alarm| record.contains(alarm))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lock_of_somebody_elses_is_seen_for_as_long_as_it_is_held() {
        let file = tempfile::NamedTempFile::new().unwrap();
        assert!(locked(file.path()).is_none());
        rustix::fs::flock(&file, FlockOperation::LockShared).unwrap();
        assert_eq!(locked(file.path()).map(|seen| seen.oracle), Some("locks"));
        rustix::fs::flock(&file, FlockOperation::Unlock).unwrap();
        assert!(locked(file.path()).is_none());
    }

    #[test]
    fn words_of_the_engine_are_one_plain_line() {
        assert!(plain_words("exec", "the sandbox is not running; start it").is_none());
        for bad in ["", "two\nlines", "thread panicked at x", "\u{1b}[2J"] {
            assert!(plain_words("exec", bad).is_some(), "{bad:?}");
        }
    }

    #[test]
    fn the_kernels_alarms_are_told_from_what_it_says_of_groups() {
        assert!(is_alarm("4,1,2,-;WARNING: CPU: 0 PID: 1 at mm/x.c:1"));
        assert!(is_alarm("6,1,2,-;INFO: task x blocked for more than 120 seconds"));
        assert!(!is_alarm("4,1,2,-;Memory cgroup out of memory: Killed process 1 (x)"));
    }

    #[test]
    fn own_memory_and_namespaces_are_seen() {
        let own = i32::try_from(std::process::id()).unwrap();
        assert!(memory(&[own]) > 0);
        assert!(!namespaces("self").is_empty());
    }

    #[test]
    fn a_process_in_a_namespace_of_the_sandbox_is_a_leftover() {
        let ended: BTreeSet<PathBuf> = [PathBuf::from("pid:[1]")].into();
        assert!(leftovers("no-such-sandbox", "no-such-mark", 0, &ended).is_none());
    }
}
