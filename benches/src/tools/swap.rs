//! Hot swap: a new version of a tool is compiled, loaded and tried while the old one is called
//! without a pause.

use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow};
use ringwall_engine::{ToolCall, ToolHost};
use serde::Serialize;

use super::guests;
use super::stand::{self, ECHO, Stand};
use crate::stats::Summary;

pub(crate) const SWAP: &str = "load and try the new version";

#[derive(Debug, Serialize)]
pub(crate) struct Swaps {
    /// The steps of a swap.
    pub(crate) steps: Vec<Summary>,
    /// Calls of the tool before, and during each step.
    pub(crate) calls: Vec<Summary>,
}

/// What goes on while a call is made.
const PHASES: [&str; 3] = ["calls, no swap", "calls while compiling", "calls while swapping"];
const QUIET: usize = 0;
const COMPILING: usize = 1;
const SWAPPING: usize = 2;
const DONE: usize = 3;

pub(crate) fn swaps(stand: &Stand, count: u8) -> Result<Swaps> {
    let tool = stand.wasm(ECHO)?;
    // A cache of its own, which knows none of the versions.
    let host = stand::open(stand.ground, &stand.ground.path("swap-home"))?;
    let mut call = stand.tool(ECHO)?.call.clone();
    call.digest = host.compile(&guests::variant(&tool, u8::MAX))?.digest;
    host.keep_ready(2);
    let first = stand::timed(&host, &call).and_then(|_| Ok(host.probe(&call.digest, false)?));
    first.context("the first version does not work")?;

    let phase = AtomicUsize::new(QUIET);
    let serving = Mutex::new(call.clone());
    std::thread::scope(|scope| {
        let caller = scope.spawn(|| keep_calling(&host, &serving, &phase));
        std::thread::sleep(Duration::from_millis(500));
        let steps = replace(&host, &tool, count, &serving, &phase);
        phase.store(DONE, Ordering::SeqCst);
        let calls = caller.join().map_err(|_| anyhow!("the caller panicked"))??;
        let named = PHASES.iter().zip(&calls);
        let calls = named.filter_map(|(name, times)| Summary::of(name, times)).collect();
        Ok(Swaps { steps: steps?, calls })
    })
}

fn replace(
    host: &ToolHost,
    tool: &[u8],
    count: u8,
    serving: &Mutex<ToolCall>,
    phase: &AtomicUsize,
) -> Result<Vec<Summary>> {
    let (mut compiling, mut swapping) = (Vec::new(), Vec::new());
    for number in 0..count {
        phase.store(COMPILING, Ordering::SeqCst);
        let begun = Instant::now();
        let digest = host.compile(&guests::variant(tool, number))?.digest;
        compiling.push(begun.elapsed());
        phase.store(SWAPPING, Ordering::SeqCst);
        let begun = Instant::now();
        host.probe(&digest, false)?;
        serving.lock().map_err(|_| anyhow!("the caller panicked"))?.digest = digest;
        swapping.push(begun.elapsed());
        // The first calls of the new version are part of it.
        std::thread::sleep(Duration::from_millis(20));
        phase.store(QUIET, Ordering::SeqCst);
        std::thread::sleep(Duration::from_millis(20));
    }
    let compiling = Summary::of("compile, in a jailed process", &compiling);
    Ok(compiling.into_iter().chain(Summary::of(SWAP, &swapping)).collect())
}

/// The times of calls, by the phase in which they began.
fn keep_calling(
    host: &ToolHost,
    serving: &Mutex<ToolCall>,
    phase: &AtomicUsize,
) -> Result<[Vec<Duration>; PHASES.len()]> {
    let mut times = [const { Vec::new() }; PHASES.len()];
    loop {
        let Some(times) = times.get_mut(phase.load(Ordering::SeqCst)) else { return Ok(times) };
        let call = serving.lock().map_err(|_| anyhow!("the swapper panicked"))?.clone();
        times.push(stand::timed(host, &call)?);
    }
}
