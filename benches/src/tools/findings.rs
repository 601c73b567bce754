//! Everything that one run of the tools bench found out, and what is promised of it.

use serde::Serialize;

use super::metering::Metered;
use super::stand::{ECHO, EVAL_JS, EVAL_PYTHON};
use super::swap::{SWAP, Swaps};
use super::{first, live};
use crate::contender;
use crate::promises::{Bound, Promise, promise};
use crate::results::{Footprint, Machine, Rate, Unavailable};
use crate::stats::Summary;

#[derive(Debug, Serialize)]
pub(crate) struct Findings {
    pub(crate) machine: Machine,
    /// A fresh instance of code in memory, and rivals.
    pub(crate) warm: Vec<Summary>,
    /// The first call of a host that has just been started.
    pub(crate) cold: Vec<Summary>,
    /// The first call of a tool that a running host has not loaded.
    pub(crate) load: Vec<Summary>,
    /// The same call right after.
    pub(crate) again: Vec<Summary>,
    /// How many built-in tools there are.
    pub(crate) built_ins: usize,
    pub(crate) throughput: Vec<Rate>,
    pub(crate) memory: Vec<Footprint>,
    pub(crate) metering: Vec<Metered>,
    pub(crate) swaps: Swaps,
    pub(crate) unavailable: Vec<Unavailable>,
}

/// How a tool of ours is called in the tables.
pub(crate) fn name_of(tool: &str) -> String {
    format!("ringwall, {tool}")
}

impl Findings {
    fn warm(&self, name: &str) -> Option<&Summary> {
        self.warm.iter().find(|summary| summary.name == name)
    }

    fn warm_tool(&self, tool: &str) -> Option<&Summary> {
        self.warm(&name_of(tool))
    }

    fn mib(&self, name: &str) -> Option<f64> {
        self.memory.iter().find(|item| item.name == name).map(|item| item.mib_per_sandbox)
    }

    /// What the slowest tool's start takes, if all were measured: by how much its first call takes
    /// longer than the next, which does the same work.
    fn slowest_start(&self) -> Option<f64> {
        let starts = self.load.iter().filter_map(|first| {
            let again = self.again.iter().find(|again| again.name == first.name)?;
            Some(first.median_ms - again.median_ms)
        });
        let starts: Vec<f64> = starts.collect();
        let all = starts.len() == self.built_ins;
        starts.into_iter().max_by(f64::total_cmp).filter(|_| all)
    }
}

pub(crate) fn promises(findings: &Findings) -> Vec<Promise> {
    use Bound::{AtLeast, AtMost};
    let echo = findings.warm_tool(ECHO);
    let median_us = |tool| findings.warm_tool(tool).map(|summary| summary.median_ms * 1e3);
    let times_echo = |rival| Some(findings.warm(rival)?.median_ms / echo?.median_ms);
    let rate = findings.throughput.iter().find(|rate| rate.name == name_of(ECHO));
    let swap = findings.swaps.steps.iter().find(|step| step.name == SWAP);
    vec![
        promise("warm call of echo, p50, us", AtMost(60.0), median_us(ECHO)),
        promise("warm call of echo, p99, us", AtMost(500.0), echo.map(|it| it.p99_ms * 1e3)),
        promise("calls per second, 2 threads", AtLeast(30_000.0), rate.map(|it| it.per_second)),
        promise("fork/exec of true / echo", AtLeast(15.0), times_echo(contender::BARE)),
        promise("crun run of true / echo", AtLeast(50.0), times_echo(contender::CRUN)),
        promise(
            "KiB private per call under way",
            AtMost(100.0),
            findings.mib(live::LIVE).map(|mib| mib * 1024.0),
        ),
        promise("MiB private, idle warden", AtMost(16.0), findings.mib(first::IDLE)),
        promise("slowest start of a built-in tool, ms", AtMost(5.0), findings.slowest_start()),
        promise("hot swap, p50, ms", AtMost(2.0), swap.map(|it| it.median_ms)),
        promise("warm call of eval-js, p50, us", AtMost(300.0), median_us(EVAL_JS)),
        promise(
            "warm call of eval-python, p50, ms",
            AtMost(5.0),
            median_us(EVAL_PYTHON).map(|median| median / 1e3),
        ),
    ]
}
