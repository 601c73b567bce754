//! Findings of the tools bench for people: tables and panels of the picture.

use std::fmt::{self, Write};

use super::findings::{Findings, name_of};
use super::stand::ECHO;
use crate::plot::{Panel, Row};
use crate::report;
use crate::stats::Summary;

pub(crate) fn text(findings: &Findings) -> Result<String, fmt::Error> {
    let mut out = String::new();
    report::machine(&mut out, &findings.machine)?;
    let echo = median(&findings.warm, &name_of(ECHO));
    let ratio = |row: &Summary| echo.map(|echo| row.median_ms / echo);
    times(&mut out, "Warm call, fresh instance", &findings.warm, Some(("ratio", &ratio)))?;
    times(&mut out, "Fresh host, first call, code in the cache", &findings.cold, None)?;
    let again = |row: &Summary| Some(median(&findings.again, &row.name)? * 1e3);
    times(&mut out, "Running host, load + first call", &findings.load, Some(("again", &again)))?;

    writeln!(out, "\n{:<51} {:>8} {:>10}", "Throughput", "threads", "per second")?;
    for rate in &findings.throughput {
        writeln!(out, "{:<51} {:>8} {:>10.0}", rate.name, rate.workers, rate.per_second)?;
    }

    writeln!(out, "\n{:<51} {:>8} {:>10}", "Private memory", "count", "KiB each")?;
    for item in &findings.memory {
        let kib = item.mib_per_sandbox * 1024.0;
        writeln!(out, "{:<51} {:>8} {kib:>10.1}", item.name, item.sandboxes)?;
    }

    writeln!(
        out,
        "\n{:<51} {:>8} {:>10} {:>10} {:>10}",
        "Metering of code (in this process)", "none ms", "epoch", "fuel", "both"
    )?;
    for row in &findings.metering {
        let over = |with: f64| format!("{:+.0} %", (with / row.none_ms - 1.0) * 100.0);
        writeln!(
            out,
            "{:<51} {:>8.2} {:>10} {:>10} {:>10}",
            row.guest,
            row.none_ms,
            over(row.epoch_ms),
            over(row.fuel_ms),
            over(row.both_ms)
        )?;
    }

    times(&mut out, "Hot swap of echo under load", &findings.swaps.steps, None)?;
    times(&mut out, "Calls of it meanwhile", &findings.swaps.calls, None)?;
    report::missing(&mut out, &findings.unavailable)?;
    Ok(out)
}

fn median(rows: &[Summary], name: &str) -> Option<f64> {
    rows.iter().find(|row| row.name == name).map(|row| row.median_ms)
}

/// A heading, and what stands below it for each row.
type LastColumn<'a> = (&'a str, &'a dyn Fn(&Summary) -> Option<f64>);

/// One table of times, in microseconds, with one more column if need be.
fn times(
    out: &mut String,
    title: &str,
    rows: &[Summary],
    last: Option<LastColumn<'_>>,
) -> fmt::Result {
    if rows.is_empty() {
        return Ok(());
    }
    write!(out, "\n{title:<51} {:>8}", "min us")?;
    for column in ["p50", "p95", "p99", "max"] {
        write!(out, " {column:>10}")?;
    }
    writeln!(out, " {:>6} {:>9}", "runs", last.map_or("", |(title, _)| title))?;
    for row in rows {
        write!(out, "{:<51} {:>8.1}", row.name, row.min_ms * 1e3)?;
        for time in [row.median_ms, row.p95_ms, row.p99_ms, row.max_ms] {
            write!(out, " {:>10.1}", time * 1e3)?;
        }
        let more = last.and_then(|(_, more)| more(row));
        let more = more.map_or(String::new(), |value| format!("{value:.1}"));
        writeln!(out, " {:>6} {more:>9}", row.runs)?;
    }
    Ok(())
}

pub(crate) fn panels(findings: &Findings) -> Vec<Panel> {
    let times = |rows: &[Summary]| {
        let row = |summary: &Summary| Row {
            name: summary.name.clone(),
            value: summary.median_ms * 1e3,
            reach: Some(summary.p95_ms * 1e3),
        };
        rows.iter().map(row).collect::<Vec<_>>()
    };
    let panel = |title: &str, rows| Panel { title: title.to_owned(), rows };
    let throughput = findings.throughput.iter();
    let memory = findings.memory.iter();
    vec![
        panel(
            "warm call, fresh instance, us (bar: median, line: p95; shorter is better)",
            times(&findings.warm),
        ),
        panel("fresh host, first call, us (shorter is better)", times(&findings.cold)),
        panel("running host, load + first call, us (shorter is better)", times(&findings.load)),
        panel(
            "calls per second (longer is better)",
            throughput
                .map(|rate| Row { name: rate.name.clone(), value: rate.per_second, reach: None })
                .collect(),
        ),
        panel(
            "private memory, KiB (shorter is better)",
            memory
                .map(|item| Row {
                    name: item.name.clone(),
                    value: item.mib_per_sandbox * 1024.0,
                    reach: None,
                })
                .collect(),
        ),
    ]
}
