//! Makes docs/reference/hosts.md from the kept results. Nobody writes that page by hand.

use std::fmt::Write as _;

use ringwall_linux::host::support::{DIFFERENCES, Version};

use crate::job::{Job, JobKind};
use crate::machine::User;
use crate::results::{JobResult, MachineResults, Outcome, Results};

const HEAD: &str = "# Hosts: what works where

The lab boots the machines below under QEMU and runs the same jobs on each of them, as root and as
an ordinary user. This page is made from the results (`docs/reference/hosts/results.json`) by `make hosts-page`.
Do not edit it. `make lab` boots a small set of the machines and `make lab-all` boots all of them.
[Kernels](kernels.md) says what each wall needs of a kernel.

| word | meaning |
|---|---|
| works | The job did what it had to do. |
| refused | Ringwall refused the job, and the message below the table tells the user why. |
| FAILS | The job neither worked nor was refused with the right message. This is a bug. |
| not tested | A program that the job needs was not brought in. |
| not run | The machine or the job is new or was changed, and has not been run since. |
| - | The job does not run on this machine as this user. |
";

/// The whole page.
pub fn render(results: &Results, jobs: &[Job]) -> String {
    let mut page = HEAD.to_owned();
    page.push_str(&overview(results));
    for machine in &results.machines {
        page.push_str(&section(machine));
    }
    page.push_str(&explain(jobs));
    page
}

/// One row for each machine: how many of its jobs ended how.
fn overview(results: &Results) -> String {
    let mut text = "\n## Machines\n\n| machine | kernel | what it is | as root | as a user |\n|---|---|---|---|---|\n".to_owned();
    for machine in &results.machines {
        let _ = writeln!(
            text,
            "| [{}](#{}) | {} | {} | {} | {} |",
            machine.machine,
            anchor(&machine.machine),
            machine.release,
            machine.about,
            count(machine, User::Root),
            count(machine, User::User),
        );
    }
    text
}

fn count(machine: &MachineResults, user: User) -> String {
    let outcomes = [
        Outcome::Works,
        Outcome::Refused,
        Outcome::Fails,
        Outcome::NotRefused,
        Outcome::NotTested,
        Outcome::NotRun,
    ];
    let parts: Vec<String> = outcomes
        .into_iter()
        .filter_map(|outcome| {
            let of_user = |job: &&JobResult| job.user == user && job.outcome == outcome;
            let number = machine.jobs.iter().filter(of_user).count();
            (number > 0).then(|| format!("{number} {}", outcome.words()))
        })
        .collect();
    if parts.is_empty() { "-".to_owned() } else { parts.join(", ") }
}

fn section(machine: &MachineResults) -> String {
    let mut text = format!(
        "\n## {}\n\n{} Kernel {}.{}\n\n| job | as root | as a user |\n|---|---|---|\n",
        machine.machine,
        machine.about,
        machine.release,
        differences(&machine.release)
    );
    let mut names: Vec<&str> = Vec::new();
    for job in &machine.jobs {
        if !names.contains(&job.job.as_str()) {
            names.push(&job.job);
        }
    }
    for name in names {
        let word = |user: User| {
            let found = machine.jobs.iter().find(|job| job.job == name && job.user == user);
            found.map_or("-", |job| job.outcome.words())
        };
        let _ = writeln!(text, "| {name} | {} | {} |", word(User::Root), word(User::User));
    }
    let reasons: Vec<String> = machine
        .jobs
        .iter()
        .filter(|job| !job.reason.is_empty())
        .map(|job| format!("- {} as {}: `{}`\n", job.job, job.user.name(), one_line(&job.reason)))
        .collect();
    if !reasons.is_empty() {
        text.push('\n');
        text.push_str(&reasons.concat());
    }
    text
}

/// Says which rows of the table of kernels are about this one.
fn differences(release: &str) -> String {
    let Some(kernel) = version(release) else {
        return String::new();
    };
    let mut below: Vec<String> = DIFFERENCES
        .iter()
        .filter(|difference| kernel < difference.below)
        .map(|difference| difference.below.to_string())
        .collect();
    below.dedup();
    if below.is_empty() {
        return " It has every feature of [the table](kernels.md#differences).".to_owned();
    }
    format!(" The [differences](kernels.md#differences) before {} apply.", below.join(", "))
}

/// `6.12.95+deb12-amd64` is 6 and 12.
fn version(release: &str) -> Option<Version> {
    let mut numbers = release.split(|c: char| !c.is_ascii_digit());
    Some(Version(numbers.next()?.parse().ok()?, numbers.next()?.parse().ok()?))
}

fn explain(jobs: &[Job]) -> String {
    let mut text = "\n## Jobs\n\n| job | what it shows |\n|---|---|\n".to_owned();
    for job in jobs {
        let kind = match job.kind {
            JobKind::Check => "",
            JobKind::Attack => "Attack, in the lab only: ",
        };
        let _ = writeln!(text, "| {} | {kind}{} |", job.name, job.about);
    }
    text
}

/// As renderers of Markdown make it from a heading.
fn anchor(heading: &str) -> String {
    heading.chars().filter(|c| c.is_ascii_alphanumeric() || *c == '-').collect()
}

fn one_line(text: &str) -> String {
    text.lines().map(str::trim).collect::<Vec<_>>().join(" ").replace('`', "'")
}
