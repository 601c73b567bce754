//! Results of jobs: what is kept in docs/reference/hosts/results.json, and what docs/reference/hosts.md is made from.

use std::fs;
use std::path::Path;

use anyhow::Context as _;
use serde::{Deserialize, Serialize};

use crate::machine::User;

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Results {
    pub machines: Vec<MachineResults>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct MachineResults {
    pub machine: String,
    pub about: String,
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

    /// Takes newer results of machines, and keeps the others. Machines that no longer have a file
    /// are dropped.
    pub fn merge(&mut self, newer: &Results, existing: &[String]) {
        self.machines.retain(|kept| {
            existing.contains(&kept.machine)
                && !newer.machines.iter().any(|new| new.machine == kept.machine)
        });
        self.machines.extend(newer.machines.iter().cloned());
        self.machines.sort_by(|one, other| one.machine.cmp(&other.machine));
    }
}
