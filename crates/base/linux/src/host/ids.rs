//! Ids for the rings of one engine that runs as root: a range that no account and no other engine
//! uses.
//!
//! On a host all ids are there, and each engine takes one of many ranges high above all accounts. In
//! a user namespace, such as a Pod's, there are only the ids that its maps name. Then the ranges are
//! smaller, and each engine holds its own by a lock, so that no other takes it.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;

use super::read_text;

/// As many ids as an image can ask for.
pub const FULL_RANGE: u32 = 65_536;

/// Above what hosts give to people and to their subordinate ranges.
const FIRST_ON_HOST: u32 = 1 << 30;
/// How many ranges there are to choose from on a host.
const RANGES_ON_HOST: u32 = 8192;

/// How many engines should find a range of their own in a user namespace.
const ENGINES: u32 = 128;
/// A ring needs a few ids at least.
const SMALLEST_RANGE: u32 = 16;

/// Stands for every owner that a namespace has no id for.
const OVERFLOW_ID: u32 = 65_534;

/// A range of ids for users and groups alike.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PrivateIds {
    pub first: u32,
    pub count: u32,
}

impl PrivateIds {
    pub const fn full(first: u32) -> PrivateIds {
        PrivateIds { first, count: FULL_RANGE }
    }

    fn holds(self, id: u32) -> bool {
        id.checked_sub(self.first).is_some_and(|offset| offset < self.count)
    }
}

/// A range that is this engine's until the value is dropped.
#[derive(Debug)]
pub struct HeldIds {
    pub ids: PrivateIds,
    /// Only where ranges are few: the lock goes with the open file.
    _lock: Option<File>,
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NoIds {
    #[error(
        "the user namespace of this process has no ids for a ring besides those that are in use: \
         run Ringwall as an ordinary user (`docker run --user 1000`, `runAsUser: 1000` in a Pod), \
         or give the namespace {FULL_RANGE} ids"
    )]
    None,
    #[error(
        "all {0} ranges of ids in this user namespace are held by other engines: end some \
         sandboxes, or give the namespace more ids (`userNamespaces.idsPerPod` of the kubelet)"
    )]
    AllHeld(usize),
    #[error("the ids of this user namespace could not be read: {0}")]
    Unreadable(String),
}

impl HeldIds {
    /// Takes a range; `random` chooses among them.
    pub fn take(random: u32) -> Result<HeldIds, NoIds> {
        let read = |path| read_text(path).ok_or_else(|| NoIds::Unreadable(path.to_owned()));
        let (uids, gids) = (read("/proc/self/uid_map")?, read("/proc/self/gid_map")?);
        let there = in_both(&spans(&uids), &spans(&gids));
        if let Some(ids) = on_host(&there, random) {
            return Ok(HeldIds { ids, _lock: None });
        }
        let ranges = ranges(&there, &in_use());
        hold_one(&ranges, random)
    }
}

/// Ids from the first up to, and not including, the second. Wider than an id, to hold an end.
type Span = std::ops::Range<u64>;

/// The ids that a map gives names to: its first and third columns.
fn spans(map: &str) -> Vec<Span> {
    let span = |line: &str| {
        let mut fields = line.split_whitespace().map(|field| field.parse::<u64>().ok());
        let (first, count) = (fields.next()??, fields.nth(1)??);
        Some(first..first.saturating_add(count))
    };
    map.lines().filter_map(span).collect()
}

fn in_both(uids: &[Span], gids: &[Span]) -> Vec<Span> {
    let pairs = uids.iter().flat_map(|uid| gids.iter().map(move |gid| (uid, gid)));
    let shared = pairs.map(|(uid, gid)| uid.start.max(gid.start)..uid.end.min(gid.end));
    shared.filter(|span| span.start < span.end).collect()
}

fn on_host(there: &[Span], random: u32) -> Option<PrivateIds> {
    let first = u64::from(FIRST_ON_HOST);
    let end = first + u64::from(RANGES_ON_HOST) * u64::from(FULL_RANGE);
    let whole = there.iter().any(|span| span.start <= first && span.end >= end);
    let slot = random % RANGES_ON_HOST;
    whole.then(|| PrivateIds::full(FIRST_ON_HOST + slot * FULL_RANGE))
}

/// Cuts what is there into ranges, and leaves out those with an id that somebody uses.
fn ranges(there: &[Span], used: &[u32]) -> Vec<PrivateIds> {
    let total: u64 = there.iter().map(|span| span.end - span.start).sum();
    let each = u32::try_from(total / u64::from(ENGINES)).unwrap_or(FULL_RANGE);
    let count = each.clamp(SMALLEST_RANGE, FULL_RANGE);
    let mut ranges = Vec::new();
    for span in there {
        let firsts = (span.start..span.end).step_by(count as usize);
        for first in firsts.filter(|first| first + u64::from(count) <= span.end) {
            if let Ok(first) = u32::try_from(first) {
                ranges.push(PrivateIds { first, count });
            }
        }
    }
    ranges.retain(|range| !used.iter().any(|id| range.holds(*id)));
    ranges
}

/// Root's, our own, and those of every account that this place knows.
fn in_use() -> Vec<u32> {
    let mut used = vec![0, OVERFLOW_ID];
    used.extend([rustix::process::getuid(), rustix::process::geteuid()].map(|id| id.as_raw()));
    used.extend([rustix::process::getgid(), rustix::process::getegid()].map(|id| id.as_raw()));
    let groups = rustix::process::getgroups().unwrap_or_default();
    used.extend(groups.into_iter().map(|group| group.as_raw()));
    for path in ["/etc/passwd", "/etc/group"] {
        used.extend(accounts(&read_text(path).unwrap_or_default()));
    }
    used
}

/// The third and the fourth field where they are numbers: a user with its group, or a group.
fn accounts(table: &str) -> Vec<u32> {
    let ids = |line: &str| -> Vec<u32> {
        line.split(':').skip(2).take(2).filter_map(|field| field.parse().ok()).collect()
    };
    table.lines().flat_map(ids).collect()
}

/// The file of our user namespace is the same for everybody in it, is there also where nothing can be
/// written, and cannot be seen by a ring. Each range is one byte of it.
fn hold_one(ranges: &[PrivateIds], random: u32) -> Result<HeldIds, NoIds> {
    if ranges.is_empty() {
        return Err(NoIds::None);
    }
    let path = "/proc/self/ns/user";
    let unreadable = |error: io::Error| NoIds::Unreadable(format!("{path}: {error}"));
    let file = File::open(path).map_err(unreadable)?;
    let start = random as usize % ranges.len();
    let in_turn = ranges[start..].iter().chain(&ranges[..start]);
    for ids in in_turn {
        if hold(&file, i64::from(ids.first)).map_err(unreadable)? {
            return Ok(HeldIds { ids: *ids, _lock: Some(file) });
        }
    }
    Err(NoIds::AllHeld(ranges.len()))
}

/// A file that can only be read takes no exclusive lock. So whoever wants a byte puts a shared lock on
/// it, then asks whether an exclusive one would be refused: it is if there is another holder. Of two
/// that come at once neither may get it, and never both.
fn hold(file: &File, byte: i64) -> io::Result<bool> {
    lock(file, libc::F_OFD_SETLK, libc::F_RDLCK, byte)?;
    if lock(file, libc::F_OFD_GETLK, libc::F_WRLCK, byte)? == libc::F_UNLCK {
        return Ok(true);
    }
    lock(file, libc::F_OFD_SETLK, libc::F_UNLCK, byte)?;
    Ok(false)
}

/// Gives the kind of lock in the way, or what was asked for.
fn lock(file: &File, order: i32, kind: i32, byte: i64) -> io::Result<i32> {
    let kind = libc::c_short::try_from(kind).map_err(io::Error::other)?;
    let whence = libc::c_short::try_from(libc::SEEK_SET).map_err(io::Error::other)?;
    // SAFETY: the structure is plain numbers, for which zeros are valid.
    let mut lock: libc::flock = unsafe { std::mem::zeroed() };
    (lock.l_type, lock.l_whence, lock.l_start, lock.l_len) = (kind, whence, byte, 1);
    // SAFETY: the descriptor is open, and the kernel reads and writes one structure, which is ours.
    let result = unsafe { libc::fcntl(file.as_raw_fd(), order, &raw mut lock) };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(lock.l_type.into()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    const POD: &str = "         0 1879048192      65536\n";

    #[test]
    fn on_a_host_a_range_is_high_above_all_accounts() {
        let all = spans("         0          0 4294967295\n");
        for random in [0, 1, 8191, u32::MAX] {
            let ids = on_host(&all, random).unwrap();
            assert!(ids.first >= 1 << 30 && ids.count == FULL_RANGE, "{ids:?}");
            assert!(ids.first.checked_add(ids.count).is_some());
        }
        assert_eq!(on_host(&spans(POD), 7), None);
    }

    #[test]
    fn in_a_pod_ranges_are_small_and_disjoint_and_hold_nobodys_id() {
        let used = [0, 1000, OVERFLOW_ID];
        let ranges = ranges(&spans(POD), &used);
        assert!(ranges.len() > 100, "{}", ranges.len());
        for (number, range) in ranges.iter().enumerate() {
            assert!(range.count == 512 && range.first + range.count <= 65_536, "{range:?}");
            assert!(!used.iter().any(|id| range.holds(*id)), "{range:?}");
            let shares = |other: &PrivateIds| range.holds(other.first) || other.holds(range.first);
            assert!(!ranges[number + 1..].iter().any(shares), "{range:?}");
        }
    }

    #[test]
    fn ids_that_only_one_of_the_maps_has_are_not_used() {
        let both = in_both(&spans("0 5 10\n100 7 50\n"), &spans("0 9 5\n120 3 500\n"));
        assert_eq!(both, [0..5, 120..150]);
        assert!(in_both(&spans("0 1 1"), &spans("5 1 1")).is_empty());
        assert!(spans("nonsense\n1 2\n").is_empty());
    }

    #[test]
    fn a_namespace_with_roots_id_alone_has_nothing_for_a_ring() {
        assert!(ranges(&spans("0 1000 1\n"), &[0]).is_empty());
        assert_eq!(hold_one(&[], 3).unwrap_err(), NoIds::None);
    }

    #[test]
    fn what_one_engine_holds_no_other_gets_until_it_is_let_go() {
        // High enough that no engine beside this test asks for them.
        let ranges = [1_u32, 2].map(|n| PrivateIds { first: (3 << 30) + n * 512, count: 512 });
        let first = hold_one(&ranges, 0).unwrap();
        let second = hold_one(&ranges, 0).unwrap();
        assert_ne!(first.ids, second.ids);
        assert_eq!(hold_one(&ranges, 1).unwrap_err(), NoIds::AllHeld(2));
        let freed = first.ids;
        drop(first);
        assert_eq!(hold_one(&ranges, 1).unwrap().ids, freed);
    }

    #[test]
    fn accounts_are_read_from_users_and_groups() {
        assert_eq!(accounts("root:x:0:0::/root:/bin/sh\nada:x:7:8::/:\n"), [0, 0, 7, 8]);
        assert_eq!(accounts("adm:x:4:ada\nbroken\n"), [4]);
    }
}
