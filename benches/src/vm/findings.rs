//! Everything that one run of the microVM bench found out, what is promised of it, and how it shows.

use std::fmt::{self, Write};

use serde::Serialize;

use super::rival::RIVAL;
use super::{COLD_DEBIAN, COLD_MINIMAL};
use crate::plot::{Panel, Row};
use crate::promises::{Bound, Promise, promise};
use crate::report;
use crate::results::{Machine, Unavailable};
use crate::stats::Summary;

pub(crate) const ANSWER: &str = "engine, from a template, guest answers";
pub(crate) const FIRST: &str = "engine, from a template, first command done";
pub(crate) const HIT: &str = "engine, from a pool, guest answers";
pub(crate) const EXEC: &str = "engine, command in a living guest";
pub(crate) const ROUND_TRIP: &str = "engine, one question to the warden";
pub(crate) const PAUSE: &str = "sandbox does not answer while it is kept";
pub(crate) const FORK: &str = "ringwall fork --count 10";

/// Published by the Firecracker project for its own test machine (bare metal with KVM).
const ELSEWHERE: [(&str, &str); 3] = [
    ("Firecracker, start of the guest's first program", "<= 125 ms"),
    ("Firecracker, memory besides the guest's own", "<= 5 MiB"),
    ("Firecracker, microVMs started per second", "150"),
];

#[derive(Debug, Serialize)]
pub(crate) struct Findings {
    pub(crate) machine: Machine,
    pub(crate) starts: Vec<Summary>,
    pub(crate) living: Vec<Summary>,
    pub(crate) forks: Vec<Summary>,
    /// MiB per second into a guest and out of it.
    pub(crate) copied: (f64, f64),
    pub(crate) herd: Herd,
    pub(crate) unavailable: Vec<Unavailable>,
}

/// Many guests of one template.
#[derive(Debug, Serialize)]
pub(crate) struct Herd {
    pub(crate) count: usize,
    /// Until the first command was done.
    pub(crate) cpu_alone_ms: f64,
    pub(crate) cpu_together_ms: f64,
    /// Of each, once it has answered and before anybody wants anything of it.
    pub(crate) pss_idle_mib: f64,
    /// Of each, after its first command.
    pub(crate) pss_used_mib: f64,
}

impl Findings {
    fn median(&self, name: &str) -> Option<f64> {
        let mut all = self.starts.iter().chain(&self.living).chain(&self.forks);
        all.find(|summary| summary.name == name).map(|summary| summary.median_ms)
    }

    fn of_rival(&self, name: &str) -> Option<f64> {
        Some(self.median(name)? / self.median(RIVAL)?)
    }
}

pub(crate) fn promises(findings: &Findings) -> Vec<Promise> {
    use Bound::AtMost;
    let herd = &findings.herd;
    let median = |name| findings.median(name);
    vec![
        promise("cold, Debian's kernel / rival", AtMost(0.8), findings.of_rival(COLD_DEBIAN)),
        promise("cold, minimal kernel / rival", AtMost(0.35), findings.of_rival(COLD_MINIMAL)),
        promise("from a template, answer / rival", AtMost(0.05), findings.of_rival(ANSWER)),
        promise("from a template, first command / rival", AtMost(0.12), findings.of_rival(FIRST)),
        promise("from a pool / rival", AtMost(0.03), findings.of_rival(HIT)),
        promise(
            "CPU of 10 guests at once / of one",
            AtMost(12.0),
            Some(herd.cpu_together_ms / herd.cpu_alone_ms),
        ),
        promise("MiB (PSS) per idle guest of 256 MiB", AtMost(24.0), Some(herd.pss_idle_mib)),
        promise("pause of a sandbox that is kept, ms", AtMost(100.0), median(PAUSE)),
        promise("command in a living guest, ms", AtMost(30.0), median(EXEC)),
        promise("question to the warden, us", AtMost(250.0), median(ROUND_TRIP).map(|ms| ms * 1e3)),
    ]
}

pub(crate) fn text(findings: &Findings) -> Result<String, fmt::Error> {
    let mut out = String::new();
    report::machine(&mut out, &findings.machine)?;
    let rival = findings.median(RIVAL);
    times(&mut out, "Start, ms", &findings.starts, rival)?;
    times(&mut out, "Living guest, ms", &findings.living, None)?;
    times(&mut out, "Kept and forked, ms", &findings.forks, None)?;
    let (into, from) = findings.copied;
    writeln!(out, "\nFile copied into a guest {into:.0} MiB/s, out of it {from:.0} MiB/s")?;
    let herd = &findings.herd;
    writeln!(
        out,
        "{} guests at once: {:.0} ms of CPU, one alone {:.0} ms; {:.1} MiB (PSS) each while idle, {:.1} after a command",
        herd.count, herd.cpu_together_ms, herd.cpu_alone_ms, herd.pss_idle_mib, herd.pss_used_mib
    )?;
    writeln!(out, "\nPublished elsewhere, for another machine with KVM; not measured here")?;
    for (what, figure) in ELSEWHERE {
        writeln!(out, "{what:<51} {figure:>10}")?;
    }
    report::missing(&mut out, &findings.unavailable)?;
    Ok(out)
}

fn times(out: &mut String, title: &str, rows: &[Summary], rival: Option<f64>) -> fmt::Result {
    write!(out, "\n{title:<51}")?;
    for column in ["min", "p50", "p95", "max", "runs"] {
        write!(out, " {column:>9}")?;
    }
    writeln!(out, " {:>9}", if rival.is_some() { "/ rival" } else { "" })?;
    for row in rows {
        write!(out, "{:<51}", row.name)?;
        for time in [row.min_ms, row.median_ms, row.p95_ms, row.max_ms] {
            write!(out, " {time:>9.2}")?;
        }
        let ratio = rival.map_or(String::new(), |rival| format!("{:.3}", row.median_ms / rival));
        writeln!(out, " {:>9} {ratio:>9}", row.runs)?;
    }
    Ok(())
}

pub(crate) fn panels(findings: &Findings) -> Vec<Panel> {
    let panel = |title: &str, rows: &[Summary]| {
        let row = |summary: &Summary| Row {
            name: summary.name.clone(),
            value: summary.median_ms,
            reach: Some(summary.p95_ms),
        };
        Panel { title: title.to_owned(), rows: rows.iter().map(row).collect() }
    };
    vec![
        panel("start, ms (bar: median, line: p95; shorter is better)", &findings.starts),
        panel("in a living guest, ms (shorter is better)", &findings.living),
        panel("kept and forked, ms (shorter is better)", &findings.forks),
    ]
}
