//! Kills a job with everything that came from it, also what moved to a session of its own.
//!
//! Killing parents first would hand their children to process 1 and hide where they came from.
//! So the tree is stopped from the top until no new member shows up, and only then killed.

use std::collections::HashSet;

use ringwall_linux::spawn::signal_group;
use rustix::process::{Pid, Signal, kill_process};

/// A stopped process cannot fork, so each round finds only what was forked before its parent was
/// stopped; a fork bomb is caught up with long before this.
const MAX_ROUNDS: usize = 64;
/// A line of /proc/PID/stat is far shorter.
const STAT_MAX: usize = 1024;

/// Kills a job by the id of its first process, which must not have been reaped yet.
pub(crate) fn kill(root: Pid) {
    let _ = kill_process(root, Signal::STOP);
    let mut members = HashSet::from([root]);
    for _ in 0..MAX_ROUNDS {
        let found = grow(&members);
        if found.is_empty() {
            break;
        }
        for pid in &found {
            let _ = kill_process(*pid, Signal::STOP);
        }
        members.extend(found);
    }
    let _ = signal_group(root, Signal::KILL.as_raw());
    for pid in members {
        let _ = kill_process(pid, Signal::KILL);
    }
}

/// Kills everything below this process. In a pid namespace of its own the kernel would do it too.
pub(crate) fn kill_below(top: Pid) {
    for _ in 0..MAX_ROUNDS {
        let children: Vec<Pid> =
            processes().filter(|p| p.parent == Some(top) && !p.dead).map(|p| p.pid).collect();
        if children.is_empty() {
            return;
        }
        children.into_iter().for_each(kill);
    }
}

/// Processes whose parent or process group is in the set, and that are not in it themselves.
fn grow(members: &HashSet<Pid>) -> Vec<Pid> {
    let known = |id: Option<Pid>| id.is_some_and(|id| members.contains(&id));
    processes()
        .filter(|p| known(p.parent) || known(p.group) || known(p.session))
        .map(|p| p.pid)
        .filter(|pid| !members.contains(pid))
        .collect()
}

#[derive(Debug, PartialEq, Eq)]
struct Process {
    pid: Pid,
    dead: bool,
    parent: Option<Pid>,
    group: Option<Pid>,
    session: Option<Pid>,
}

/// Everything that /proc shows. Without /proc only the group of the job can be killed.
fn processes() -> impl Iterator<Item = Process> {
    std::fs::read_dir("/proc").into_iter().flatten().filter_map(|entry| {
        let name = entry.ok()?.file_name();
        let pid: i32 = name.to_str()?.parse().ok()?;
        let stat = ringwall_facts::read_start(&format!("/proc/{pid}/stat"), STAT_MAX)?;
        parse_stat(Pid::from_raw(pid)?, &stat)
    })
}

/// The program's name may hold spaces and brackets, so the fields are counted from the last one.
fn parse_stat(pid: Pid, stat: &str) -> Option<Process> {
    let (_, fields) = stat.rsplit_once(')')?;
    let mut fields = fields.split_ascii_whitespace();
    let state = fields.next()?;
    let mut id = || fields.next()?.parse().ok().filter(|id| *id > 0).and_then(Pid::from_raw);
    let (parent, group, session) = (id(), id(), id());
    Some(Process { pid, dead: matches!(state, "Z" | "X"), parent, group, session })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hostile_program_name_does_not_confuse_the_parser() {
        let pid = Pid::from_raw(12).unwrap();
        let process = parse_stat(pid, "12 (a) R 1 1 (b) S 7 8 9 0 -1 4194560").unwrap();
        assert_eq!((process.parent, process.group), (Pid::from_raw(7), Pid::from_raw(8)));
        assert_eq!((process.session, process.dead), (Pid::from_raw(9), false));
        assert_eq!(parse_stat(pid, "12 (x"), None);
        assert_eq!(parse_stat(pid, ""), None);
    }

    #[test]
    fn this_process_is_found_with_its_parent() {
        let own = rustix::process::getpid();
        let found = processes().find(|process| process.pid == own).unwrap();
        assert_eq!(found.parent, rustix::process::getppid());
    }
}
