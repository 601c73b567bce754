//! Control groups: one per sandbox, under a parent named `ringwall`, on whatever the host has.
//!
//! [`Hierarchy::detect`] looks at the host without changing it. [`Hierarchy::create`] makes a group
//! with all its limits or leaves nothing behind. A [`Group`] outlives its value on purpose: the
//! engine removes it when the sandbox is settled, and `gc` removes what a crash left.
//!
//! Invariant: a limit that was asked for is in force, or `create` fails. No controller is quietly
//! left out.

mod delegate;
mod detect;
mod error;
mod files;
mod group;
mod reap;
mod v1;
mod v2;

#[cfg(test)]
mod tests_v1;
#[cfg(test)]
mod tests_v2;

use std::collections::BTreeSet;
use std::fmt;
use std::path::PathBuf;

pub use error::CgroupError;
pub use group::Group;
pub use v1::V1;
pub use v2::V2;

/// The group under which every sandbox's group is made.
const PARENT: &str = "ringwall";

/// Quotas are given to the kernel per this many microseconds: its own default, so on v1 the period
/// need not be written.
const CPU_PERIOD_MICROS: u64 = 100_000;

/// The control groups of this host, as far as this process may use them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Hierarchy {
    /// No group can be made; limits must be kept by other means.
    None {
        reason: String,
        fix: String,
    },
    V1(V1),
    /// The controllers are on v1; a v2 hierarchy without them is mounted beside.
    Hybrid {
        v1: V1,
        unified: PathBuf,
    },
    V2(V2),
}

/// Which kernel interface keeps the limits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Means {
    V1,
    V2,
}

/// The controllers that keep limits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Controller {
    Memory,
    Pids,
    Cpu,
}

impl Controller {
    pub const ALL: [Controller; 3] = [Controller::Memory, Controller::Pids, Controller::Cpu];

    pub fn name(self) -> &'static str {
        match self {
            Controller::Memory => "memory",
            Controller::Pids => "pids",
            Controller::Cpu => "cpu",
        }
    }
}

impl fmt::Display for Controller {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// What a group must keep. `None` leaves that limit to other means; as read back from the kernel
/// it means that the group does not limit it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct GroupLimits {
    pub memory_bytes: Option<u64>,
    pub pids: Option<u32>,
    /// Thousandths of one CPU.
    pub cpu_milli: Option<u32>,
}

impl GroupLimits {
    fn asks(&self, controller: Controller) -> bool {
        match controller {
            Controller::Memory => self.memory_bytes.is_some(),
            Controller::Pids => self.pids.is_some(),
            Controller::Cpu => self.cpu_milli.is_some(),
        }
    }

    fn asked(&self) -> Controllers {
        Controllers::from_iter(Controller::ALL.into_iter().filter(|c| self.asks(*c)))
    }
}

/// What a group has used so far.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct GroupUsage {
    /// Absent on v2 before kernel 5.19.
    pub peak_memory_bytes: Option<u64>,
    pub cpu_micros: Option<u64>,
    /// Processes that the kernel killed because the memory limit was reached.
    pub oom_kills: u64,
    /// Forks that the kernel refused because of the process limit.
    pub pids_refused: u64,
}

/// A set of controllers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Controllers {
    memory: bool,
    pids: bool,
    cpu: bool,
}

impl Controllers {
    pub fn contains(self, controller: Controller) -> bool {
        match controller {
            Controller::Memory => self.memory,
            Controller::Pids => self.pids,
            Controller::Cpu => self.cpu,
        }
    }

    pub fn iter(self) -> impl Iterator<Item = Controller> {
        Controller::ALL.into_iter().filter(move |controller| self.contains(*controller))
    }

    pub fn count(self) -> usize {
        self.iter().count()
    }

    pub fn is_empty(self) -> bool {
        self == Controllers::default()
    }

    fn add(&mut self, controller: Controller) {
        match controller {
            Controller::Memory => self.memory = true,
            Controller::Pids => self.pids = true,
            Controller::Cpu => self.cpu = true,
        }
    }

    /// Reads names as the kernel lists them, separated by spaces or commas. Others are passed over.
    fn parse(text: &str) -> Self {
        let named = |name: &str| Controller::ALL.into_iter().find(|c| c.name() == name);
        text.split(|c: char| c == ',' || c.is_whitespace()).filter_map(named).collect()
    }
}

impl FromIterator<Controller> for Controllers {
    fn from_iter<T: IntoIterator<Item = Controller>>(controllers: T) -> Self {
        let mut set = Controllers::default();
        for controller in controllers {
            set.add(controller);
        }
        set
    }
}

impl Hierarchy {
    /// Looks at the mounts and at what this process may write. Changes nothing.
    pub fn detect() -> Hierarchy {
        detect::detect()
    }

    pub fn means(&self) -> Option<Means> {
        match self {
            Hierarchy::None { .. } => None,
            Hierarchy::V1(_) | Hierarchy::Hybrid { .. } => Some(Means::V1),
            Hierarchy::V2(_) => Some(Means::V2),
        }
    }

    /// Which interface keeps the limit of this controller, if one does.
    pub fn means_of(&self, controller: Controller) -> Option<Means> {
        self.means().filter(|_| self.controllers().contains(controller))
    }

    /// How many descriptors [`Group::join_fds`] gives for a group with all limits of
    /// [`Hierarchy::controllers`].
    pub fn join_file_count(&self) -> u16 {
        match self {
            Hierarchy::None { .. } => 0,
            Hierarchy::V1(v1) | Hierarchy::Hybrid { v1, .. } => v1.tree_count(),
            Hierarchy::V2(_) => 1,
        }
    }

    /// Leaves out a v1 tree that only counts CPU time: one directory less to make and remove, about
    /// 30 us of a start. Where counting comes with the quota (v2, or `cpu,cpuacct` mounted together)
    /// nothing changes.
    pub fn without_separate_accounting(mut self) -> Hierarchy {
        if let Hierarchy::V1(v1) | Hierarchy::Hybrid { v1, .. } = &mut self {
            v1.drop_accounting();
        }
        self
    }

    /// The limits that a group made here can keep.
    pub fn controllers(&self) -> Controllers {
        match self {
            Hierarchy::None { .. } => Controllers::default(),
            Hierarchy::V1(v1) | Hierarchy::Hybrid { v1, .. } => v1.controllers(),
            Hierarchy::V2(v2) => v2.controllers(),
        }
    }

    /// Makes the group with every limit that was asked for, or nothing.
    pub fn create(&self, name: &str, limits: &GroupLimits) -> Result<Group, CgroupError> {
        check_name(name)?;
        match self {
            Hierarchy::None { reason, fix } => {
                Err(CgroupError::NotUsable { reason: reason.clone(), fix: fix.clone() })
            }
            Hierarchy::V1(v1) | Hierarchy::Hybrid { v1, .. } => {
                self.require(limits)?;
                v1.create(name, limits)
            }
            Hierarchy::V2(v2) => {
                self.require(limits)?;
                v2.create(name, limits)
            }
        }
    }

    fn require(&self, limits: &GroupLimits) -> Result<(), CgroupError> {
        let usable = self.controllers();
        match limits.asked().iter().find(|controller| !usable.contains(*controller)) {
            None => Ok(()),
            Some(controller) => {
                let fix = self.fix_for(controller);
                Err(CgroupError::ControllerMissing { controller, fix })
            }
        }
    }

    /// A group that an earlier process made, if any part of it is still there.
    pub fn find(&self, name: &str) -> Option<Group> {
        check_name(name).ok()?;
        match self {
            Hierarchy::None { .. } => None,
            Hierarchy::V1(v1) | Hierarchy::Hybrid { v1, .. } => v1.find(name),
            Hierarchy::V2(v2) => v2.find(name),
        }
    }

    /// Names of all groups under our parent, also half-removed ones. Sorted.
    pub fn list_ours(&self) -> Vec<String> {
        let mut names = BTreeSet::new();
        for parent in self.parents() {
            let Ok(entries) = std::fs::read_dir(parent) else {
                continue;
            };
            for entry in entries.flatten() {
                if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                    names.extend(entry.file_name().into_string());
                }
            }
        }
        names.into_iter().collect()
    }

    /// Kills everything in the group, waits for it to be empty and removes it. A group that is
    /// not there is no error.
    pub fn remove_by_name(&self, name: &str) -> Result<(), CgroupError> {
        check_name(name)?;
        match self.find(name) {
            Some(group) => group.kill().and_then(|()| group.remove()),
            None => Ok(()),
        }
    }

    /// Removes our parent group where no sandbox is left in it, so that a cleaned-up host is as it
    /// was before.
    pub fn remove_empty_parent(&self) {
        for parent in self.parents() {
            // A sandbox being made at this moment makes the parent again.
            let _ = rustix::fs::rmdir(&parent);
        }
    }

    fn parents(&self) -> Vec<PathBuf> {
        match self {
            Hierarchy::None { .. } => Vec::new(),
            Hierarchy::V1(v1) | Hierarchy::Hybrid { v1, .. } => v1.parents(),
            Hierarchy::V2(v2) => vec![v2.parent()],
        }
    }

    /// What a person can do to have `controller` on this host.
    pub fn fix_for(&self, controller: Controller) -> String {
        match self {
            Hierarchy::None { fix, .. } => fix.clone(),
            Hierarchy::V1(_) | Hierarchy::Hybrid { .. } => format!(
                "mount it as root: mkdir -p /sys/fs/cgroup/{controller} && mount -t cgroup -o {controller} cgroup /sys/fs/cgroup/{controller}"
            ),
            Hierarchy::V2(v2) => v2.fix_for(controller),
        }
    }
}

/// A group name becomes a directory: it must not be a path, hidden, or a control file's look-alike.
fn check_name(name: &str) -> Result<(), CgroupError> {
    let starts_well = name.bytes().next().is_some_and(|b| b.is_ascii_alphanumeric());
    let all_known =
        name.bytes().all(|b| matches!(b, b'a'..=b'z' | b'0'..=b'9' | b'-' | b'_' | b'.'));
    if starts_well && all_known && name.len() <= 63 {
        Ok(())
    } else {
        Err(CgroupError::BadName(name.chars().take(80).collect()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_could_leave_the_parent_are_refused() {
        let here = Hierarchy::None { reason: "test".into(), fix: "none".into() };
        for bad in ["", ".", "..", "../x", "a/b", ".hidden", "-x", "A", "a b", &"a".repeat(64)] {
            let refused = here.create(bad, &GroupLimits::default());
            assert!(matches!(refused, Err(CgroupError::BadName(_))), "{bad:?}");
            assert!(matches!(here.remove_by_name(bad), Err(CgroupError::BadName(_))), "{bad:?}");
        }
    }

    #[test]
    fn without_a_hierarchy_creation_says_why_and_what_to_do() {
        let here = Hierarchy::None { reason: "nothing is mounted".into(), fix: "mount it".into() };
        let error = here.create("abc", &GroupLimits::default()).unwrap_err();
        assert_eq!(error.to_string(), "no control group can be made: nothing is mounted; mount it");
        assert_eq!(here.means(), None);
        assert!(here.list_ours().is_empty());
        assert!(here.remove_by_name("abc").is_ok());
    }

    #[test]
    fn controller_lists_are_read_in_the_forms_of_both_interfaces() {
        let all = Controllers::parse("cpuset cpu io memory hugetlb pids\n");
        assert_eq!(all.count(), 3);
        assert_eq!(
            Controllers::parse("rw,cpu,cpuacct").iter().collect::<Vec<_>>(),
            [Controller::Cpu]
        );
        assert!(Controllers::parse("hugetlb").is_empty());
    }
}
