//! Who asked for what a permit allows, and who pays for it.

use std::fmt;

use serde::{Deserialize, Serialize};

/// A part of Ringwall that raises sandboxes for itself. Each is named in the audit log.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum SystemCaller {
    /// `ringwall verify`, which attacks its own sandboxes.
    Verify,
    /// `ringwall doctor`, which tries every wall.
    Doctor,
    /// Compilers and wardens of WASM tools.
    Tools,
    /// The supervisor of agents.
    Agent,
    /// Sandboxes that the daemon keeps ready.
    Warm,
    /// Programs that measure.
    Bench,
    /// Programs that test.
    Test,
}

impl SystemCaller {
    pub fn name(self) -> &'static str {
        match self {
            SystemCaller::Verify => "verify",
            SystemCaller::Doctor => "doctor",
            SystemCaller::Tools => "tools",
            SystemCaller::Agent => "agent",
            SystemCaller::Warm => "warm",
            SystemCaller::Bench => "bench",
            SystemCaller::Test => "test",
        }
    }
}

impl fmt::Display for SystemCaller {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Who asked, as records show it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum CallerName {
    /// The person who runs Ringwall.
    Owner,
    Holder {
        grant: String,
    },
    System(SystemCaller),
}

impl fmt::Display for CallerName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            CallerName::Owner => f.write_str("owner"),
            CallerName::Holder { grant } => write!(f, "grant {grant}"),
            CallerName::System(caller) => caller.fmt(f),
        }
    }
}

/// Whose account is charged.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Payer {
    /// The owner has no budget to keep to.
    Owner,
    Grant {
        /// The grant, and those that it was narrowed from, the first one first.
        ids: Vec<String>,
        tenant: String,
    },
}
