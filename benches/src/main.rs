//! `make bench`: how fast and how small Ringwall is, beside others, measured in one run.
//!
//! Everything is measured from the start of a program to its end, teardown and evidence included,
//! round by round in turn. What cannot be had on this machine is named with the reason; no figure
//! is carried over from elsewhere.

mod contender;
mod daemons;
mod ground;
mod library;
mod measure;
mod memory;
mod options;
mod plot;
mod promises;
mod report;
mod results;
mod stats;
mod stopwatch;

use std::fs;
use std::io::Write;
use std::process::ExitCode;

use anyhow::{Context, Result};
use serde_json::json;

use crate::ground::Ground;
use crate::options::{HELP, Options, Task};

fn main() -> ExitCode {
    let done = match options::parse(std::env::args_os().skip(1)) {
        Ok(Task::Bench(options)) => bench(&options),
        Ok(Task::Stopwatch(filter)) => stopwatch::serve(filter).map(|()| ExitCode::SUCCESS),
        Ok(Task::Help) => print(HELP).map(|()| ExitCode::SUCCESS),
        Err(error) => Err(error),
    };
    done.unwrap_or_else(|error| {
        let _ = writeln!(std::io::stderr(), "ringwall-bench: {error:#}");
        ExitCode::FAILURE
    })
}

fn bench(options: &Options) -> Result<ExitCode> {
    let mut say = |what: &str| {
        let _ = writeln!(std::io::stderr(), "bench: {what}");
    };
    say("preparing images");
    let ground = Ground::prepare()?;
    let results = measure::all(&ground, options, &mut say)?;
    let promises = promises::check(&results);
    let text = report::text(&results, &promises)?;

    let out = &options.out;
    fs::create_dir_all(out).with_context(|| format!("could not make {}", out.display()))?;
    let all = json!({ "results": results, "promises": promises });
    fs::write(out.join("results.json"), serde_json::to_string_pretty(&all)?)?;
    fs::write(out.join("results.svg"), plot::svg(&results)?)?;
    fs::write(out.join("results.txt"), &text)?;
    print(&text)?;
    print(&format!("\nAlso in {}: results.json, results.svg, results.txt\n", out.display()))?;

    let missed = promises.iter().any(|promise| promise.kept == Some(false));
    Ok(if missed && options.assert { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

fn print(text: &str) -> Result<()> {
    Ok(std::io::stdout().lock().write_all(text.as_bytes())?)
}
