//! Version 1: one directory tree per controller, or per few controllers mounted together.

use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use rustix::fs::Mode;
use rustix::io::Errno;

use super::files::{self, Present, inside};
use super::group::{Group, On};
use super::reap;
use super::{
    CPU_PERIOD_MICROS, CgroupError, Controller, Controllers, GroupLimits, GroupUsage, PARENT,
};

/// The kernel shows "no limit" as the largest number of whole pages; nobody asks for this much.
const NO_MEMORY_LIMIT: u64 = 1 << 62;

/// Version 1 counts what TCP and UDP keep in their buffers apart from all other memory, and only in
/// groups that were given a limit for it.
const SOCKET_LIMIT: &str = "memory.kmem.tcp.limit_in_bytes";
/// What they may hold beside the memory limit: a part of it, so that the sum stays close.
const SOCKET_PART: u64 = 8;
/// Less would not hold the buffers of a few connections.
const LEAST_SOCKET_BYTES: u64 = 4 << 20;

/// The v1 trees that we use.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct V1 {
    trees: Vec<Tree>,
}

/// One mounted tree: where our parent group is (or will be), and what it controls.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Tree {
    pub(super) base: PathBuf,
    pub(super) controllers: Controllers,
    /// Whether it counts CPU time. A controller of its own, often mounted together with `cpu`.
    pub(super) counts_cpu: bool,
}

#[derive(Debug)]
pub(super) struct V1Group {
    parts: Vec<Part>,
}

#[derive(Debug)]
struct Part {
    directory: PathBuf,
    controllers: Controllers,
    counts_cpu: bool,
}

impl V1 {
    pub(super) fn new(trees: Vec<Tree>) -> Self {
        V1 { trees }
    }

    pub(super) fn controllers(&self) -> Controllers {
        self.trees.iter().flat_map(|tree| tree.controllers.iter()).collect()
    }

    pub(super) fn tree_count(&self) -> u16 {
        u16::try_from(self.trees.len()).unwrap_or(u16::MAX)
    }

    pub(super) fn drop_accounting(&mut self) {
        self.trees.retain(|tree| !tree.controllers.is_empty());
    }

    pub(super) fn parents(&self) -> Vec<PathBuf> {
        self.trees.iter().map(|tree| inside(&tree.base, PARENT)).collect()
    }

    pub(super) fn create(&self, name: &str, limits: &GroupLimits) -> Result<Group, CgroupError> {
        let asked = limits.asked();
        let mut group = V1Group { parts: Vec::with_capacity(self.trees.len()) };
        for tree in &self.trees {
            let needed = tree.counts_cpu || tree.controllers.iter().any(|c| asked.contains(c));
            if !needed {
                continue;
            }
            let made = tree.make(name).and_then(|part| {
                group.parts.push(part);
                group.parts.last().map_or(Ok(()), |part| part.limit(limits))
            });
            if let Err(why) = made {
                // Nothing has joined yet, so removal cannot be refused for processes inside.
                drop(group.remove());
                return Err(why);
            }
        }
        Ok(Group { name: name.to_owned(), on: On::V1(group) })
    }

    pub(super) fn find(&self, name: &str) -> Option<Group> {
        let parts: Vec<Part> = self
            .trees
            .iter()
            .map(|tree| tree.part(name))
            .filter(|part| part.directory.is_dir())
            .collect();
        (!parts.is_empty()).then(|| Group { name: name.to_owned(), on: On::V1(V1Group { parts }) })
    }
}

impl Tree {
    fn part(&self, name: &str) -> Part {
        let directory = self.base.join(PARENT).join(name);
        Part { directory, controllers: self.controllers, counts_cpu: self.counts_cpu }
    }

    fn make(&self, name: &str) -> Result<Part, CgroupError> {
        let part = self.part(name);
        let mode = Mode::from_raw_mode(0o755);
        let mut made = rustix::fs::mkdir(&part.directory, mode);
        if made == Err(Errno::NOENT) {
            let parent = inside(&self.base, PARENT);
            match rustix::fs::mkdir(&parent, mode) {
                Ok(()) => self.keep_counting_sockets(&parent),
                Err(Errno::EXIST) => {}
                Err(why) => return Err(CgroupError::io("create", &parent, why)),
            }
            made = rustix::fs::mkdir(&part.directory, mode);
        }
        match made {
            Ok(()) => Ok(part),
            Err(Errno::EXIST) => Err(CgroupError::NameTaken(part.directory)),
            Err(why) => Err(CgroupError::io("create", &part.directory, why)),
        }
    }
}

impl Tree {
    /// The first group with a limit for sockets has the kernel rewrite its own code, which takes ten
    /// times as long as all the rest. One that stays saves the others from that; its own limit is none.
    fn keep_counting_sockets(&self, parent: &Path) {
        if self.controllers.contains(Controller::Memory) {
            let most = NO_MEMORY_LIMIT.to_string();
            // Without it the others take longer, and are limited all the same.
            let _ = files::write_if_present(&inside(parent, SOCKET_LIMIT), &most);
        }
    }
}

impl Part {
    fn limit(&self, limits: &GroupLimits) -> Result<(), CgroupError> {
        let write = |file: &str, value: u64| {
            files::write(&inside(&self.directory, file), &value.to_string())
        };
        if let (true, Some(bytes)) = (self.keeps(Controller::Memory), limits.memory_bytes) {
            write("memory.limit_in_bytes", bytes)?;
            self.forbid_swap(bytes)?;
            write(SOCKET_LIMIT, socket_bytes(bytes))?;
        }
        if let (true, Some(pids)) = (self.keeps(Controller::Pids), limits.pids) {
            write("pids.max", pids.into())?;
        }
        if let (true, Some(milli)) = (self.keeps(Controller::Cpu), limits.cpu_milli) {
            write("cpu.cfs_quota_us", u64::from(milli) * CPU_PERIOD_MICROS / 1000)?;
        }
        Ok(())
    }

    /// Memory and swap together may not exceed what memory alone may. Where swap is not counted
    /// (the file is missing), the group's memory is not swapped while there is other memory to take.
    fn forbid_swap(&self, bytes: u64) -> Result<(), CgroupError> {
        let both = inside(&self.directory, "memory.memsw.limit_in_bytes");
        if files::write_if_present(&both, &bytes.to_string())? == Present::No {
            files::write_if_present(&inside(&self.directory, "memory.swappiness"), "0")?;
        }
        Ok(())
    }

    fn keeps(&self, controller: Controller) -> bool {
        self.controllers.contains(controller)
    }

    fn file(&self, name: &str) -> PathBuf {
        inside(&self.directory, name)
    }
}

impl V1Group {
    pub(super) fn join_fds(&self) -> Result<Vec<OwnedFd>, CgroupError> {
        let open = |part: &Part| {
            let tasks = part.file("tasks");
            files::open_to_write(&tasks).map_err(|why| CgroupError::io("open", &tasks, why))
        };
        self.parts.iter().map(open).collect()
    }

    pub(super) fn read_back(&self) -> Result<GroupLimits, CgroupError> {
        let mut limits = GroupLimits::default();
        for part in &self.parts {
            if part.keeps(Controller::Memory) {
                let bytes = files::read_number(&part.file("memory.limit_in_bytes"))?;
                let sockets = files::read_number(&part.file(SOCKET_LIMIT))?;
                let both = bytes < NO_MEMORY_LIMIT && sockets <= socket_bytes(bytes);
                limits.memory_bytes = both.then_some(bytes);
            }
            if part.keeps(Controller::Pids) {
                let pids = files::read_limit(&part.file("pids.max"))?;
                limits.pids = pids.and_then(|pids| u32::try_from(pids).ok());
            }
            if part.keeps(Controller::Cpu) {
                limits.cpu_milli = read_quota(part)?;
            }
        }
        Ok(limits)
    }

    pub(super) fn usage(&self) -> Result<GroupUsage, CgroupError> {
        let mut usage = GroupUsage::default();
        for part in &self.parts {
            if part.keeps(Controller::Memory) {
                usage.peak_memory_bytes =
                    Some(files::read_number(&part.file("memory.max_usage_in_bytes"))?);
                let events = files::read(&part.file("memory.oom_control"))?;
                usage.oom_kills = files::keyed_number(&events, "oom_kill").unwrap_or(0);
            }
            if part.keeps(Controller::Pids) {
                let events = files::read_if_present(&part.file("pids.events"))?.unwrap_or_default();
                usage.pids_refused = files::keyed_number(&events, "max").unwrap_or(0);
            }
            if part.counts_cpu {
                let nanos = files::read_number(&part.file("cpuacct.usage"))?;
                usage.cpu_micros = Some(nanos / 1000);
            }
        }
        Ok(usage)
    }

    pub(super) fn kill(&self) -> Result<(), CgroupError> {
        // With no more forks allowed, each round of signals can only shrink the group.
        for part in self.parts.iter().filter(|part| part.keeps(Controller::Pids)) {
            files::write_if_present(&part.file("pids.max"), "0")?;
        }
        // All trees have the same members, unless one died half-way through joining.
        self.parts.iter().try_for_each(|part| reap::kill_members(&part.directory))
    }

    /// Removes every part, also after one failed; the first failure is reported.
    pub(super) fn remove(&self) -> Result<(), CgroupError> {
        let mut outcome = Ok(());
        for part in &self.parts {
            outcome = outcome.and(reap::remove_directory(&part.directory));
        }
        outcome
    }
}

fn socket_bytes(memory: u64) -> u64 {
    (memory / SOCKET_PART).max(LEAST_SOCKET_BYTES)
}

fn read_quota(part: &Part) -> Result<Option<u32>, CgroupError> {
    let quota_file = part.file("cpu.cfs_quota_us");
    let text = files::read(&quota_file)?;
    let quota = text.trim();
    if quota == "-1" {
        return Ok(None);
    }
    let period = files::read_number(&part.file("cpu.cfs_period_us"))?;
    milli_of(quota, period).map(Some).ok_or_else(|| files::unreadable(&quota_file, quota))
}

/// Thousandths of a CPU from a quota per period. Shared with v2, which writes both in one file.
pub(super) fn milli_of(quota: &str, period: u64) -> Option<u32> {
    let quota: u64 = quota.parse().ok()?;
    let milli = quota.checked_mul(1000)?.checked_div(period)?;
    u32::try_from(milli).ok()
}

/// Whether the caller may make groups in `directory` of a v1 tree.
pub(super) fn writable(directory: &Path) -> Result<(), Errno> {
    rustix::fs::access(directory, rustix::fs::Access::WRITE_OK)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quotas_become_thousandths_of_a_cpu() {
        assert_eq!(milli_of("20000", 100_000), Some(200));
        assert_eq!(milli_of("250000", 100_000), Some(2500));
        assert_eq!(milli_of("-5", 100_000), None);
        assert_eq!(milli_of("20000", 0), None);
        assert_eq!(milli_of("18446744073709551615", 1), None);
    }
}
