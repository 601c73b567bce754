//! Boots one machine after another, hands out its jobs, and tells how each ended.

use std::fs::{self, File};
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};

use crate::disk::{self, Sources};
use crate::emulator::{Emulator, Failure, Parts};
use crate::job::Job;
use crate::judge::judge;
use crate::machine::{Machine, User};
use crate::message::{JobReport, Order};
use crate::results::{JobResult, MachineResults, Outcome};

/// From the start of QEMU until the agent answers. Idle hosts need 8 to 15 seconds.
const BOOT_TIMEOUT: Duration = Duration::from_secs(180);
/// A stalled emulator is given a second chance.
const TRIES: u32 = 2;
/// The reason of a job that was not begun.
const TOO_LATE: &str = "not begun: the time of the whole lab was over";

/// Where everything is.
#[derive(Debug)]
pub struct Lab {
    /// What `scripts/lab-setup.sh` made.
    pub cache: PathBuf,
    /// Consoles, outputs and the disk that is being used.
    pub out: PathBuf,
    pub sources: Sources,
    pub boot_timeout: Duration,
    /// The lab must be done by then. Later jobs fail.
    pub end: Option<Instant>,
    /// Held for as long as this lab uses `out`.
    _lock: File,
}

impl Lab {
    pub fn open(cache: &Path, out: &Path, sources: Sources) -> anyhow::Result<Lab> {
        if !cache.join("recipe").exists() {
            bail!("{} has no kernels yet; run scripts/lab-setup.sh", cache.display());
        }
        fs::create_dir_all(out.join("console"))
            .with_context(|| format!("cannot write to {}", out.display()))?;
        // QEMU gets paths from here; absolute ones tell machines of two labs apart.
        let out = out.canonicalize()?;
        let lock = File::create(out.join("lock"))?;
        if lock.try_lock().is_err() {
            bail!("another lab is running in {}", out.display());
        }
        let cache = cache.to_owned();
        Ok(Lab { cache, out, sources, boot_timeout: BOOT_TIMEOUT, end: None, _lock: lock })
    }

    /// Returns as much of `wanted` as the lab has time for.
    fn within(&self, wanted: Duration) -> Duration {
        let left = self.end.map(|end| end.saturating_duration_since(Instant::now()));
        left.map_or(wanted, |left| left.min(wanted))
    }

    fn is_late(&self) -> bool {
        self.within(Duration::from_secs(1)).is_zero()
    }

    /// Runs all jobs of one machine. A machine that does not boot is a result, too.
    pub fn run_machine(&self, machine: &Machine, jobs: &[Job]) -> anyhow::Result<MachineResults> {
        let mut say = std::io::stdout();
        writeln!(say, "\n{}: {}", machine.name, machine.about)?;
        let mut attempt = 1;
        loop {
            if self.is_late() {
                return Ok(no_machine(machine, TOO_LATE));
            }
            match self.try_machine(machine, jobs) {
                Ok(results) => return Ok(results),
                Err(Failure::Stalled(why)) if attempt < TRIES => {
                    attempt += 1;
                    writeln!(say, "  stalled, trying once more: {why}")?;
                }
                Err(Failure::Stalled(why)) => {
                    return Ok(no_machine(machine, &format!("stalled {TRIES} times: {why}")));
                }
                Err(Failure::Broken(error)) => {
                    return Ok(no_machine(machine, &format!("{error:#}")));
                }
            }
        }
    }

    fn try_machine(&self, machine: &Machine, jobs: &[Job]) -> Result<MachineResults, Failure> {
        let mut emulator = self.boot(machine)?;
        let mut results = Vec::new();
        for (job, user) in plan(machine, jobs) {
            let mut millis = None;
            let not_begun =
                |outcome, reason| JobResult { job: job.name.clone(), user, outcome, reason };
            let seconds = self.within(Duration::from_secs(job.seconds)).as_secs();
            let result = match self.missing_program(job) {
                Some(name) => not_begun(
                    Outcome::NotTested,
                    format!("the program {name} was not brought in; run `make build`"),
                ),
                None if seconds == 0 => not_begun(Outcome::Fails, TOO_LATE.to_owned()),
                None => {
                    let report = emulator.run(Order {
                        user: user.name().to_owned(),
                        script: job.script.clone(),
                        seconds,
                    })?;
                    self.keep_output(machine, job, user, &report)?;
                    millis = Some(report.millis);
                    judge(machine, job, user, &report)
                }
            };
            tell(&result, millis)?;
            results.push(result);
        }
        let release = emulator.release.clone();
        emulator.end()?;
        Ok(MachineResults {
            machine: machine.name.clone(),
            about: machine.about.clone(),
            kernel: machine.kernel.clone(),
            release,
            jobs: results,
        })
    }

    /// Boots one machine from a fresh disk.
    pub fn boot(&self, machine: &Machine) -> Result<Emulator, Failure> {
        let kernel = self.cache.join("kernels").join(&machine.kernel);
        if !kernel.is_dir() {
            let problem = format!(
                "there is no kernel {:?} in {}; scripts/lab-setup.sh names those that it makes",
                machine.kernel,
                self.cache.display()
            );
            return Err(anyhow::anyhow!(problem).into());
        }
        let parts = self.parts(machine, kernel.join("vmlinuz"));
        self.boot_from(machine, &parts)
    }

    pub fn parts(&self, machine: &Machine, kernel: PathBuf) -> Parts {
        Parts {
            qemu: self.cache.join("qemu"),
            initramfs: self.cache.join("kernels").join(&machine.kernel).join("initramfs"),
            kernel,
            root_disk: self.cache.join("root.ext4"),
            lab_disk: self.out.join("disk.ext4"),
            console: self.out.join("console").join(&machine.name).with_extension("log"),
        }
    }

    pub fn boot_from(&self, machine: &Machine, parts: &Parts) -> Result<Emulator, Failure> {
        disk::make(machine, &self.sources, &self.out.join("stage"), &parts.lab_disk)?;
        let emulator = Emulator::boot(machine, parts, self.within(self.boot_timeout));
        // The machine has it open; nothing else needs it.
        let _ = fs::remove_file(&parts.lab_disk);
        let _ = fs::remove_dir_all(self.out.join("stage"));
        emulator
    }

    fn missing_program<'a>(&self, job: &'a Job) -> Option<&'a String> {
        job.needs.iter().find(|name| !self.sources.has_program(name))
    }

    fn keep_output(
        &self,
        machine: &Machine,
        job: &Job,
        user: User,
        report: &JobReport,
    ) -> anyhow::Result<()> {
        let directory = self.out.join("output").join(&machine.name);
        let path = directory.join(format!("{}-{}.txt", job.name, user.name()));
        fs::create_dir_all(&directory)
            .and_then(|()| fs::write(&path, &report.output))
            .with_context(|| format!("cannot keep the output in {}", path.display()))
    }
}

/// Every job of the machine with every user that both have, in order.
pub fn plan<'a>(machine: &Machine, jobs: &'a [Job]) -> Vec<(&'a Job, User)> {
    let mut plan = Vec::new();
    for name in &machine.runs {
        for job in jobs.iter().filter(|job| job.name == *name) {
            let users = machine.users.iter().filter(|user| job.users.contains(user));
            plan.extend(users.map(|user| (job, *user)));
        }
    }
    plan
}

fn no_machine(machine: &Machine, why: &str) -> MachineResults {
    let result = JobResult {
        job: "boot".to_owned(),
        user: User::Root,
        outcome: Outcome::Fails,
        reason: why.to_owned(),
    };
    // The result tells it again at the end.
    let _ = tell(&result, None);
    MachineResults {
        machine: machine.name.clone(),
        about: machine.about.clone(),
        kernel: machine.kernel.clone(),
        release: "unknown".to_owned(),
        jobs: vec![result],
    }
}

fn tell(result: &JobResult, millis: Option<u64>) -> anyhow::Result<()> {
    let seconds =
        millis.map_or_else(String::new, |millis| format!(" {:.1} s", millis as f64 / 1e3));
    writeln!(
        std::io::stdout(),
        "  {:<11} {:<14} as {:<4}{seconds}  {}",
        result.outcome.words(),
        result.job,
        result.user.name(),
        result.reason
    )?;
    Ok(())
}
