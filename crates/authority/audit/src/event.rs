//! What can be recorded: one type for each thing that was decided or done.
//!
//! Events are small, typed and versioned by their record. They name secrets and tokens by id and
//! never carry their bytes.

use std::collections::BTreeMap;

use ringwall_spec::{ChangeSummary, Ending, Usage};
use serde::{Deserialize, Serialize};

use crate::text::{Id, Text};

/// What joins a record to others. An event carries every id that is known where it happens.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Ids {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub task: Option<Id>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub call: Option<Id>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sandbox: Option<Id>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub grant: Option<Id>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub approval: Option<Id>,
}

impl Ids {
    pub fn task(mut self, id: impl Into<Id>) -> Ids {
        self.task = Some(id.into());
        self
    }

    pub fn call(mut self, id: impl Into<Id>) -> Ids {
        self.call = Some(id.into());
        self
    }

    pub fn sandbox(mut self, id: impl Into<Id>) -> Ids {
        self.sandbox = Some(id.into());
        self
    }

    pub fn grant(mut self, id: impl Into<Id>) -> Ids {
        self.grant = Some(id.into());
        self
    }

    pub fn approval(mut self, id: impl Into<Id>) -> Ids {
        self.approval = Some(id.into());
        self
    }
}

/// Names and values of what a decision was made from.
pub type Inputs = BTreeMap<Text, Text>;

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case")]
pub enum Event {
    /// The log was begun.
    LogOpened {
        program: Text,
        version: Text,
    },
    /// The log was put right after a crash; nothing that was acknowledged is concerned.
    LogRecovered(LogRecovered),

    /// Policy was read for the first time, or is another than before.
    PolicyLoaded(PolicyLoaded),
    AdmissionDenied(AdmissionDenied),
    /// The router's decision, with what it was made from and the rules that decided.
    SandboxPlaced(SandboxPlaced),
    SandboxRaised(SandboxRaised),
    /// The facts that were read from inside one ring, compared with the plan.
    EvidenceChecked(EvidenceChecked),
    SandboxEnded {
        ending: Option<Ending>,
        reason: Text,
    },

    CallStarted(CallStarted),
    CallEnded(CallEnded),
    WorkspaceApplied(WorkspaceApplied),

    GrantMinted(GrantMinted),
    /// The new grant is in the ids; it can do less than its parent.
    GrantNarrowed {
        parent: Id,
        summary: Text,
        expires_unix_ms: Option<u64>,
    },
    GrantRevoked {
        by: Text,
        reason: Text,
    },

    /// A person must decide. The digest is that of exactly the requested action.
    ApprovalAsked(ApprovalAsked),
    ApprovalApproved(ApprovalApproved),
    ApprovalDenied {
        by: Text,
        reason: Text,
    },
    ApprovalUsed {
        request: Text,
    },
    /// The approval gives nothing any more: the other half of `ApprovalApproved`.
    ApprovalReturned {
        why: Returned,
        closed_streams: u32,
    },
    /// Rights beyond the policy's base, given for a time.
    ElevationGranted {
        right: Text,
        until_unix_ms: u64,
    },
    /// The old rights are back: the other half of `ElevationGranted`.
    ElevationReturned {
        right: Text,
        why: Returned,
        closed_streams: u32,
    },

    PhaseChanged {
        from: Option<Text>,
        to: Text,
        by: Text,
    },
    /// The task has read something that cannot be trusted.
    TaintSet {
        source: Text,
        label: Text,
    },
    Egress(Egress),
    /// The result of checking a piece of work, or this log.
    VerifyReport {
        subject: Text,
        passed: bool,
        digest: Option<Text>,
        summary: Text,
    },

    /// Written by a later version. Never made here.
    #[serde(other)]
    Unknown,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LogRecovered {
    pub reason: Text,
    /// The bytes that were cut off the end: a write that was never acknowledged.
    pub bytes: u64,
    pub sha256: Option<Text>,
    /// The file beside the log that holds it.
    pub moved_to: Option<Text>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PolicyLoaded {
    pub digest: Text,
    /// The files it was made from, the most general first.
    pub sources: Vec<Text>,
    /// The digest of the policy before, if it changed.
    pub previous: Option<Text>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct AdmissionDenied {
    pub action: Text,
    pub resource: Text,
    pub rule: Text,
    pub reason: Text,
    pub fix: Option<Text>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SandboxPlaced {
    pub wall: Text,
    /// Kind of work, risk level, trust level, phase, taint, floor, what the host can do: enough to decide again.
    pub inputs: Inputs,
    /// The rules that decided, in their order.
    pub rules: Vec<Text>,
    pub limits: Inputs,
    pub mounts: Vec<Text>,
    pub egress: Vec<Text>,
    pub policy: Option<Text>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SandboxRaised {
    pub wall: Text,
    pub image: Option<Text>,
    pub raise_ms: u64,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct EvidenceChecked {
    pub ring: Text,
    pub passed: bool,
    /// How many layers were compared.
    pub checks: u32,
    /// The layers that were not there.
    pub missing: Vec<Text>,
    /// The digest of the facts as they were read.
    pub digest: Option<Text>,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum CallKind {
    #[default]
    Exec,
    Tool,
    FileRead,
    FileWrite,
    FileDelete,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CallStarted {
    pub call: CallKind,
    /// The program with its arguments, the tool, or the path.
    pub what: Text,
    /// The digest of all parameters, also those too long to be shown.
    pub parameters: Option<Text>,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum CallResult {
    Succeeded,
    #[default]
    Failed,
    Denied,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CallEnded {
    pub call: CallKind,
    pub what: Text,
    pub result: CallResult,
    pub ending: Option<Ending>,
    /// What came of it, or why it failed.
    pub summary: Text,
    pub usage: Option<Usage>,
    pub changes: Option<ChangeSummary>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct WorkspaceApplied {
    pub workspace: Text,
    pub changes: ChangeSummary,
    /// Protected paths that were written because the owner allowed them.
    pub protected: Vec<Text>,
    pub forced: bool,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct GrantMinted {
    pub holder: Text,
    pub summary: Text,
    pub expires_unix_ms: Option<u64>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ApprovalAsked {
    pub action: Text,
    pub resource: Text,
    pub rule: Text,
    /// Digest of the request that an approval is bound to.
    pub request: Text,
    pub expires_unix_ms: Option<u64>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ApprovalApproved {
    pub by: Text,
    pub reason: Text,
    pub request: Text,
    pub until_unix_ms: Option<u64>,
    pub single_use: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Returned {
    Used,
    Expired,
    Revoked,
    /// The task or sandbox that it was for is gone.
    Ended,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Verdict {
    Allowed,
    #[default]
    Denied,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Egress {
    pub verdict: Verdict,
    pub host: Text,
    pub port: u16,
    /// The address that was really connected to.
    pub address: Option<Text>,
    pub rule: Text,
    pub reason: Option<Text>,
    pub sent_bytes: u64,
    pub received_bytes: u64,
    /// Secrets that the gateway put in, by name.
    pub secrets: Vec<Text>,
    /// The request line, where the gateway sees it.
    pub request: Option<Text>,
}

impl Event {
    /// All words that [`Event::kind`] gives.
    pub const KINDS: [&'static str; 26] = [
        "log-opened",
        "log-recovered",
        "policy-loaded",
        "admission-denied",
        "sandbox-placed",
        "sandbox-raised",
        "evidence-checked",
        "sandbox-ended",
        "call-started",
        "call-ended",
        "workspace-applied",
        "grant-minted",
        "grant-narrowed",
        "grant-revoked",
        "approval-asked",
        "approval-approved",
        "approval-denied",
        "approval-used",
        "approval-returned",
        "elevation-granted",
        "elevation-returned",
        "phase-changed",
        "taint-set",
        "egress",
        "verify-report",
        "unknown",
    ];

    /// The word that names this kind of event in records and filters.
    pub fn kind(&self) -> &'static str {
        match self {
            Event::LogOpened { .. } => "log-opened",
            Event::LogRecovered(_) => "log-recovered",
            Event::PolicyLoaded(_) => "policy-loaded",
            Event::AdmissionDenied(_) => "admission-denied",
            Event::SandboxPlaced(_) => "sandbox-placed",
            Event::SandboxRaised(_) => "sandbox-raised",
            Event::EvidenceChecked(_) => "evidence-checked",
            Event::SandboxEnded { .. } => "sandbox-ended",
            Event::CallStarted(_) => "call-started",
            Event::CallEnded(_) => "call-ended",
            Event::WorkspaceApplied(_) => "workspace-applied",
            Event::GrantMinted(_) => "grant-minted",
            Event::GrantNarrowed { .. } => "grant-narrowed",
            Event::GrantRevoked { .. } => "grant-revoked",
            Event::ApprovalAsked(_) => "approval-asked",
            Event::ApprovalApproved(_) => "approval-approved",
            Event::ApprovalDenied { .. } => "approval-denied",
            Event::ApprovalUsed { .. } => "approval-used",
            Event::ApprovalReturned { .. } => "approval-returned",
            Event::ElevationGranted { .. } => "elevation-granted",
            Event::ElevationReturned { .. } => "elevation-returned",
            Event::PhaseChanged { .. } => "phase-changed",
            Event::TaintSet { .. } => "taint-set",
            Event::Egress(_) => "egress",
            Event::VerifyReport { .. } => "verify-report",
            Event::Unknown => "unknown",
        }
    }
}

#[cfg(test)]
pub(crate) mod samples;
#[cfg(test)]
mod tests;
