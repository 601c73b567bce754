//! One job as data: a shell script that exits with 0 if everything in it was as it should be.

use std::path::Path;

use anyhow::{Context as _, bail};
use serde::Deserialize;

use crate::machine::{User, every_user, toml_files};

#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Job {
    /// The name of its file.
    #[serde(skip)]
    pub name: String,
    /// What it shows, for docs/reference/hosts.md.
    pub about: String,
    #[serde(default)]
    pub kind: JobKind,
    #[serde(default = "every_user")]
    pub users: Vec<User>,
    /// The agent ends it after so long.
    #[serde(default = "default_seconds")]
    pub seconds: u64,
    /// Programs without which the job is not handed out.
    #[serde(default)]
    pub needs: Vec<String>,
    pub script: String,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum JobKind {
    #[default]
    Check,
    /// May harm the kernel on which it runs, so it runs on emulated machines only.
    Attack,
}

fn default_seconds() -> u64 {
    90
}

/// No job may take longer than this.
const MAX_JOB_SECONDS: u64 = 900;

impl Job {
    pub fn parse(name: &str, text: &str) -> anyhow::Result<Job> {
        let mut job: Job = toml::from_str(text)?;
        job.name = name.to_owned();
        if job.script.trim().is_empty() || job.users.is_empty() {
            bail!("a job needs a script and at least one user");
        }
        if job.seconds == 0 || job.seconds > MAX_JOB_SECONDS {
            bail!("`seconds` must be between 1 and {MAX_JOB_SECONDS}");
        }
        Ok(job)
    }
}

/// All jobs in a directory, by name.
pub fn read_all(directory: &Path) -> anyhow::Result<Vec<Job>> {
    let mut jobs = Vec::new();
    for file in toml_files(directory)? {
        let job = Job::parse(&file.name, &file.text)
            .with_context(|| format!("invalid job file {}", file.path))?;
        jobs.push(job);
    }
    Ok(jobs)
}
