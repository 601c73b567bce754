//! The limits that every run has, and the means by which each was kept.

use std::fmt;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::units::{show_bytes, show_duration};

/// Every run has every limit; there is no "unlimited".
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Limits {
    /// Wall-clock time of the job; the whole process tree is killed when it is over.
    pub timeout: Duration,
    pub memory_bytes: u64,
    /// CPU time per wall-clock time, in thousandths of one CPU.
    pub cpu_milli: u32,
    pub pids: u32,
    /// Everything the job can write outside a read-write workspace. Held in memory, so it also
    /// counts towards `memory_bytes` as it fills.
    pub disk_bytes: u64,
    pub disk_inodes: u64,
    /// Standard output and standard error together.
    pub output_bytes: u64,
    pub open_files: u32,
}

/// So many that a job cannot keep other programs of its user from passing descriptors. The kernel counts
/// descriptors on their way in sockets by user, and compares their number with the limit of the sender,
/// before it adds up to 253 more. The usual limit of a program is 1,024.
pub const DEFAULT_OPEN_FILES: u32 = 768;

impl Default for Limits {
    fn default() -> Self {
        Limits {
            timeout: Duration::from_secs(30),
            memory_bytes: 512 << 20,
            cpu_milli: 1000,
            pids: 128,
            disk_bytes: 256 << 20,
            disk_inodes: 65_536,
            output_bytes: 64 << 20,
            open_files: DEFAULT_OPEN_FILES,
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{limit} of {asked} is outside {least} to {most}; give a value in that range")]
pub struct LimitError {
    pub limit: LimitName,
    pub asked: String,
    pub least: String,
    pub most: String,
}

impl Limits {
    /// Refuses values with which nothing could run, and values that limit nothing.
    pub fn validate(&self) -> Result<(), LimitError> {
        let plain = |n: u64| n.to_string();
        let time = |ms: u64| show_duration(Duration::from_millis(ms));
        let cpus = |milli: u64| format!("{}.{:03}", milli / 1000, milli % 1000);
        let timeout_ms = u64::try_from(self.timeout.as_millis()).unwrap_or(u64::MAX);
        in_range(LimitName::Timeout, timeout_ms, 1, 7 * 24 * 3_600_000, time)?;
        in_range(LimitName::Memory, self.memory_bytes, 4 << 20, 16 << 40, show_bytes)?;
        in_range(LimitName::Cpu, u64::from(self.cpu_milli), 10, 1_024_000, cpus)?;
        in_range(LimitName::Pids, u64::from(self.pids), 2, 1 << 22, plain)?;
        in_range(LimitName::Disk, self.disk_bytes, 1 << 20, 16 << 40, show_bytes)?;
        in_range(LimitName::Inodes, self.disk_inodes, 64, 1 << 32, plain)?;
        in_range(LimitName::Output, self.output_bytes, 1, 1 << 40, show_bytes)?;
        in_range(LimitName::OpenFiles, u64::from(self.open_files), 16, 1 << 20, plain)
    }
}

fn in_range(
    limit: LimitName,
    value: u64,
    least: u64,
    most: u64,
    show: impl Fn(u64) -> String,
) -> Result<(), LimitError> {
    if (least..=most).contains(&value) {
        return Ok(());
    }
    Err(LimitError { limit, asked: show(value), least: show(least), most: show(most) })
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum LimitName {
    Timeout,
    Memory,
    Cpu,
    Pids,
    Disk,
    Inodes,
    Output,
    OpenFiles,
}

impl fmt::Display for LimitName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            LimitName::Timeout => "timeout",
            LimitName::Memory => "memory",
            LimitName::Cpu => "cpus",
            LimitName::Pids => "pids",
            LimitName::Disk => "disk",
            LimitName::Inodes => "inodes",
            LimitName::Output => "output",
            LimitName::OpenFiles => "open-files",
        })
    }
}

/// By which means a limit was kept. An outcome names one for every limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum LimitMeans {
    CgroupV1,
    CgroupV2,
    /// A size-capped tmpfs.
    Tmpfs,
    /// A resource limit counted for the sandbox alone (its own user namespace).
    Rlimit,
    /// The engine adds up the tree's memory many times a second and kills it; each single process
    /// is also capped by a resource limit.
    Watchdog,
    /// Pinned to whole CPUs, with the call that would unpin denied.
    Affinity,
    /// The engine counts or times, and kills the tree.
    Engine,
    /// The guest has no more than this: its memory, its processors, what its kernel counts.
    Guest,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct KeptLimit {
    pub limit: LimitName,
    /// As shown to people: `512M`, `30s`, `128`.
    pub value: String,
    pub means: LimitMeans,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_defaults_are_valid() {
        assert_eq!(Limits::default().validate(), Ok(()));
    }

    #[test]
    fn zero_and_absurd_limits_are_refused_by_name() {
        let check = |limits: Limits, name: LimitName| {
            assert_eq!(limits.validate().unwrap_err().limit, name);
        };
        let base = Limits::default;
        check(Limits { timeout: Duration::ZERO, ..base() }, LimitName::Timeout);
        check(Limits { timeout: Duration::MAX, ..base() }, LimitName::Timeout);
        check(Limits { memory_bytes: 0, ..base() }, LimitName::Memory);
        check(Limits { memory_bytes: u64::MAX, ..base() }, LimitName::Memory);
        check(Limits { cpu_milli: 0, ..base() }, LimitName::Cpu);
        check(Limits { pids: 0, ..base() }, LimitName::Pids);
        check(Limits { disk_bytes: 0, ..base() }, LimitName::Disk);
        check(Limits { disk_inodes: 0, ..base() }, LimitName::Inodes);
        check(Limits { output_bytes: 0, ..base() }, LimitName::Output);
        check(Limits { open_files: 0, ..base() }, LimitName::OpenFiles);
    }
}
