//! Decides what a job's output and exit code mean on a machine.

use crate::job::Job;
use crate::machine::{Machine, User};
use crate::message::JobReport;
use crate::results::{JobResult, Outcome};

const MAX_REASON_CHARS: usize = 500;

pub fn judge(machine: &Machine, job: &Job, user: User, report: &JobReport) -> JobResult {
    let worked = report.code == Some(0) && !report.timed_out;
    let (outcome, reason) = match (machine.refusal(&job.name, user), worked) {
        (None, true) => (Outcome::Works, String::new()),
        (Some(_), true) => (Outcome::NotRefused, "worked, but had to be refused".to_owned()),
        (Some(says), false) => match line_with(&report.output, says) {
            Some(line) if !report.timed_out => (Outcome::Refused, line),
            _ => (Outcome::Fails, format!("expected {says:?}; {}", failure(report))),
        },
        (None, false) => (Outcome::Fails, failure(report)),
    };
    JobResult { job: job.name.clone(), user, outcome, reason }
}

fn line_with(output: &str, says: &str) -> Option<String> {
    output.lines().find(|line| line.contains(says)).map(shorten)
}

/// The line that most likely says why: Ringwall's own last one, else the last of all.
fn failure(report: &JobReport) -> String {
    let lines = || report.output.lines().rev().map(str::trim).filter(|line| !line.is_empty());
    let line = lines()
        .find(|line| line.starts_with("ringwall:") || line.starts_with("lab:"))
        .or_else(|| lines().next())
        .map_or_else(|| "it printed nothing".to_owned(), shorten);
    match (report.timed_out, report.code) {
        (true, _) => format!("not finished in time: {line}"),
        (false, Some(code)) => format!("exit code {code}: {line}"),
        (false, None) => format!("ended by a signal: {line}"),
    }
}

fn shorten(line: &str) -> String {
    line.trim().chars().take(MAX_REASON_CHARS).collect()
}
