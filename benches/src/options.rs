//! The few options of the bench, read by hand.

use std::ffi::{OsStr, OsString};
use std::path::PathBuf;

use anyhow::{Context, Result, bail};

pub(crate) const HELP: &str = "\
usage: ringwall-bench [--rounds N] [--burst N] [--idle N] [--living N] [--out DIR] [--kept DIR] [--keep NAME] [--assert]
  --rounds N   timed rounds of each contender [60]
  --burst N    runs of each contender when throughput is measured [300]
  --idle N     idle sandboxes when memory is measured [16]
  --living N   most sandboxes that live when growth is measured [2000]
  --out DIR    where results.json, results.txt and results.svg go [benches/out]
  --kept DIR   earlier runs, shown beside this one [docs/benchmarks]
  --keep NAME  keep this run there under that name
  --assert     fail when a promised figure is missed

usage: ringwall-bench tools [--quick] [--out DIR] [--kept DIR] [--keep NAME] [--assert]
  calls of WASM tools instead: tools.json, tools.txt and tools.svg
  --quick      fewer rounds, for a first look

usage: ringwall-bench vm [--quick] [--out DIR] [--kept DIR] [--keep NAME] [--assert]
  microVMs instead: vm.json, vm.txt and vm.svg
";

#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Options {
    pub(crate) rounds: usize,
    pub(crate) burst: usize,
    pub(crate) idle: usize,
    pub(crate) living: usize,
    pub(crate) place: Place,
}

#[derive(Debug, PartialEq, Eq)]
pub(crate) struct ToolsOptions {
    pub(crate) quick: bool,
    pub(crate) place: Place,
}

/// Where results go, and what becomes of them.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Place {
    pub(crate) out: PathBuf,
    pub(crate) kept: PathBuf,
    pub(crate) keep: Option<String>,
    pub(crate) assert: bool,
}

impl Place {
    fn usual() -> Place {
        Place { out: OUT.into(), kept: KEPT.into(), keep: None, assert: false }
    }

    /// Whether the flag was one of those that all parts have.
    fn takes(&mut self, flag: &OsStr, mut value: impl FnMut() -> Result<OsString>) -> Result<bool> {
        match flag.to_str() {
            Some("--assert") => self.assert = true,
            Some("--out") => self.out = value()?.into(),
            Some("--kept") => self.kept = value()?.into(),
            Some("--keep") => self.keep = Some(name(&value()?)?),
            _ => return Ok(false),
        }
        Ok(true)
    }
}

/// What this process was started for.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Task {
    Bench(Options),
    Tools(ToolsOptions),
    Vm(ToolsOptions),
    /// A rival: one process that runs one compiled module once.
    RunCompiled(PathBuf),
    /// A child that starts and times programs; the filter it hands to them is in this file.
    Stopwatch(PathBuf),
    Help,
}

/// Where results go.
const OUT: &str = "benches/out";
/// Where earlier runs are kept.
const KEPT: &str = "docs/benchmarks";

pub(crate) fn parse(arguments: impl IntoIterator<Item = OsString>) -> Result<Task> {
    let mut arguments = arguments.into_iter().peekable();
    if arguments.next_if(|first| first == "tools").is_some() {
        Ok(tools(arguments)?.map_or(Task::Help, Task::Tools))
    } else if arguments.next_if(|first| first == "vm").is_some() {
        Ok(tools(arguments)?.map_or(Task::Help, Task::Vm))
    } else {
        walls(arguments)
    }
}

/// Of the parts that have the same few options. None for help.
fn tools(mut arguments: impl Iterator<Item = OsString>) -> Result<Option<ToolsOptions>> {
    let mut options = ToolsOptions { quick: false, place: Place::usual() };
    while let Some(flag) = arguments.next() {
        if options.place.takes(&flag, || value_of(&flag, &mut arguments))? {
            continue;
        }
        match flag.to_str() {
            Some("--quick") => options.quick = true,
            Some("--help" | "-h") => return Ok(None),
            _ => bail!("unknown option {} of this part; see --help", flag.display()),
        }
    }
    Ok(Some(options))
}

fn walls(mut arguments: impl Iterator<Item = OsString>) -> Result<Task> {
    let mut options =
        Options { rounds: 60, burst: 300, idle: 16, living: 2000, place: Place::usual() };
    while let Some(flag) = arguments.next() {
        let mut value = || value_of(&flag, &mut arguments);
        if options.place.takes(&flag, &mut value)? {
            continue;
        }
        match flag.to_str() {
            Some("--rounds") => options.rounds = count(&value()?)?,
            Some("--burst") => options.burst = count(&value()?)?,
            Some("--idle") => options.idle = count(&value()?)?,
            Some("--living") => options.living = count(&value()?)?,
            Some("--stopwatch") => return Ok(Task::Stopwatch(value()?.into())),
            Some("--run-compiled") => return Ok(Task::RunCompiled(value()?.into())),
            Some("--help" | "-h") => return Ok(Task::Help),
            _ => bail!("unknown option {}; see --help", flag.display()),
        }
    }
    Ok(Task::Bench(options))
}

fn value_of(flag: &OsStr, arguments: &mut impl Iterator<Item = OsString>) -> Result<OsString> {
    arguments.next().with_context(|| format!("{} needs a value", flag.display()))
}

fn count(text: &OsString) -> Result<usize> {
    let number = text.to_str().and_then(|text| text.parse().ok());
    number
        .filter(|count| (1..=100_000).contains(count))
        .with_context(|| format!("{} is not a count from 1 to 100000", text.display()))
}

/// What a kept run may be called: it becomes the name of a file.
fn name(text: &OsString) -> Result<String> {
    let plain = |name: &&str| {
        let fits = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || ".-".contains(c);
        !name.is_empty() && !name.starts_with('.') && name.chars().all(fits)
    };
    let name = text.to_str().filter(plain);
    name.map(str::to_owned).with_context(|| {
        format!("{} is not a name of small letters, digits, dots and hyphens", text.display())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(words: &str) -> Result<Task> {
        parse(words.split_whitespace().map(OsString::from))
    }

    #[test]
    fn flags_change_their_own_option_only() {
        let Task::Bench(options) = parsed("--rounds 5 --assert").unwrap() else { panic!() };
        assert_eq!((options.rounds, options.burst, options.place.assert), (5, 300, true));
    }

    #[test]
    fn tools_have_options_of_their_own() {
        let words = "tools --quick --out there --keep one";
        let Task::Tools(options) = parsed(words).unwrap() else { panic!() };
        let place = Place { out: "there".into(), keep: Some("one".to_owned()), ..Place::usual() };
        assert_eq!(options, ToolsOptions { quick: true, place });
    }

    #[test]
    fn nonsense_is_refused() {
        for bad in [
            "--rounds",
            "--rounds 0",
            "--rounds many",
            "--keep ../elsewhere",
            "--keep .hidden",
            "--fast",
            "x",
            "tools --rounds 5",
            "tools --out",
            "vm --rounds 5",
            "vm --keep a/b",
        ] {
            assert!(parsed(bad).is_err(), "{bad}");
        }
    }
}
