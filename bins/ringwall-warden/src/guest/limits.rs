//! What jobs of a guest may use: one control group for all of them.
//!
//! The machine itself is limited from outside. This keeps a job from starving the warden, and tells
//! why a job ended.

use std::fs::{self, File};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt;
use std::time::{Duration, Instant};

use ringwall_wire::GuestUsage;

const ALL: &str = "/sys/fs/cgroup";
const JOBS: &str = "/sys/fs/cgroup/ringwall-jobs";
/// A process that does not stop by then waits for something that will not come.
const FREEZE_PATIENCE: Duration = Duration::from_secs(2);
const LOOK_EVERY: Duration = Duration::from_millis(1);
/// For the kernel and the warden.
const RESERVED_BYTES: u64 = 16 << 20;

#[derive(Debug)]
pub(crate) struct JobGroup {
    join: OwnedFd,
    most_processes: File,
}

impl JobGroup {
    pub(super) fn make() -> io::Result<JobGroup> {
        for controller in ["memory", "pids", "cpu", "io", "cpuset"] {
            let enabled =
                fs::write(format!("{ALL}/cgroup.subtree_control"), format!("+{controller}"));
            // The others are there for whoever runs containers in here.
            if ["memory", "pids"].contains(&controller) {
                enabled?;
            }
        }
        fs::create_dir(JOBS)?;
        let most = available_bytes()?.saturating_sub(RESERVED_BYTES).max(RESERVED_BYTES);
        fs::write(format!("{JOBS}/memory.max"), most.to_string())?;
        let open = |name: &str| File::options().write(true).open(format!("{JOBS}/{name}"));
        let most_processes = open("pids.max")?;
        Ok(JobGroup { join: open("cgroup.procs")?.into(), most_processes })
    }

    /// How many processes all jobs may have together.
    pub(super) fn limit(&self, pids: u32) -> io::Result<()> {
        self.most_processes.write_all_at(pids.to_string().as_bytes(), 0)
    }

    /// Whoever writes "0" to it is in.
    pub(crate) fn join(&self) -> &OwnedFd {
        &self.join
    }

    /// Ends every process in it.
    pub(super) fn kill(&self) -> io::Result<()> {
        fs::write(format!("{JOBS}/cgroup.kill"), "1")
    }

    /// Stops every process in it. False if there was none.
    pub(super) fn freeze(&self) -> io::Result<bool> {
        if !Self::event("populated 1")? {
            return Ok(false);
        }
        fs::write(format!("{JOBS}/cgroup.freeze"), "1")?;
        let until = Instant::now() + FREEZE_PATIENCE;
        while !Self::event("frozen 1")? {
            if Instant::now() >= until {
                self.thaw()?;
                return Err(io::ErrorKind::TimedOut.into());
            }
            std::thread::sleep(LOOK_EVERY);
        }
        Ok(true)
    }

    pub(super) fn thaw(&self) -> io::Result<()> {
        thaw()
    }

    fn event(line: &str) -> io::Result<bool> {
        Ok(fs::read_to_string(format!("{JOBS}/cgroup.events"))?.lines().any(|found| found == line))
    }

    pub(crate) fn usage(&self) -> GuestUsage {
        let read = |name: &str| fs::read_to_string(format!("{JOBS}/{name}")).unwrap_or_default();
        let value = |text: &str, key: &str| {
            text.lines().find_map(|line| line.strip_prefix(key)?.trim().parse().ok()).unwrap_or(0)
        };
        GuestUsage {
            oom_kills: value(&read("memory.events"), "oom_kill "),
            cpu_micros: value(&read("cpu.stat"), "usage_usec "),
        }
    }
}

fn thaw() -> io::Result<()> {
    fs::write(format!("{JOBS}/cgroup.freeze"), "0")
}

/// All jobs rest for as long as this lives.
#[derive(Debug)]
pub(super) struct Stopped(());

impl Stopped {
    pub(super) fn begin(jobs: &JobGroup) -> io::Result<Stopped> {
        jobs.freeze()?;
        Ok(Stopped(()))
    }
}

impl Drop for Stopped {
    fn drop(&mut self) {
        // What cannot go on can be ended all the same.
        let _ = thaw();
    }
}

/// What jobs and the warden can share. With less than all of it for jobs it is their group that
/// runs out, and they that end; the kernel has nobody else to end but itself.
fn available_bytes() -> io::Result<u64> {
    let text = fs::read_to_string("/proc/meminfo")?;
    let available = text.lines().find_map(|line| line.strip_prefix("MemAvailable:"));
    let kib = available.and_then(|rest| rest.trim().strip_suffix("kB")?.trim().parse::<u64>().ok());
    Ok(kib.ok_or(io::ErrorKind::InvalidData)?.saturating_mul(1024))
}
