//! The results as text for people.

use std::fmt::{self, Write};

use crate::promises::Promise;
use crate::results::{Machine, Results, Unavailable};
use crate::stats::Summary;
use crate::{contender, library};

pub(crate) fn text(results: &Results, promises: &[Promise]) -> Result<String, fmt::Error> {
    let mut out = String::new();
    machine(&mut out, &results.machine)?;

    times(
        &mut out,
        "Start to exit of `true`, fresh sandbox",
        &results.start,
        contender::CONTAINER,
    )?;
    times(&mut out, "`true` in a living sandbox", &results.exec, library::EXEC)?;

    writeln!(out, "\n{:<44} {:>8} {:>12}", "Create, run, destroy", "workers", "per second")?;
    for rate in &results.throughput {
        writeln!(out, "{:<44} {:>8} {:>12.0}", rate.name, rate.workers, rate.per_second)?;
    }

    writeln!(out, "\n{:<44} {:>8} {:>12}", "Private memory, idle", "count", "MiB each")?;
    for item in &results.memory {
        writeln!(out, "{:<44} {:>8} {:>12.2}", item.name, item.sandboxes, item.mib_per_sandbox)?;
    }

    missing(&mut out, &results.unavailable)?;
    promised(&mut out, promises)?;
    Ok(out)
}

pub(crate) fn machine(out: &mut String, machine: &Machine) -> fmt::Result {
    writeln!(
        out,
        "Linux {}, {} CPUs, {}; load average {} before, {} after",
        machine.kernel,
        machine.cpus,
        if machine.root { "as root" } else { "as an ordinary user" },
        machine.load_before,
        machine.load_after
    )
}

/// What could not be measured, and why.
pub(crate) fn missing(out: &mut String, unavailable: &[Unavailable]) -> fmt::Result {
    if !unavailable.is_empty() {
        writeln!(out, "\nNot available here")?;
    }
    for missing in unavailable {
        writeln!(out, "{:<44} {}", missing.name, missing.reason)?;
    }
    Ok(())
}

pub(crate) fn promised(out: &mut String, promises: &[Promise]) -> fmt::Result {
    writeln!(out, "\n{:<44} {:>8} {:>12}", "Promised", "wanted", "measured")?;
    for promise in promises {
        let measured = promise.measured.map_or("-".to_owned(), |value| format!("{value:.2}"));
        let verdict = match promise.kept {
            Some(true) => "kept",
            Some(false) => "MISSED",
            None => "not measured here",
        };
        writeln!(out, "{:<44} {:>8} {measured:>12}  {verdict}", promise.what, promise.wanted)?;
    }
    Ok(())
}

/// One table of times; ratios are to the contender named `reference`.
fn times(out: &mut String, title: &str, rows: &[Summary], reference: &str) -> fmt::Result {
    let one = rows.iter().find(|row| row.name == reference).map(|row| row.median_ms);
    writeln!(
        out,
        "\n{title:<44} {:>8} {:>9} {:>9} {:>7} {:>5}",
        "min ms", "median", "p95", "ratio", "runs"
    )?;
    for row in rows {
        let ratio = one.map_or("-".to_owned(), |one| format!("{:.2}", row.median_ms / one));
        writeln!(
            out,
            "{:<44} {:>8.2} {:>9.2} {:>9.2} {ratio:>7} {:>5}",
            row.name, row.min_ms, row.median_ms, row.p95_ms, row.runs
        )?;
    }
    Ok(())
}
