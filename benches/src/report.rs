//! The results as text for people.

use std::fmt::{self, Write};

use crate::growth::Step;
use crate::kept::Kept;
use crate::promises::Promise;
use crate::results::{Machine, Results, Unavailable};
use crate::stats::Summary;
use crate::{contender, library};

pub(crate) fn text(results: &Results) -> Result<String, fmt::Error> {
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

    grown(&mut out, &results.growth)?;
    missing(&mut out, &results.unavailable)?;
    Ok(out)
}

/// Medians beside more and more living sandboxes.
fn grown(out: &mut String, steps: &[Step]) -> fmt::Result {
    writeln!(
        out,
        "\n{:<44} {:>8} {:>9} {:>9} {:>9}",
        "Beside living sandboxes, median ms", "run", "create", "ps", "rm"
    )?;
    for step in steps {
        writeln!(
            out,
            "{:<44} {:>8.2} {:>9.2} {:>9.2} {:>9.2}",
            step.living,
            step.run.median_ms,
            step.create.median_ms,
            step.list.median_ms,
            step.remove.median_ms
        )?;
    }
    Ok(())
}

/// The promised figures of earlier runs, which are ratios for the most part and so can be compared.
pub(crate) fn beside_kept(out: &mut String, now: &[Promise], kept: &[Kept]) -> fmt::Result {
    for earlier in kept {
        let machine = &earlier.results.machine;
        writeln!(
            out,
            "\nKept run {}: Linux {}, {} x {}",
            earlier.name, machine.kernel, machine.cpus, machine.processor
        )?;
        writeln!(out, "{:<44} {:>8} {:>12}", "", "kept", "this run")?;
        let figure = |value: Option<f64>| value.map_or("-".to_owned(), |one| format!("{one:.2}"));
        for promise in now {
            let before = earlier.promises.iter().find(|other| other.what == promise.what);
            let before = figure(before.and_then(|other| other.measured));
            writeln!(out, "{:<44} {before:>8} {:>12}", promise.what, figure(promise.measured))?;
        }
    }
    Ok(())
}

pub(crate) fn machine(out: &mut String, machine: &Machine) -> fmt::Result {
    writeln!(
        out,
        "Linux {}, {} x {}, {}, load average {} before and {} after",
        machine.kernel,
        machine.cpus,
        machine.processor,
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
