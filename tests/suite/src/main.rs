//! `ringwall-suite`: runs the tests of the workspace, two test programs at a time.
//!
//!     ringwall-suite [--build-only] [--tree DIR] [--only WORD]... [--without WORD]... [-- FILTER...]
//!
//! Cargo runs one test program after another, and its result says nothing about tests that found that
//! they could not run here. This program builds everything with one command, so that tests and
//! programs share their compiled dependencies, runs the test programs side by side, and compares what
//! was skipped with `tests/skips.toml`. With `--tree` it does the same for a workspace of its own below the
//! repository, such as `tools`.

mod build;
mod program;
mod schedule;
mod skips;

use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Instant;

use anyhow::{Context, Result, bail};

use crate::program::Report;
use crate::skips::{Allowed, Excuse};

fn main() -> ExitCode {
    match run() {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            let _ = writeln!(io::stderr(), "suite: {error:#}");
            ExitCode::FAILURE
        }
    }
}

/// What the caller chose. A word selects the packages whose names contain it.
#[derive(Debug, Default, PartialEq, Eq)]
struct Choice {
    build_only: bool,
    tree: Option<String>,
    only: Vec<String>,
    without: Vec<String>,
    filters: Vec<String>,
}

impl Choice {
    fn parse(arguments: impl Iterator<Item = String>) -> Result<Choice> {
        let mut choice = Choice::default();
        let mut arguments = arguments;
        while let Some(argument) = arguments.next() {
            let list = match argument.as_str() {
                "--build-only" => {
                    choice.build_only = true;
                    continue;
                }
                "--tree" => {
                    choice.tree = Some(arguments.next().context("--tree needs a directory")?);
                    continue;
                }
                "--only" => &mut choice.only,
                "--without" => &mut choice.without,
                "--" => {
                    choice.filters.extend(arguments);
                    break;
                }
                other => {
                    bail!("unknown argument {other:?}: expected --tree, --only, --without or --")
                }
            };
            list.push(arguments.next().with_context(|| format!("{argument} needs a word"))?);
        }
        Ok(choice)
    }

    fn takes(&self, package: &str) -> bool {
        let names = |words: &[String]| words.iter().any(|word| package.contains(word.as_str()));
        (self.only.is_empty() || names(&self.only)) && !names(&self.without)
    }
}

fn run() -> Result<bool> {
    let choice = Choice::parse(std::env::args().skip(1))?;
    let root = workspace_root()?;
    let allowed = Allowed::read(&root.join("tests/skips.toml"))?;
    let mut programs = match &choice.tree {
        Some(tree) => build::test_programs_of_tree(&root.join(tree))?,
        None => build::test_programs(&root)?,
    };
    if choice.build_only {
        return Ok(true);
    }
    programs.retain(|program| choice.takes(&program.package));
    if programs.is_empty() {
        bail!("no test program fits --only {:?} --without {:?}", choice.only, choice.without);
    }
    let began = Instant::now();
    let reports = schedule::run_all(programs, &choice.filters)?;
    let mut out = io::stdout().lock();
    let good = conclude(&mut out, &reports, &allowed)?;
    writeln!(out, "suite: {} test programs in {} s", reports.len(), began.elapsed().as_secs())?;
    Ok(good)
}

/// Prints what failed, what was skipped, and the sum. Says whether all is well.
fn conclude(out: &mut impl Write, reports: &[Report], allowed: &Allowed) -> Result<bool> {
    for report in reports.iter().filter(|report| !report.succeeded()) {
        writeln!(out, "\n=== {} failed ({})\n{}", report.name, report.ending, report.output)?;
    }
    let mut refused = 0;
    for skip in reports.iter().flat_map(|report| &report.skips) {
        if let Some(Excuse { reason, runs }) = allowed.excuse(&skip.text) {
            writeln!(out, "skipped: {}: {} ({runs}: {reason})", skip.test, skip.text)?;
        } else {
            refused += 1;
            writeln!(
                out,
                "SKIPPED: {}: {} (tests/skips.toml does not allow it)",
                skip.test, skip.text
            )?;
        }
    }
    let sum = |count: fn(&Report) -> usize| reports.iter().map(count).sum::<usize>();
    let skipped = sum(|report| report.skips.len());
    let broken = reports.iter().filter(|r| !r.succeeded() && r.failed == 0).count();
    let failed = sum(|report| report.failed) + broken + refused;
    let passed = sum(|report| report.passed).saturating_sub(skipped);
    for report in reports.iter().filter(|report| !report.succeeded()) {
        writeln!(out, "failed: {}: {}", report.name, report.failed_names.join(", "))?;
    }
    writeln!(out, "{passed} passed, {failed} failed, {skipped} skipped")?;
    Ok(failed == 0)
}

fn workspace_root() -> Result<PathBuf> {
    let here = std::env::current_dir()?;
    let found = here.ancestors().find(|dir| dir.join("tests/skips.toml").is_file());
    found.map(Path::to_owned).context("call this inside the repository of Ringwall")
}

#[cfg(test)]
mod tests;
