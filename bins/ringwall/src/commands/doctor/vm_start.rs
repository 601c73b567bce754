//! How long a microVM takes to start: one is started.

use std::time::{Duration, Instant};

use ringwall_desk::{Permit, SystemCaller, system_permit};
use ringwall_engine::{Engine, EngineConfig};
use ringwall_spec::{Ending, RingKind, SandboxSpec, Wall, validate};

use super::report::VmStart;

/// Starts twice: the first may have to make the image's file system.
pub(super) fn measure(image: &str) -> VmStart {
    let measured = permit(image).and_then(|permit| start(&permit).and_then(|_| start(&permit)));
    match measured {
        Ok(took) => VmStart::TookMs(u64::try_from(took.as_millis()).unwrap_or(u64::MAX)),
        Err(error) => VmStart::Failed(format!("{error:#}")),
    }
}

fn permit(image: &str) -> anyhow::Result<Permit> {
    let wall: Wall = RingKind::Vm.name().parse()?;
    let mut spec = SandboxSpec::new(wall);
    spec.image = Some(image.to_owned());
    Ok(system_permit(SystemCaller::Doctor, validate(spec)?))
}

/// To a guest whose evidence was checked, as every job waits for it.
fn start(permit: &Permit) -> anyhow::Result<Duration> {
    let engine = Engine::open_for_one_sandbox(EngineConfig::from_environment()?, None)?;
    let started = Instant::now();
    let sandbox = engine.raise(permit)?;
    let took = started.elapsed();
    sandbox.settle(Ending::Stopped)?;
    Ok(took)
}
