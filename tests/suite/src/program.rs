//! Runs one test program and reads its report.

use std::io::{Read, Seek};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use rustix::process::{Pid, Signal};

use crate::build::TestProgram;

/// No test program takes as long on two busy cores.
const PROGRAM_TIMEOUT: Duration = Duration::from_secs(40 * 60);

/// What tests print when they find that they cannot run here.
const SKIP_MARK: &str = "not tested here: ";

/// A test that found that it could not run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Skip {
    pub(crate) test: String,
    pub(crate) text: String,
}

/// What came of a test program.
#[derive(Debug)]
pub(crate) struct Report {
    pub(crate) name: String,
    pub(crate) ending: String,
    pub(crate) passed: usize,
    pub(crate) failed: usize,
    pub(crate) failed_names: Vec<String>,
    pub(crate) skips: Vec<Skip>,
    pub(crate) output: String,
    pub(crate) seconds: u64,
    pub(crate) exit_zero: bool,
}

impl Report {
    pub(crate) fn succeeded(&self) -> bool {
        self.exit_zero && self.failed == 0
    }
}

pub(crate) fn run(program: &TestProgram, threads: usize, filters: &[String]) -> Result<Report> {
    let began = Instant::now();
    // A file and not a pipe: a test may leave a process behind that holds the pipe open for ever.
    let mut kept = tempfile()?;
    let mut child = Command::new(&program.executable)
        .args(["--show-output", "--test-threads", &threads.to_string()])
        .args(filters)
        .current_dir(&program.directory)
        .env("CARGO_MANIFEST_DIR", &program.directory)
        .stdin(Stdio::null())
        .stdout(kept.try_clone()?)
        .stderr(kept.try_clone()?)
        .process_group(0)
        .spawn()
        .with_context(|| format!("cannot start {}", program.executable.display()))?;
    let status = wait(&mut child, began)?;
    let mut output = Vec::new();
    kept.rewind()?;
    kept.read_to_end(&mut output)?;
    let mut report = read_report(&program.name, &String::from_utf8_lossy(&output));
    report.seconds = began.elapsed().as_secs();
    report.exit_zero = status.is_some_and(|status| status.success());
    report.ending = status.map_or("stopped: it took too long".into(), |status| status.to_string());
    Ok(report)
}

fn tempfile() -> Result<std::fs::File> {
    let flags = rustix::fs::MemfdFlags::CLOEXEC;
    Ok(rustix::fs::memfd_create("test-output", flags).context("memfd_create")?.into())
}

/// None where the program had to be stopped.
fn wait(child: &mut Child, began: Instant) -> Result<Option<ExitStatus>> {
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(Some(status));
        }
        if began.elapsed() > PROGRAM_TIMEOUT {
            let group = Pid::from_child(child);
            let _ = rustix::process::kill_process_group(group, Signal::KILL);
            child.wait()?;
            return Ok(None);
        }
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Reads what Rust's test harness prints with `--show-output`.
pub(crate) fn read_report(name: &str, output: &str) -> Report {
    let mut report = Report {
        name: name.to_owned(),
        ending: String::new(),
        passed: 0,
        failed: 0,
        failed_names: Vec::new(),
        skips: Vec::new(),
        output: output.to_owned(),
        seconds: 0,
        exit_zero: false,
    };
    let mut test = String::new();
    for line in output.lines() {
        if let Some(rest) = line.strip_prefix("---- ") {
            test = rest.split(' ').next().unwrap_or(rest).to_owned();
        } else if let Some((_, text)) = line.split_once(SKIP_MARK) {
            let skip = Skip { test: format!("{name} {test}"), text: text.to_owned() };
            if !report.skips.contains(&skip) {
                report.skips.push(skip);
            }
        } else if let Some(rest) = line.strip_prefix("test result: ") {
            report.passed += count_before(rest, " passed");
            report.failed += count_before(rest, " failed");
        } else if let Some(rest) = line.strip_prefix("test ")
            && let Some(failed) = rest.strip_suffix(" ... FAILED")
        {
            report.failed_names.push(failed.to_owned());
        }
    }
    report
}

/// The number that stands in front of a word.
fn count_before(text: &str, word: &str) -> usize {
    let number = text.split(word).next().and_then(|head| head.rsplit([' ', '.']).next());
    number.and_then(|digits| digits.parse().ok()).unwrap_or(0)
}
