//! The list of tests that may say "not tested here", with the reason for each.

use std::path::Path;

use anyhow::{Context, Result};
use serde::Deserialize;

/// `tests/skips.toml`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Allowed {
    skip: Vec<Entry>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Entry {
    /// What the test prints begins with this.
    says: String,
    /// Where it does run.
    r#where: Place,
    /// Why it cannot run here.
    because: String,
}

/// Where a test runs that is skipped elsewhere.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Place {
    /// In CI. It is skipped on machines of developers.
    Ci,
    /// In the nightly run.
    Nightly,
    /// In the lab, as a job of an emulated machine.
    Lab,
    /// On machines that have what it needs. No run of this repository has one for certain.
    OtherMachines,
    /// No machine that runs these tests can run it.
    Nowhere,
}

impl Place {
    fn words(self) -> &'static str {
        match self {
            Place::Ci => "runs in CI",
            Place::Nightly => "runs at night",
            Place::Lab => "runs in the lab",
            Place::OtherMachines => "runs on other machines",
            Place::Nowhere => "runs nowhere",
        }
    }
}

/// Why a test may be skipped, and where it runs instead.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Excuse<'a> {
    pub(crate) reason: &'a str,
    pub(crate) runs: &'static str,
}

impl Allowed {
    pub(crate) fn read(path: &Path) -> Result<Allowed> {
        let text = std::fs::read_to_string(path).with_context(|| path.display().to_string())?;
        Allowed::parse(&text).with_context(|| path.display().to_string())
    }

    pub(crate) fn parse(text: &str) -> Result<Allowed> {
        let allowed: Allowed = toml::from_str(text)?;
        for entry in &allowed.skip {
            anyhow::ensure!(
                !entry.says.trim().is_empty(),
                "an entry without text allows every skip"
            );
            anyhow::ensure!(!entry.because.trim().is_empty(), "{:?} has no reason", entry.says);
        }
        Ok(allowed)
    }

    /// Why this may be skipped, if it may.
    pub(crate) fn excuse(&self, text: &str) -> Option<Excuse<'_>> {
        let entry = self.skip.iter().find(|entry| text.starts_with(&entry.says))?;
        Some(Excuse { reason: &entry.because, runs: entry.r#where.words() })
    }
}
