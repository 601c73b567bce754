//! How long a microVM takes to start: one is started.

use std::time::{Duration, Instant};

use ringwall_engine::{Engine, EngineConfig};
use ringwall_spec::{Ending, RingKind, SandboxSpec, ValidSpec, Wall, validate};

use super::report::VmStart;

/// Starts twice: the first may have to make the image's file system.
pub(super) fn measure(image: &str) -> VmStart {
    let measured = admitted(image).and_then(|spec| start(&spec).and_then(|_| start(&spec)));
    match measured {
        Ok(took) => VmStart::TookMs(u64::try_from(took.as_millis()).unwrap_or(u64::MAX)),
        Err(error) => VmStart::Failed(format!("{error:#}")),
    }
}

fn admitted(image: &str) -> anyhow::Result<ValidSpec> {
    let wall: Wall = RingKind::Vm.name().parse()?;
    let mut spec = SandboxSpec::new(wall);
    spec.image = Some(image.to_owned());
    Ok(validate(spec)?)
}

/// To a guest whose evidence was checked, as every job waits for it.
fn start(spec: &ValidSpec) -> anyhow::Result<Duration> {
    let engine = Engine::open_for_one_sandbox(EngineConfig::from_environment()?, None)?;
    let started = Instant::now();
    let sandbox = engine.raise(spec)?;
    let took = started.elapsed();
    sandbox.settle(Ending::Stopped)?;
    Ok(took)
}
