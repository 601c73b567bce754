//! `make bench`, `make bench-tools` and `make bench-vm`: how fast and how small Ringwall is, beside others, measured
//! in one run.
//!
//! Everything is measured from the start of a program to its end, teardown and evidence included,
//! round by round in turn. What cannot be had on this machine is named with the reason; no figure
//! is carried over from elsewhere.

mod contender;
mod daemons;
mod ground;
mod growth;
mod kept;
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
mod tools;
mod vm;

use std::fs;
use std::io::Write;
use std::process::ExitCode;

use anyhow::{Context, Result};
use serde::Serialize;

use crate::ground::Ground;
use crate::kept::{Kept, Run};
use crate::options::{HELP, Options, Place, Task, ToolsOptions};
use crate::promises::Promise;

// As in the programs that hold an engine.
#[global_allocator]
static ALLOCATOR: dlmalloc::GlobalDlmalloc = dlmalloc::GlobalDlmalloc;

fn main() -> ExitCode {
    let done = match options::parse(std::env::args_os().skip(1)) {
        Ok(Task::Bench(options)) => bench(&options),
        Ok(Task::Tools(options)) => bench_tools(&options),
        Ok(Task::Vm(options)) => bench_vm(&options),
        Ok(Task::RunCompiled(module)) => tools::run_compiled(&module).map(|()| ExitCode::SUCCESS),
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
    let place = Publication { name: "results", part: "", place: &options.place };
    // Read first: a file that cannot be read must not cost a whole measurement.
    let kept = place.kept()?;
    say("preparing images");
    let ground = Ground::prepare()?;
    let results = measure::all(&ground, options, &mut say)?;
    let (picture, text) = (plot::svg(plot::panels(&results))?, report::text(&results)?);
    let promises = promises::check(&results);
    place.publish(&Run { results, promises }, (&picture, text), &kept)
}

fn bench_tools(options: &ToolsOptions) -> Result<ExitCode> {
    let place = Publication { name: "tools", part: "tools", place: &options.place };
    let kept = place.kept()?;
    let results = tools::measure(options, &mut say)?;
    let (picture, text) = (plot::svg(tools::panels(&results))?, tools::text(&results)?);
    let promises = tools::promises(&results);
    place.publish(&Run { results, promises }, (&picture, text), &kept)
}

fn bench_vm(options: &ToolsOptions) -> Result<ExitCode> {
    let place = Publication { name: "vm", part: "vm", place: &options.place };
    let kept = place.kept()?;
    let results = vm::measure(options, &mut say)?;
    let (picture, text) = (plot::svg(vm::panels(&results))?, vm::text(&results)?);
    let promises = vm::promises(&results);
    place.publish(&Run { results, promises }, (&picture, text), &kept)
}

/// Where the results of one part of the bench go.
struct Publication<'a> {
    /// What its files are called.
    name: &'static str,
    /// Where its kept runs are, below those of the bench as a whole.
    part: &'static str,
    place: &'a Place,
}

impl Publication<'_> {
    fn kept(&self) -> Result<Vec<Kept>> {
        kept::read(&self.place.kept.join(self.part))
    }

    /// Writes one run in three forms, prints it beside the kept ones, and keeps it if that is wanted.
    fn publish<M: Serialize>(
        &self,
        run: &Run<M>,
        (picture, mut text): (&str, String),
        kept: &[Kept],
    ) -> Result<ExitCode> {
        let (Place { out, kept: directory, keep, assert }, name) = (self.place, self.name);
        report::promised(&mut text, &run.promises)?;
        report::beside_kept(&mut text, &run.promises, kept)?;
        let all = serde_json::to_value(run)?;
        fs::create_dir_all(out).with_context(|| format!("could not make {}", out.display()))?;
        fs::write(out.join(format!("{name}.json")), serde_json::to_string_pretty(&all)?)?;
        fs::write(out.join(format!("{name}.svg")), picture)?;
        fs::write(out.join(format!("{name}.txt")), &text)?;
        print(&text)?;
        print(&format!("\nAlso in {}: {name}.json, {name}.svg, {name}.txt\n", out.display()))?;
        if let Some(as_name) = keep {
            kept::write(&directory.join(self.part), as_name, &all)?;
        }
        Ok(verdict(&run.promises, *assert))
    }
}

fn verdict(promises: &[Promise], assert: bool) -> ExitCode {
    let missed = promises.iter().any(|promise| promise.kept == Some(false));
    if missed && assert { ExitCode::FAILURE } else { ExitCode::SUCCESS }
}

fn say(what: &str) {
    let _ = writeln!(std::io::stderr(), "bench: {what}");
}

fn print(text: &str) -> Result<()> {
    Ok(std::io::stdout().lock().write_all(text.as_bytes())?)
}
