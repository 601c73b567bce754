//! Ringwall through its engine, without the command line.

use std::ffi::OsString;
use std::io;
use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use ringwall_desk::{Permit, SystemCaller, system_permit};
use ringwall_engine::{Engine, EngineConfig, Output, Programs, Sandbox};
use ringwall_spec::{Command, Ending, RingKind, SandboxSpec, Wall, validate};

use crate::ground::{Ground, IMAGE};

pub(crate) const FRESH_PROCESS: &str = "ringwall engine, fresh process wall";
pub(crate) const FRESH_CONTAINER: &str = "ringwall engine, fresh container wall";
pub(crate) const EXEC: &str = "ringwall engine, exec in a living sandbox";

/// An engine with what it is asked to raise.
pub(crate) struct Library {
    engine: Engine,
    process: Permit,
    container: Permit,
}

fn permit(spec: SandboxSpec) -> Result<Permit> {
    Ok(system_permit(SystemCaller::Bench, validate(spec)?))
}

impl Library {
    pub(crate) fn open(ground: &Ground) -> Result<Library> {
        let programs = Programs {
            launcher: ground.programs.join("ringwall-launcher"),
            warden: ground.programs.join("ringwall-warden"),
        };
        let image = Some(IMAGE.to_owned());
        let plain = |ring| SandboxSpec::new(Wall::single(ring));
        Ok(Library {
            engine: Engine::open(EngineConfig { home: ground.home(), programs })?,
            process: permit(plain(RingKind::Process))?,
            container: permit(SandboxSpec { image, ..plain(RingKind::Container) })?,
        })
    }

    pub(crate) fn fresh_process(&self) -> Result<Duration> {
        self.fresh(&self.process)
    }

    pub(crate) fn fresh_container(&self) -> Result<Duration> {
        self.fresh(&self.container)
    }

    pub(crate) fn raise_container(&self) -> Result<Sandbox> {
        Ok(self.engine.raise(&self.container)?)
    }

    /// That many fresh container walls by that many workers.
    pub(crate) fn burst(&self, runs: usize, workers: usize) -> Result<Duration> {
        let started = Instant::now();
        std::thread::scope(|scope| {
            let share = |worker: usize| runs / workers + usize::from(worker < runs % workers);
            let threads: Vec<_> = (0..workers)
                .map(|worker| {
                    scope.spawn(move || {
                        (0..share(worker)).try_for_each(|_| self.fresh_container().map(|_| ()))
                    })
                })
                .collect();
            threads.into_iter().try_for_each(|thread| match thread.join() {
                Ok(result) => result,
                Err(_) => bail!("a worker panicked"),
            })
        })?;
        Ok(started.elapsed())
    }

    /// Raise, check evidence, run, tear down.
    fn fresh(&self, spec: &Permit) -> Result<Duration> {
        let started = Instant::now();
        let sandbox = self.engine.raise(spec)?;
        let ending = sandbox.start(&a_true())?.wait(&mut Silent)?;
        sandbox.settle(ending)?;
        let took = started.elapsed();
        succeeded(ending)?;
        Ok(took)
    }
}

/// One `true` in a sandbox that was there before and stays.
pub(crate) fn exec(sandbox: &Sandbox) -> Result<Duration> {
    let started = Instant::now();
    let ending = sandbox.exec(&a_true())?.wait(&mut Silent)?;
    let took = started.elapsed();
    succeeded(ending)?;
    Ok(took)
}

pub(crate) fn end(sandbox: Sandbox) -> Result<()> {
    sandbox.settle(Ending::Stopped)?;
    Ok(())
}

fn a_true() -> Command {
    Command { argv: vec![OsString::from("true")], ..Command::default() }
}

fn succeeded(ending: Ending) -> Result<()> {
    match ending {
        Ending::Exited { code: 0 } => Ok(()),
        other => bail!("`true` ended with {other:?}"),
    }
}

struct Silent;

impl Output for Silent {
    fn stdout(&mut self, _: &[u8]) -> io::Result<()> {
        Ok(())
    }

    fn stderr(&mut self, _: &[u8]) -> io::Result<()> {
        Ok(())
    }
}
