//! What a tool says about itself: the JSON in its custom section `ringwall:tool`.

mod check;

pub(crate) use check::is_name;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use ringwall_spec::DirAccess;

/// Nobody needs more to describe a tool; schemas of this size can still be compiled quickly.
pub const MAX_MANIFEST_BYTES: usize = 256 << 10;

/// A manifest that has been checked: [`Manifest::parse`] is the way to one.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Manifest {
    /// Version of this format.
    pub schema: u32,
    pub name: String,
    pub version: String,
    pub kind: Kind,
    /// One line.
    pub summary: String,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub description: String,
    /// JSON Schema 2020-12, as is `output`.
    pub input: Value,
    pub output: Value,
    #[serde(default)]
    pub risk: Risk,
    #[serde(default)]
    pub determinism: Determinism,
    #[serde(default)]
    pub wants: Wants,
    #[serde(default)]
    pub limits: LimitWishes,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub command: Option<CommandShape>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub examples: Vec<Example>,
}

/// How the tool is called.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Kind {
    /// Exports the tool interface: JSON in, JSON out.
    Component,
    /// A program: arguments, standard streams, exit code.
    Command,
}

/// The kind of work, as its author sees it; policy decides what that means.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Risk {
    Compute,
    Files,
    Build,
    #[default]
    Untrusted,
}

impl Risk {
    /// As policies name it.
    pub fn name(self) -> &'static str {
        match self {
            Risk::Compute => "compute",
            Risk::Files => "files",
            Risk::Build => "build",
            Risk::Untrusted => "untrusted",
        }
    }
}

/// What the output depends on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Determinism {
    /// Input and files alone.
    Pure,
    /// And the seed, when one is given.
    Seeded,
    /// And clocks and chance.
    #[default]
    Ambient,
}

/// What the tool would like to reach. Only policy grants it.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Wants {
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub dirs: Vec<DirWish>,
    /// Hosts, such as `api.example.com`, `*.example.com` or `example.com:8443`; `*` is whatever may be
    /// reached.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub http: Vec<String>,
    /// Names of environment variables.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub env: Vec<String>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DirWish {
    /// Where the tool sees the directory.
    pub path: String,
    pub access: DirAccess,
    /// Whether the tool can do something useful without it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub optional: bool,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub why: String,
}

/// Wishes; whoever runs the tool caps them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LimitWishes {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub time_ms: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory_bytes: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub output_bytes: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fuel: Option<u64>,
}

/// How JSON becomes a command line and standard output becomes JSON.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CommandShape {
    #[serde(default)]
    pub args: Vec<Argument>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stdin: Option<String>,
    #[serde(default)]
    pub stdout: Stdout,
}

/// One argument, or several that come and go together.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Argument {
    One(String),
    Group(Vec<String>),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Stdout {
    /// Standard output is the output; any exit code but 0 is a failure.
    Json,
    /// The output is `{stdout, stderr, exit_code}`.
    #[default]
    Text,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Example {
    pub title: String,
    pub input: Value,
    pub output: Value,
}

/// Why a manifest cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum ManifestError {
    #[error("the manifest has {0} bytes; at most {MAX_MANIFEST_BYTES} are accepted")]
    TooLarge(usize),
    #[error("the manifest does not have the right shape: {0}; see docs/reference/tool-contract.md")]
    Malformed(#[from] serde_json::Error),
    #[error("the manifest is wrong at {at}: {problem}")]
    Wrong { at: String, problem: String },
}

impl ManifestError {
    pub(crate) fn wrong(at: impl Into<String>, problem: impl Into<String>) -> ManifestError {
        ManifestError::Wrong { at: at.into(), problem: problem.into() }
    }
}

impl Manifest {
    /// Reads a manifest and checks all of it but the schemas, which [`crate::Tool::new`] compiles.
    pub fn parse(bytes: &[u8]) -> Result<Manifest, ManifestError> {
        if bytes.len() > MAX_MANIFEST_BYTES {
            return Err(ManifestError::TooLarge(bytes.len()));
        }
        let manifest: Manifest = serde_json::from_slice(bytes)?;
        manifest.check()?;
        Ok(manifest)
    }
}

#[cfg(test)]
mod tests;
