//! What the daemon adds, what is promised of it, and how it shows.

use std::fmt;

use serde::Serialize;

use crate::plot::Panel;
use crate::promises::{Bound, Promise, promise};
use crate::report;
use crate::results::{Machine, Unavailable};
use crate::stats::Summary;
use crate::tools::show::{rows_of, times};

pub(crate) const OWN: &str = "engine, exec in its own sandbox";
pub(crate) const KEPT: &str = "engine, exec through a keeper";
pub(crate) const REST: &str = "daemon, exec by its owner";
pub(crate) const REST_HELD: &str = "daemon, exec with a grant and its budget";
pub(crate) const TOOL: &str = "engine, call of echo";
pub(crate) const REST_TOOL: &str = "daemon, call of echo by its owner";
pub(crate) const REST_TOOL_HELD: &str = "daemon, call of echo with a grant";

#[derive(Debug, Serialize)]
pub(crate) struct Findings {
    pub(crate) machine: Machine,
    pub(crate) execs: Vec<Summary>,
    pub(crate) calls: Vec<Summary>,
    pub(crate) unavailable: Vec<Unavailable>,
}

impl Findings {
    fn median(&self, name: &str) -> Option<f64> {
        let mut all = self.execs.iter().chain(&self.calls);
        all.find(|row| row.name == name).map(|row| row.median_ms)
    }

    fn added(&self, name: &str, to: &str) -> Option<f64> {
        Some(self.median(name)? - self.median(to)?)
    }
}

pub(crate) fn promises(findings: &Findings) -> Vec<Promise> {
    use Bound::AtMost;
    vec![
        promise("ms that the daemon adds to an exec", AtMost(1.0), findings.added(REST, OWN)),
        promise("the same, with a grant", AtMost(1.0), findings.added(REST_HELD, OWN)),
        promise("ms of a tool's call over REST", AtMost(1.0), findings.median(REST_TOOL)),
        promise("the same, with a grant", AtMost(1.0), findings.median(REST_TOOL_HELD)),
    ]
}

pub(crate) fn text(findings: &Findings, promises: &[Promise]) -> Result<String, fmt::Error> {
    let mut out = String::new();
    report::machine(&mut out, &findings.machine)?;
    times(&mut out, "`true` in a living sandbox", &findings.execs, None)?;
    times(&mut out, "Call of a WASM tool", &findings.calls, None)?;
    report::missing(&mut out, &findings.unavailable)?;
    report::promised(&mut out, promises)?;
    Ok(out)
}

pub(crate) fn panels(findings: &Findings) -> Vec<Panel> {
    let panel = |title: &str, rows: &[Summary]| Panel {
        title: format!("{title}, us (bar: median, line: p95; shorter is better)"),
        rows: rows_of(rows),
    };
    vec![panel("exec", &findings.execs), panel("call of a tool", &findings.calls)]
}
