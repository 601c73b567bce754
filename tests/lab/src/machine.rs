//! One machine as data: which kernel, how it is set up, which jobs run there, and which of them the
//! machine must refuse.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use anyhow::{Context as _, bail};
use serde::{Deserialize, Serialize};

use crate::job::Job;

#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Machine {
    /// The name of its file.
    #[serde(skip)]
    pub name: String,
    /// One sentence for docs/reference/hosts.md.
    pub about: String,
    /// A directory below `kernels` in the cache.
    pub kernel: String,
    /// Further words for the kernel.
    #[serde(default)]
    pub command_line: String,
    /// The security modules, in order; otherwise those that the kernel was built with.
    #[serde(default)]
    pub lsms: Vec<String>,
    pub cgroups: CgroupMode,
    #[serde(default = "default_memory_mib")]
    pub memory_mib: u32,
    #[serde(default = "default_cpus")]
    pub cpus: u32,
    /// Whether `make lab` boots it; `make lab-all` boots every machine.
    #[serde(default)]
    pub ci: bool,
    /// Modules of the kernel beyond those that every machine loads.
    #[serde(default)]
    pub modules: Vec<String>,
    /// The time at which the machine's clock starts, as QEMU's `-rtc base=` takes it.
    pub clock: Option<String>,
    #[serde(default)]
    pub sysctls: BTreeMap<String, String>,
    /// Mount options for /proc.
    #[serde(default)]
    pub proc_options: String,
    #[serde(default)]
    pub read_only_root: bool,
    /// Profiles from resources/apparmor that are loaded and enforced.
    #[serde(default)]
    pub apparmor_profiles: Vec<String>,
    #[serde(default = "every_user")]
    pub users: Vec<User>,
    /// Names of jobs, in the order in which they run.
    pub runs: Vec<String>,
    #[serde(default)]
    pub refused: Vec<Refusal>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum CgroupMode {
    V2,
    /// With a subtree that belongs to the user, as systemd makes it.
    V2Delegated,
    V1,
    Hybrid,
    None,
}

impl CgroupMode {
    pub fn name(self) -> &'static str {
        match self {
            CgroupMode::V2 => "v2",
            CgroupMode::V2Delegated => "v2-delegated",
            CgroupMode::V1 => "v1",
            CgroupMode::Hybrid => "hybrid",
            CgroupMode::None => "none",
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum User {
    Root,
    User,
}

impl User {
    pub fn name(self) -> &'static str {
        match self {
            User::Root => "root",
            User::User => "user",
        }
    }
}

/// A job that must be refused on this machine, with words that its output must contain.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Refusal {
    pub job: String,
    #[serde(rename = "as")]
    pub user: User,
    pub says: String,
}

fn default_memory_mib() -> u32 {
    2048
}

fn default_cpus() -> u32 {
    2
}

pub fn every_user() -> Vec<User> {
    vec![User::Root, User::User]
}

impl Machine {
    /// Reads one machine file and checks it against the jobs that exist.
    pub fn parse(name: &str, text: &str, jobs: &[Job]) -> anyhow::Result<Machine> {
        let mut machine: Machine = toml::from_str(text)?;
        machine.name = name.to_owned();
        machine.check(jobs)?;
        Ok(machine)
    }

    fn check(&self, jobs: &[Job]) -> anyhow::Result<()> {
        if self.users.is_empty() || self.runs.is_empty() {
            bail!("`users` and `runs` must each name at least one");
        }
        if self.memory_mib < 256 || self.cpus == 0 || self.cpus > 8 {
            bail!("a machine needs at least 256 MiB of memory and 1 to 8 processors");
        }
        for name in &self.runs {
            if !jobs.iter().any(|job| job.name == *name) {
                bail!("`runs` names the job {name:?}, and there is no tests/lab/jobs/{name}.toml");
            }
        }
        for refusal in &self.refused {
            if !self.runs.contains(&refusal.job) || !self.users.contains(&refusal.user) {
                bail!(
                    "`refused` names {:?} as {}, which does not run on this machine",
                    refusal.job,
                    refusal.user.name()
                );
            }
            if refusal.says.trim().is_empty() {
                bail!("the refusal of {:?} must say which words are expected", refusal.job);
            }
        }
        self.check_words()
    }

    /// These values end up in a shell script and on a command line.
    fn check_words(&self) -> anyhow::Result<()> {
        let plain =
            |word: &str| word.chars().all(|c| c.is_ascii_alphanumeric() || " .,:=_-/".contains(c));
        let words = [&self.kernel, &self.command_line, &self.proc_options]
            .into_iter()
            .chain(&self.lsms)
            .chain(&self.modules)
            .chain(&self.clock)
            .chain(&self.apparmor_profiles)
            .chain(self.sysctls.keys())
            .chain(self.sysctls.values());
        for word in words {
            if !plain(word) {
                bail!("invalid value {word:?}: expected letters, digits, spaces and .,:=_-/ only");
            }
        }
        Ok(())
    }

    /// Words that the output of this job must contain for its refusal, if it must be refused.
    pub fn refusal(&self, job: &str, user: User) -> Option<&str> {
        self.refused
            .iter()
            .find(|refusal| refusal.job == job && refusal.user == user)
            .map(|refusal| refusal.says.as_str())
    }
}

/// All machines in a directory, by name.
pub fn read_all(directory: &Path, jobs: &[Job]) -> anyhow::Result<Vec<Machine>> {
    let mut machines = Vec::new();
    for file in toml_files(directory)? {
        let machine = Machine::parse(&file.name, &file.text, jobs)
            .with_context(|| format!("invalid machine file {}", file.path))?;
        machines.push(machine);
    }
    Ok(machines)
}

/// A file of one machine or one job.
#[derive(Debug)]
pub struct DataFile {
    pub name: String,
    pub path: String,
    pub text: String,
}

/// All `.toml` files of a directory, by name.
pub fn toml_files(directory: &Path) -> anyhow::Result<Vec<DataFile>> {
    let entries = fs::read_dir(directory)
        .with_context(|| format!("cannot read the directory {}", directory.display()))?;
    let mut files = Vec::new();
    for entry in entries {
        let path = entry?.path();
        if path.extension().is_none_or(|extension| extension != "toml") {
            continue;
        }
        let text =
            fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
        let name = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        files.push(DataFile { name, path: path.display().to_string(), text });
    }
    files.sort_by(|one, other| one.name.cmp(&other.name));
    Ok(files)
}
