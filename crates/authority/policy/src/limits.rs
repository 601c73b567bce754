//! Limits of the policy file: what a job gets, and the most that it may ask for.

use ringwall_spec::{LimitName, Limits};

use crate::file::LimitRules;
use crate::words::At;

impl LimitRules {
    /// Puts what is written here in the place of what `limits` says.
    pub(crate) fn lower(&self, limits: &mut Limits) {
        set(&self.timeout, &mut limits.timeout, |time| time.0);
        set(&self.memory, &mut limits.memory_bytes, |size| size.0);
        set(&self.cpus, &mut limits.cpu_milli, |cpus| cpus.0);
        set(&self.pids, &mut limits.pids, |pids| pids);
        set(&self.disk, &mut limits.disk_bytes, |size| size.0);
        set(&self.inodes, &mut limits.disk_inodes, |inodes| inodes);
        set(&self.output, &mut limits.output_bytes, |size| size.0);
        set(&self.open_files, &mut limits.open_files, |files| files);
    }

    /// Where the rule for one limit stands.
    pub(crate) fn offset_of(&self, limit: LimitName) -> Option<usize> {
        match limit {
            LimitName::Timeout => self.timeout.as_ref().map(|at| at.offset),
            LimitName::Memory => self.memory.as_ref().map(|at| at.offset),
            LimitName::Cpu => self.cpus.as_ref().map(|at| at.offset),
            LimitName::Pids => self.pids.as_ref().map(|at| at.offset),
            LimitName::Disk => self.disk.as_ref().map(|at| at.offset),
            LimitName::Inodes => self.inodes.as_ref().map(|at| at.offset),
            LimitName::Output => self.output.as_ref().map(|at| at.offset),
            LimitName::OpenFiles => self.open_files.as_ref().map(|at| at.offset),
        }
    }
}

fn set<T: Copy, V>(rule: &Option<At<T>>, limit: &mut V, value: impl Fn(T) -> V) {
    if let Some(rule) = rule {
        *limit = value(rule.value);
    }
}

/// Each limit at the smaller of the two.
pub(crate) fn smaller(one: &Limits, other: &Limits) -> Limits {
    Limits {
        timeout: one.timeout.min(other.timeout),
        memory_bytes: one.memory_bytes.min(other.memory_bytes),
        cpu_milli: one.cpu_milli.min(other.cpu_milli),
        pids: one.pids.min(other.pids),
        disk_bytes: one.disk_bytes.min(other.disk_bytes),
        disk_inodes: one.disk_inodes.min(other.disk_inodes),
        output_bytes: one.output_bytes.min(other.output_bytes),
        open_files: one.open_files.min(other.open_files),
    }
}

/// The first limit of which `asked` is more than `most`.
pub(crate) fn first_above(asked: &Limits, most: &Limits) -> Option<LimitName> {
    [
        (LimitName::Timeout, asked.timeout > most.timeout),
        (LimitName::Memory, asked.memory_bytes > most.memory_bytes),
        (LimitName::Cpu, asked.cpu_milli > most.cpu_milli),
        (LimitName::Pids, asked.pids > most.pids),
        (LimitName::Disk, asked.disk_bytes > most.disk_bytes),
        (LimitName::Inodes, asked.disk_inodes > most.disk_inodes),
        (LimitName::Output, asked.output_bytes > most.output_bytes),
        (LimitName::OpenFiles, asked.open_files > most.open_files),
    ]
    .into_iter()
    .find(|(_, above)| *above)
    .map(|(name, _)| name)
}
