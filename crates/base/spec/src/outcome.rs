//! How a job ended.

use serde::{Deserialize, Serialize};

use crate::{Evidence, KeptLimit, SandboxId, ToolTotals, Wall};

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case")]
pub enum Ending {
    Exited {
        code: u8,
    },
    Signaled {
        signal: u8,
    },
    /// The wall-clock limit was reached and the whole tree was killed.
    Timeout,
    /// The memory limit was reached.
    Oom,
    /// More output than allowed; the tree was killed.
    OutputLimit,
    /// Stopped on request before it had finished.
    Stopped,
    /// The guest ended by itself: its kernel panicked or was told to power off, or its monitor died.
    GuestLost,
}

impl Ending {
    /// The exit code that the CLI passes on.
    pub fn exit_code(self) -> u8 {
        match self {
            Ending::Exited { code } => code,
            Ending::Signaled { signal } => 128u8.saturating_add(signal),
            Ending::Timeout => 124,
            Ending::Oom | Ending::OutputLimit | Ending::Stopped | Ending::GuestLost => 137,
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Usage {
    pub wall_ms: u64,
    /// Start of the request to the moment the job was started: what the wall itself cost.
    pub raise_ms: u64,
    pub cpu_ms: Option<u64>,
    pub peak_memory_bytes: Option<u64>,
    pub output_bytes: u64,
    /// What left through the gateway, where there was one and it could be asked at the end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sent_bytes: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub received_bytes: Option<u64>,
}

/// What the job did to its workspace, counted; the details are kept for `diff` and `apply`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct ChangeSummary {
    pub added: u64,
    pub modified: u64,
    pub deleted: u64,
}

impl ChangeSummary {
    pub fn is_empty(self) -> bool {
        self == ChangeSummary::default()
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Outcome {
    pub id: SandboxId,
    pub wall: Wall,
    pub ending: Ending,
    pub usage: Usage,
    pub limits: Vec<KeptLimit>,
    /// One entry per ring, outermost first.
    pub evidence: Vec<Evidence>,
    /// Present when the sandbox had a copy-on-write workspace.
    pub changes: Option<ChangeSummary>,
    /// Why a guest's changes could not be kept, if the job did not end well either.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub changes_lost: Option<String>,
    /// Why the memory of a sandbox could not be counted, if it was ended for that.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub uncounted: Option<String>,
    /// What calls of tools used, where the wall has a wasm ring inside.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tools: Option<ToolTotals>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exit_codes_follow_the_shell() {
        assert_eq!(Ending::Exited { code: 3 }.exit_code(), 3);
        assert_eq!(Ending::Signaled { signal: 11 }.exit_code(), 139);
        assert_eq!(Ending::Timeout.exit_code(), 124);
        assert_eq!(Ending::Oom.exit_code(), 137);
    }
}
