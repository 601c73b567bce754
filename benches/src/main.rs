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
use std::path::Path;
use std::process::ExitCode;

use anyhow::{Context, Result};
use serde_json::{Value, json};

use crate::ground::Ground;
use crate::kept::Run;
use crate::options::{HELP, Options, Task, ToolsOptions};
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
    say("preparing images");
    let ground = Ground::prepare()?;
    // Read first: a file that cannot be read must not cost a whole measurement.
    let kept = kept::read(&options.kept)?;
    let results = measure::all(&ground, options, &mut say)?;
    let run = Run { promises: promises::check(&results), results };
    let report = Report {
        name: "results",
        all: serde_json::to_value(&run)?,
        picture: plot::svg(plot::panels(&run.results))?,
        text: report::text(&run, &kept)?,
    };
    report.publish(&options.out)?;
    if let Some(name) = &options.keep {
        kept::write(&options.kept, name, &run)?;
    }
    Ok(verdict(&run.promises, options.assert))
}

fn bench_tools(options: &ToolsOptions) -> Result<ExitCode> {
    let findings = tools::measure(options, &mut say)?;
    let promises = tools::promises(&findings);
    let report = Report {
        name: "tools",
        all: json!({ "results": findings, "promises": promises }),
        picture: plot::svg(tools::panels(&findings))?,
        text: tools::text(&findings, &promises)?,
    };
    report.publish(&options.out)?;
    Ok(verdict(&promises, options.assert))
}

fn bench_vm(options: &ToolsOptions) -> Result<ExitCode> {
    let findings = vm::measure(options, &mut say)?;
    let promises = vm::promises(&findings);
    let report = Report {
        name: "vm",
        all: json!({ "results": findings, "promises": promises }),
        picture: plot::svg(vm::panels(&findings))?,
        text: vm::text(&findings, &promises)?,
    };
    report.publish(&options.out)?;
    Ok(verdict(&promises, options.assert))
}

/// One run in the three forms in which it is kept.
struct Report {
    name: &'static str,
    all: Value,
    picture: String,
    text: String,
}

impl Report {
    fn publish(&self, out: &Path) -> Result<()> {
        fs::create_dir_all(out).with_context(|| format!("could not make {}", out.display()))?;
        let name = self.name;
        fs::write(out.join(format!("{name}.json")), serde_json::to_string_pretty(&self.all)?)?;
        fs::write(out.join(format!("{name}.svg")), &self.picture)?;
        fs::write(out.join(format!("{name}.txt")), &self.text)?;
        print(&self.text)?;
        print(&format!("\nAlso in {}: {name}.json, {name}.svg, {name}.txt\n", out.display()))
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
