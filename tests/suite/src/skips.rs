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
    /// Why it cannot run, and where it does run.
    because: String,
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

    /// The reason why this may be skipped, if it may.
    pub(crate) fn reason(&self, text: &str) -> Option<&str> {
        let entry = self.skip.iter().find(|entry| text.starts_with(&entry.says))?;
        Some(&entry.because)
    }
}
