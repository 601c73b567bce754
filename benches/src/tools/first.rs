//! First calls: of a host that has just been started, and of a tool that a running host has not
//! loaded. The compiled code is in the cache both times.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use ringwall_engine::{ToolCall, ToolHost};

use super::findings::name_of;
use super::stand::{self, ECHO, EVAL_JS, EVAL_PYTHON, Stand, timed};
use crate::memory::{private_bytes, resident_bytes};
use crate::results::Footprint;
use crate::stats::Summary;

pub(crate) const IDLE: &str = "ringwall, idle warden, one tool called";
const RESIDENT: &str = "ringwall, idle warden, resident with shared code";
const IDLE_AFTER_ALL: &str = "ringwall, idle warden, all built-in tools called";

/// From nothing but the cache to the first result: an engine, a host, a warden in its ring.
pub(crate) fn cold(stand: &Stand, rounds: usize) -> Result<Vec<Summary>> {
    let mut times: Vec<(&str, Vec<Duration>)> = Vec::new();
    for name in [ECHO, EVAL_JS, EVAL_PYTHON] {
        if stand.tool(name).is_ok() {
            times.push((name, Vec::new()));
        }
    }
    // The first round is not counted: the cache then knows the files by their times.
    for round in 0..=rounds {
        for (name, times) in &mut times {
            let call = &stand.tool(name)?.call;
            let started = Instant::now();
            let host = stand.fresh_host()?;
            timed(&host, call).with_context(|| (*name).to_owned())?;
            let took = started.elapsed();
            if round > 0 {
                times.push(took);
            }
        }
    }
    Ok(times.iter().filter_map(|(name, times)| Summary::of(&name_of(name), times)).collect())
}

/// First calls of every built-in tool.
#[derive(Debug, Default)]
pub(crate) struct Loads {
    /// Load and first call, in a warden that is up and has not seen the tool.
    pub(crate) first: Vec<Summary>,
    /// The same call once more, right after: what of it is the tool's own work.
    pub(crate) again: Vec<Summary>,
    pub(crate) footprint: Option<Footprint>,
}

pub(crate) fn load(stand: &Stand, rounds: usize) -> Result<Loads> {
    let tools = &stand.built_ins;
    let mut first = vec![Vec::new(); tools.len()];
    let mut again = first.clone();
    let mut loads = Loads::default();
    for round in 0..=rounds {
        let host = stand.fresh_host()?;
        for index in 0..tools.len() {
            let index = (index + round) % tools.len();
            let call = &tools[index].call;
            // Wardens are raised for what they may reach: one for this call has to be up.
            let before = ToolCall { dirs: call.dirs.clone(), ..stand.nothing.clone() };
            timed(&host, &before)?;
            let took = timed(&host, call).with_context(|| tools[index].name.clone())?;
            if round > 0 {
                first[index].push(took);
                again[index].push(timed(&host, call)?);
            }
        }
        if round == rounds {
            let private = host.wardens().into_iter().map(private_bytes);
            let private: Vec<u64> = private.collect::<Result<_>>()?;
            let most = private.into_iter().max().unwrap_or_default();
            loads.footprint = Some(footprint(IDLE_AFTER_ALL, 1, most));
        }
    }
    let summaries = |times: &[Vec<Duration>]| {
        let named = tools.iter().zip(times);
        named.filter_map(|(tool, times)| Summary::of(&name_of(&tool.name), times)).collect()
    };
    (loads.first, loads.again) = (summaries(&first), summaries(&again));
    Ok(loads)
}

/// A warden that has served one call and waits for the next: private memory, and all of it.
pub(crate) fn idle(stand: &Stand) -> Result<[Footprint; 2]> {
    let host = stand.fresh_host()?;
    timed(&host, &stand.tool(ECHO)?.call)?;
    let wardens = host.wardens();
    let [warden] = wardens[..] else { bail!("{} wardens came up for one call", wardens.len()) };
    let private = footprint(IDLE, 1, private_bytes(warden)?);
    Ok([private, footprint(RESIDENT, 1, resident_bytes(warden)?)])
}

pub(crate) fn footprint(name: &str, sandboxes: usize, bytes: u64) -> Footprint {
    let mib_per_sandbox = bytes as f64 / (1 << 20) as f64 / sandboxes as f64;
    Footprint { name: name.to_owned(), sandboxes, mib_per_sandbox }
}

/// As fast as so many threads can call.
pub(crate) fn rate(
    host: &ToolHost,
    call: &ToolCall,
    workers: usize,
    time: Duration,
) -> Result<f64> {
    // Every thread finds a warden that is up and has the tool.
    let round = |until: Instant| {
        std::thread::scope(|scope| {
            let work = || -> Result<usize> {
                let mut calls = 0;
                while Instant::now() < until {
                    stand::timed(host, call)?;
                    calls += 1;
                }
                Ok(calls)
            };
            let threads: Vec<_> = (0..workers).map(|_| scope.spawn(work)).collect();
            let joined = threads
                .into_iter()
                .map(|thread| thread.join().map_err(|_| anyhow::anyhow!("a worker panicked"))?);
            joined.sum::<Result<usize>>()
        })
    };
    round(Instant::now() + time / 10)?;
    let started = Instant::now();
    let calls = round(started + time)?;
    Ok(calls as f64 / started.elapsed().as_secs_f64())
}
