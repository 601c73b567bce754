//! Results of jobs: what is kept in docs/reference/hosts/results.json, and what docs/reference/hosts.md is made from.

use std::fs;
use std::path::Path;

use anyhow::Context as _;
use serde::{Deserialize, Serialize};

use crate::job::Job;
use crate::lab::plan;
use crate::machine::{Machine, User};

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Results {
    pub machines: Vec<MachineResults>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct MachineResults {
    pub machine: String,
    pub about: String,
    /// The name of the kernel in the machine file.
    pub kernel: String,
    /// What the running kernel says of itself.
    pub release: String,
    pub jobs: Vec<JobResult>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct JobResult {
    pub job: String,
    pub user: User,
    pub outcome: Outcome,
    /// The line of the output that says why; empty if the job worked.
    pub reason: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Outcome {
    Works,
    /// Refused, with the words that the machine file expects.
    Refused,
    /// Neither: the lab is red.
    Fails,
    /// The job worked although it had to be refused: the lab is red, too.
    NotRefused,
    /// A program that the job needs was not brought in: red as well.
    NotTested,
    /// The machine or the job changed and has not been run since. Only `page` says so.
    NotRun,
}

impl Outcome {
    pub fn is_expected(self) -> bool {
        matches!(self, Outcome::Works | Outcome::Refused)
    }

    pub fn words(self) -> &'static str {
        match self {
            Outcome::Works => "works",
            Outcome::Refused => "refused",
            Outcome::Fails => "FAILS",
            Outcome::NotRefused => "NOT REFUSED",
            Outcome::NotTested => "not tested",
            Outcome::NotRun => "not run",
        }
    }
}

impl Results {
    pub fn read(path: &Path) -> anyhow::Result<Results> {
        let text = fs::read_to_string(path)
            .with_context(|| format!("cannot read the results in {}", path.display()))?;
        serde_json::from_str(&text)
            .with_context(|| format!("the results in {} are not valid", path.display()))
    }

    pub fn write(&self, path: &Path) -> anyhow::Result<()> {
        let mut text = serde_json::to_string_pretty(self)?;
        text.push('\n');
        fs::write(path, text)
            .with_context(|| format!("cannot write the results to {}", path.display()))
    }

    /// Takes newer results of machines, and keeps the others.
    pub fn merge(&mut self, newer: &Results) {
        self.machines.retain(|kept| !newer.machines.iter().any(|new| new.machine == kept.machine));
        self.machines.extend(newer.machines.iter().cloned());
    }

    /// Brings the results into the shape of the machine files: one for each pair of job and user, in the order
    /// of the file. What has no result, or one that the file no longer expects, is named as not run.
    pub fn fit(&self, machines: &[Machine], jobs: &[Job]) -> Results {
        let fitted = machines.iter().map(|machine| {
            let kept = self.machines.iter().find(|kept| kept.machine == machine.name);
            MachineResults::fit(machine, jobs, kept)
        });
        Results { machines: fitted.collect() }
    }
}

/// The release of a machine that has not been run.
const NO_RELEASE: &str = "not run";

impl MachineResults {
    fn fit(machine: &Machine, jobs: &[Job], kept: Option<&MachineResults>) -> MachineResults {
        let kept = kept.filter(|kept| kept.kernel == machine.kernel);
        let result_of = |(job, user): (&Job, User)| {
            let of_pair = |result: &&JobResult| result.job == job.name && result.user == user;
            let found = kept.and_then(|kept| kept.jobs.iter().find(of_pair));
            let valid = found.filter(|found| found.is_still_expected(machine));
            valid.cloned().unwrap_or_else(|| JobResult::not_run(&job.name, user))
        };
        MachineResults {
            machine: machine.name.clone(),
            about: machine.about.clone(),
            kernel: machine.kernel.clone(),
            release: kept.map_or_else(|| NO_RELEASE.to_owned(), |kept| kept.release.clone()),
            jobs: plan(machine, jobs).into_iter().map(result_of).collect(),
        }
    }
}

impl JobResult {
    fn not_run(job: &str, user: User) -> JobResult {
        let reason = String::new();
        JobResult { job: job.to_owned(), user, outcome: Outcome::NotRun, reason }
    }

    /// Checks whether the machine file still expects what the job did. Red results stay as they are.
    fn is_still_expected(&self, machine: &Machine) -> bool {
        match (self.outcome, machine.refusal(&self.job, self.user)) {
            (Outcome::Works, refusal) => refusal.is_none(),
            (Outcome::Refused, refusal) => refusal.is_some_and(|says| self.reason.contains(says)),
            _ => true,
        }
    }
}
