//! Private memory of processes: what would be free again if they ended.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;

use anyhow::Result;

/// One process of /proc.
#[derive(Debug)]
struct Process {
    parent: u32,
    name: String,
}

/// Private bytes of the processes below `root` (itself not counted) whose names are in `names`,
/// and how many they are. The kernel cuts names to fifteen characters.
pub(crate) fn private_bytes_below(root: u32, names: &[&str]) -> Result<(u64, usize)> {
    let processes = processes()?;
    let mut below = BTreeSet::from([root]);
    loop {
        let more: Vec<u32> = processes
            .iter()
            .filter(|(pid, process)| below.contains(&process.parent) && !below.contains(pid))
            .map(|(pid, _)| *pid)
            .collect();
        if more.is_empty() {
            break;
        }
        below.extend(more);
    }
    let cut: Vec<&str> = names.iter().map(|name| name.get(..15).unwrap_or(name)).collect();
    let (mut bytes, mut count) = (0, 0);
    for pid in below.into_iter().filter(|pid| *pid != root) {
        if processes.get(&pid).is_some_and(|process| cut.contains(&process.name.as_str())) {
            // Helpers of a launcher come and go; one that has ended has no memory to read.
            let Ok(private) = private_bytes(pid) else {
                continue;
            };
            bytes += private;
            count += 1;
        }
    }
    Ok((bytes, count))
}

/// Private_Clean, Private_Dirty and Private_Hugetlb together.
pub(crate) fn private_bytes(pid: u32) -> Result<u64> {
    bytes_of(pid, "Private_")
}

/// What is shared counts for each by its share.
pub(crate) fn proportional_bytes(pid: u32) -> Result<u64> {
    bytes_of(pid, "Pss:")
}

/// With what is shared, most of all the code of the program.
pub(crate) fn resident_bytes(pid: u32) -> Result<u64> {
    bytes_of(pid, "Rss:")
}

fn bytes_of(pid: u32, kind: &str) -> Result<u64> {
    Ok(sum_of(&fs::read_to_string(format!("/proc/{pid}/smaps_rollup"))?, kind))
}

fn sum_of(rollup: &str, kind: &str) -> u64 {
    rollup
        .lines()
        .filter(|line| line.starts_with(kind))
        .filter_map(|line| line.split_whitespace().nth(1)?.parse::<u64>().ok())
        .sum::<u64>()
        * 1024
}

fn processes() -> Result<BTreeMap<u32, Process>> {
    let mut processes = BTreeMap::new();
    for entry in fs::read_dir("/proc")? {
        let Some(pid) = entry?.file_name().to_str().and_then(|name| name.parse().ok()) else {
            continue;
        };
        // It may have ended since the directory was read.
        let Ok(stat) = fs::read_to_string(format!("/proc/{pid}/stat")) else {
            continue;
        };
        if let Some(process) = parse_stat(&stat) {
            processes.insert(pid, process);
        }
    }
    Ok(processes)
}

/// `pid (name) state parent ...`; the name may hold brackets itself.
fn parse_stat(stat: &str) -> Option<Process> {
    let (start, end) = (stat.find('(')?, stat.rfind(')')?);
    let name = stat.get(start + 1..end)?.to_owned();
    let parent = stat.get(end + 1..)?.split_whitespace().nth(1)?.parse().ok()?;
    Some(Process { parent, name })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_with_brackets_do_not_confuse() {
        let process = parse_stat("12 (a) (b) c) S 7 12 12 0").unwrap();
        assert_eq!((process.name.as_str(), process.parent), ("a) (b) c", 7));
    }

    #[test]
    fn only_lines_of_the_kind_are_added() {
        let rollup = "Rss: 10 kB\nPrivate_Clean: 4 kB\nPrivate_Dirty:  8 kB\nShared_Clean: 99 kB\n";
        assert_eq!(sum_of(rollup, "Private_"), 12 << 10);
        assert_eq!(sum_of(rollup, "Rss:"), 10 << 10);
    }

    #[test]
    fn this_process_has_private_memory() {
        assert!(private_bytes(std::process::id()).unwrap() > 0);
    }
}
