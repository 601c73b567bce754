//! Guests through the engine, without the command line.

use std::fs;
use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, bail, ensure};
use ringwall_desk::{Permit, SystemCaller, system_permit};
use ringwall_engine::{Engine, EngineConfig, Output, Pool, Programs, Sandbox};
use ringwall_spec::{Command, Ending, Limits, RingKind, SandboxSpec, Wall, validate};
use ringwall_wire::WriteHow;

use super::findings::{EXEC, Herd, ROUND_TRIP};
use crate::ground::{Ground, IMAGE};
use crate::memory::proportional_bytes;
use crate::stats::Summary;

pub(crate) const MEMORY: u64 = 256 << 20;
pub(crate) const HERD: usize = 10;

/// What is copied in and out.
const FILE_BYTES: usize = 32 << 20;
/// A guest that does nothing has settled by then.
const SETTLE: Duration = Duration::from_secs(1);
/// Linux tells times of processes in these.
const TICKS_PER_SECOND: f64 = 100.0;
const POOL_PATIENCE: Duration = Duration::from_secs(60);

pub(crate) struct Guests {
    engine: Arc<Engine>,
    permit: Permit,
}

/// One guest from its template.
pub(crate) struct Once {
    pub(crate) answered: Duration,
    pub(crate) first_command: Duration,
}

pub(crate) struct Living {
    pub(crate) times: Vec<Summary>,
    /// MiB per second, in and out.
    pub(crate) copied: (f64, f64),
}

impl Guests {
    pub(crate) fn open(ground: &Ground) -> Result<Guests> {
        let programs = Programs {
            launcher: ground.programs.join("ringwall-launcher"),
            warden: ground.programs.join("ringwall-warden"),
        };
        let engine = Engine::open(EngineConfig { home: ground.home(), programs })?;
        let limits =
            Limits { memory_bytes: MEMORY, timeout: Duration::from_secs(300), ..Limits::default() };
        let plain = SandboxSpec::new(Wall::single(RingKind::Vm));
        let spec = validate(SandboxSpec { image: Some(IMAGE.to_owned()), limits, ..plain })?;
        let permit = system_permit(SystemCaller::Bench, spec);
        Ok(Guests { engine: Arc::new(engine), permit })
    }

    /// From the call of the engine.
    pub(crate) fn clone_once(&self) -> Result<Once> {
        let begun = Instant::now();
        let sandbox = self.engine.raise(&self.permit)?;
        let answered = sandbox.answered_after().context("no guest")?;
        run_true(&sandbox)?;
        let first_command = begun.elapsed();
        sandbox.settle(Ending::Exited { code: 0 })?;
        Ok(Once { answered, first_command })
    }

    pub(crate) fn pool(&self) -> Result<Pool> {
        Ok(Pool::start(Arc::clone(&self.engine), self.permit.clone(), 1)?)
    }

    /// From the call of a pool that is full to a guest that answers; the pool is full again then.
    pub(crate) fn hit(&self, pool: &Pool) -> Result<Duration> {
        ensure!(pool.wait_ready(1, POOL_PATIENCE), "the pool stays empty");
        let begun = Instant::now();
        let sandbox = pool.take()?;
        let files = sandbox.files().context("no connection")?;
        files.stat(b"/")?;
        let took = begun.elapsed();
        sandbox.settle(Ending::Stopped)?;
        ensure!(pool.wait_ready(1, POOL_PATIENCE), "the pool stays empty");
        Ok(took)
    }

    /// Many at once, beside one alone.
    pub(crate) fn herd(&self, count: usize) -> Result<Herd> {
        let alone = {
            let sandbox = self.engine.raise(&self.permit)?;
            std::thread::sleep(SETTLE);
            run_true(&sandbox)?;
            cpu_seconds(sandbox.host_process())?
        };
        let raised: Vec<Result<Sandbox>> = std::thread::scope(|scope| {
            let one = || Ok(self.engine.raise(&self.permit)?);
            let all: Vec<_> = (0..count).map(|_| scope.spawn(one)).collect();
            all.into_iter().map(|thread| thread.join().unwrap_or_else(|_| gone())).collect()
        });
        let herd = raised.into_iter().collect::<Result<Vec<_>>>()?;
        let pids: Vec<u32> = herd.iter().map(Sandbox::host_process).collect();
        let pss_each = || -> Result<f64> {
            std::thread::sleep(SETTLE);
            let bytes: u64 =
                pids.iter().map(|pid| proportional_bytes(*pid)).sum::<Result<u64>>()?;
            Ok(bytes as f64 / count as f64 / f64::from(1 << 20))
        };
        let pss_idle_mib = pss_each()?;
        std::thread::scope(|scope| {
            let all: Vec<_> = herd.iter().map(|one| scope.spawn(|| run_true(one))).collect();
            all.into_iter().try_for_each(|thread| thread.join().unwrap_or_else(|_| gone()))
        })?;
        let together: f64 = pids.iter().map(|pid| cpu_seconds(*pid)).sum::<Result<f64>>()?;
        Ok(Herd {
            count,
            cpu_alone_ms: alone * 1e3,
            cpu_together_ms: together * 1e3,
            pss_idle_mib,
            pss_used_mib: pss_each()?,
        })
    }

    pub(crate) fn living(&self, execs: usize, round_trips: usize) -> Result<Living> {
        let sandbox = self.engine.raise(&self.permit)?;
        run_true(&sandbox)?;
        let timed = |action: &dyn Fn() -> Result<()>| -> Result<Duration> {
            let begun = Instant::now();
            action().map(|()| begun.elapsed())
        };
        let times = |count: usize, action: &dyn Fn() -> Result<()>| {
            (0..count).map(|_| timed(action)).collect::<Result<Vec<_>>>()
        };
        let files = sandbox.files().context("no connection")?;
        let commands = times(execs, &|| run_true(&sandbox))?;
        let trips = times(round_trips, &|| Ok(files.stat(b"/").map(drop)?))?;
        let content = vec![7; FILE_BYTES];
        let path = b"/tmp/large";
        let into = timed(&|| {
            Ok(files
                .write_file(path, 0o600, WriteHow::Replace, &mut content.as_slice())
                .map(drop)?)
        })?;
        let out = timed(&|| {
            let mut copy = Vec::with_capacity(FILE_BYTES);
            files.read_file(path, &mut copy, FILE_BYTES as u64)?;
            ensure!(copy == content, "the copy differs");
            Ok(())
        })?;
        sandbox.settle(Ending::Stopped)?;
        let rate = |time: Duration| (FILE_BYTES >> 20) as f64 / time.as_secs_f64();
        let times = [Summary::of(EXEC, &commands), Summary::of(ROUND_TRIP, &trips)];
        Ok(Living { times: times.into_iter().flatten().collect(), copied: (rate(into), rate(out)) })
    }
}

fn gone<T>() -> Result<T> {
    Err(anyhow!("a thread panicked"))
}

fn run_true(sandbox: &Sandbox) -> Result<()> {
    let command = Command { argv: vec!["/bin/true".into()], ..Command::default() };
    match sandbox.exec(&command)?.wait(&mut Silence)? {
        Ending::Exited { code: 0 } => Ok(()),
        other => bail!("`true` ended as {other:?}"),
    }
}

struct Silence;

impl Output for Silence {
    fn stdout(&mut self, _: &[u8]) -> io::Result<()> {
        Ok(())
    }

    fn stderr(&mut self, _: &[u8]) -> io::Result<()> {
        Ok(())
    }
}

/// What a process and its threads have used so far.
fn cpu_seconds(pid: u32) -> Result<f64> {
    let text = fs::read_to_string(format!("/proc/{pid}/stat"))?;
    // The name, in parentheses, may hold anything.
    let (_, fields) = text.rsplit_once(')').context("no process")?;
    let ticks = |index: usize| fields.split_whitespace().nth(index)?.parse::<f64>().ok();
    let used = ticks(11).zip(ticks(12)).context("no times")?;
    Ok((used.0 + used.1) / TICKS_PER_SECOND)
}
