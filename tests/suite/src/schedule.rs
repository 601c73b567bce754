//! Which test programs run at the same time.

use std::collections::VecDeque;
use std::io::{self, Write};
use std::sync::Mutex;

use anyhow::Result;

use crate::build::TestProgram;
use crate::program::{self, Report};

/// Test programs at a time: the one with guests, and another. Many tests watch a clock, and more of them at
/// once than this machine has processors would make each other fail.
const LANES: usize = 2;

/// These look at the whole machine for what is left, so nothing else may run meanwhile.
const ALONE: &str = "tests/soak";

/// The longest begin first, so that none of them runs alone in the end.
const LONGEST: [&str; 6] =
    ["tests/vm", "tests/api", "tests/net", "tests/agent", "tests/escape", "tests/e2e"];

pub(crate) fn run_all(programs: Vec<TestProgram>, filters: &[String]) -> Result<Vec<Report>> {
    let (alone, together) = programs.into_iter().partition(|program| program.package == ALONE);
    let mut reports = run_in_lanes(together, LANES, filters)?;
    reports.extend(run_in_lanes(alone, 1, filters)?);
    Ok(reports)
}

fn run_in_lanes(
    programs: Vec<TestProgram>,
    lanes: usize,
    filters: &[String],
) -> Result<Vec<Report>> {
    let queue = Mutex::new(VecDeque::from(in_order(programs)));
    let reports = Mutex::new(Vec::new());
    let failures = Mutex::new(Vec::new());
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    std::thread::scope(|scope| {
        for _ in 0..lanes {
            scope.spawn(|| {
                while let Some(program) = next(&queue) {
                    match program::run(&program, threads, filters) {
                        Ok(report) => {
                            tell(&report);
                            push(&reports, report);
                        }
                        Err(error) => push(&failures, error),
                    }
                }
            });
        }
    });
    if let Some(error) = failures.into_inner().unwrap_or_default().pop() {
        return Err(error);
    }
    Ok(reports.into_inner().unwrap_or_default())
}

pub(crate) fn in_order(mut programs: Vec<TestProgram>) -> Vec<TestProgram> {
    let rank = |program: &TestProgram| {
        LONGEST.iter().position(|name| *name == program.package).unwrap_or(LONGEST.len())
    };
    programs.sort_by(|a, b| rank(a).cmp(&rank(b)).then_with(|| a.name.cmp(&b.name)));
    programs
}

fn next(queue: &Mutex<VecDeque<TestProgram>>) -> Option<TestProgram> {
    queue.lock().ok()?.pop_front()
}

fn push<T>(list: &Mutex<Vec<T>>, item: T) {
    if let Ok(mut list) = list.lock() {
        list.push(item);
    }
}

fn tell(report: &Report) {
    let word = if report.succeeded() { "ok    " } else { "FAILED" };
    let Report { name, passed, seconds, .. } = report;
    let failed = report.failed_names.join(", ");
    let _ = writeln!(io::stdout().lock(), "{word} {name}: {passed} passed, {seconds} s {failed}");
}
