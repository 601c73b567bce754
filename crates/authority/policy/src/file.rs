//! The shape of `ringwall.toml`, as it is read: what each table may hold.

use std::collections::BTreeMap;

use ringwall_spec::{Allow, Deny, Preset};
use serde::Deserialize;

use crate::commands::FirstWords;
use crate::pattern::{NamePattern, PathPattern};
use crate::values::{Cpus, Grant, Name, PublicKey, Size, TaintSource, Time, WallName, Walls};
use crate::words::{At, Kind, Reach, Risk, TaintEffect, ToolReach, Trust};

/// A policy of Ringwall. What it does not allow is denied.
#[derive(Debug, Clone, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(crate) struct PolicyFile {
    /// Always 1.
    pub version: At<u32>,
    /// How much is at risk here; picks the row of `[risk-levels]`.
    pub risk: Option<At<Risk>>,
    /// The trust level of a task for which none is named; without it, `low`.
    pub trust: Option<At<Trust>>,
    /// The phase in which a task begins.
    pub phase: Option<At<Name>>,
    /// The weakest wall that anything may run in. With a list, any of them.
    pub floor: Option<At<Walls>>,
    /// The weakest wall of each risk level. With a list, any of them.
    pub risk_levels: Option<At<BTreeMap<Risk, At<Walls>>>>,
    /// Where each kind of work runs.
    pub routes: Option<At<Routes>>,
    /// What a task of each trust level may do.
    pub trust_levels: Option<At<BTreeMap<Trust, At<TrustRules>>>>,
    /// What is known of tools.
    #[serde(default)]
    pub tool: Vec<At<ToolRule>>,
    /// What is known of commands that agents run.
    #[serde(default)]
    pub command: Vec<At<CommandRule>>,
    /// What a job gets, and the most that it may ask for.
    pub limits: Option<At<LimitRules>>,
    pub network: Option<At<NetworkRules>>,
    /// What may be done to get images.
    pub images: Option<At<ImageRules>>,
    /// Whether jobs in a guest may put filters of their own in force (seccomp, socket filters,
    /// Landlock); without it, they may not.
    pub own_filters: Option<At<bool>>,
    /// Names of the secrets that the gateway may add to requests. Never values.
    pub secrets: Option<At<Vec<At<Name>>>>,
    /// Named phases of a task, and what may be written in each.
    pub phases: Option<At<BTreeMap<Name, At<PhaseRules>>>>,
    pub taint: Option<At<TaintRules>>,
    /// Rights that a person can give for a while.
    #[serde(default)]
    pub elevation: Vec<At<Elevation>>,
    /// People who can give them.
    #[serde(default)]
    pub approver: Vec<At<Approver>>,
}

/// The walls for each kind of work, cheapest first; the first that is permitted and can be raised is
/// taken, and after the first permitted one only stronger ones.
#[derive(Debug, Clone, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(crate) struct Routes {
    /// Pure computation.
    pub compute: Option<At<Vec<WallName>>>,
    /// File operations.
    pub files: Option<At<Vec<WallName>>>,
    /// Builds and tests.
    pub build: Option<At<Vec<WallName>>>,
    /// Untrusted scripts, and everything of no declared kind.
    pub untrusted: Option<At<Vec<WallName>>>,
    /// Kinds that never run in a sandbox that something else has used.
    pub fresh: Option<At<Vec<Kind>>>,
}

#[derive(Debug, Clone, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(crate) struct TrustRules {
    /// What may be read: /path, ~/path, ./path, with /** for all below.
    #[serde(default)]
    pub read: Vec<PathPattern>,
    /// What may be written.
    #[serde(default)]
    pub write: Vec<PathPattern>,
    pub network: At<Reach>,
    pub tools: At<ToolReach>,
    /// Kinds of work that it may run; without it, all.
    pub kinds: Option<At<Vec<Kind>>>,
    /// Whether its changes may be written back to the workspace.
    #[serde(default)]
    pub apply: bool,
}

#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(crate) struct ToolRule {
    /// Names of tools, patterns with *, or digests of files (sha256:...), which have no name of their own.
    pub names: Vec<NamePattern>,
    /// Which kind of work they are; counts before what a tool itself declares.
    pub kind: Option<Kind>,
    /// Trust levels with approved tools may call them.
    #[serde(default)]
    pub approved: bool,
    /// They write nothing: trust levels with read-only tools may call them.
    #[serde(default)]
    pub read_only: bool,
    /// They are called with `strict: true` in their input only: interpreters then make no code out of
    /// text.
    #[serde(default)]
    pub strict: bool,
}

#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(crate) struct CommandRule {
    /// The first words of commands: a program, and arguments that must follow. Only commands of plain words
    /// are known, without quotes, variables or a second command.
    pub run: Vec<FirstWords>,
    /// Which kind of work they are, while the task is not tainted.
    pub kind: Kind,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(crate) struct LimitRules {
    pub timeout: Option<At<Time>>,
    pub memory: Option<At<Size>>,
    pub cpus: Option<At<Cpus>>,
    pub pids: Option<At<u32>>,
    pub disk: Option<At<Size>>,
    pub inodes: Option<At<u64>>,
    pub output: Option<At<Size>>,
    pub open_files: Option<At<u32>>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(crate) struct NetworkRules {
    /// Ready-made parts of the allowlist.
    #[cfg_attr(test, schemars(with = "Option<Vec<crate::schema_tests::Preset>>"))]
    pub presets: Option<At<Vec<Preset>>>,
    #[serde(default)]
    #[cfg_attr(test, schemars(with = "Vec<crate::schema_tests::AllowRule>"))]
    pub allow: Vec<At<Allow>>,
    /// Counts before all that allows.
    #[serde(default)]
    #[cfg_attr(test, schemars(with = "Vec<crate::schema_tests::DenyRule>"))]
    pub deny: Vec<At<Deny>>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(crate) struct ImageRules {
    /// Whether a run may pull an image that is missing; without it, it may.
    pub pull: Option<bool>,
}

#[derive(Debug, Clone, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(crate) struct PhaseRules {
    /// The only paths that may be written in this phase, of those that the trust level may write.
    #[serde(default)]
    pub write: Vec<PathPattern>,
    /// Of these, what may not be written.
    #[serde(default)]
    pub deny: Vec<PathPattern>,
    /// Phases that may follow.
    #[serde(default)]
    pub next: Vec<At<Name>>,
}

#[derive(Debug, Clone, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(crate) struct TaintRules {
    /// What makes a task tainted: network, kind:KIND, tool:TOOL, path:PATH.
    pub sources: Vec<TaintSource>,
    /// What a tainted task loses.
    pub effects: Vec<At<TaintEffect>>,
}

#[derive(Debug, Clone, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(crate) struct Elevation {
    pub name: Name,
    /// connect:HOST, read:PATH, write:PATH, run:KIND, call:TOOL, secret:NAME, phase:NAME, apply, taint.
    pub grants: Vec<Grant>,
    /// Names of approvers, and group:NAME.
    pub approvers: Vec<At<String>>,
    /// How long it lasts at most.
    pub max: At<Time>,
    /// It serves exactly one request.
    #[serde(default)]
    pub single_use: bool,
    /// Whoever decides must write down why, also where one key would do.
    #[serde(default)]
    pub reason: bool,
}

#[derive(Debug, Clone, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(crate) struct Approver {
    pub name: Name,
    /// ed25519/ and 64 hexadecimal digits.
    pub key: PublicKey,
    #[serde(default)]
    pub groups: Vec<Name>,
}

impl Routes {
    pub(crate) fn of(&self, kind: Kind) -> Option<&At<Vec<WallName>>> {
        match kind {
            Kind::Compute => self.compute.as_ref(),
            Kind::Files => self.files.as_ref(),
            Kind::Build => self.build.as_ref(),
            Kind::Untrusted => self.untrusted.as_ref(),
        }
    }

    pub(crate) fn is_fresh(&self, kind: Kind) -> bool {
        self.fresh.as_ref().is_some_and(|fresh| fresh.value.contains(&kind))
    }
}

impl PolicyFile {
    pub(crate) fn route(&self, kind: Kind) -> Option<&At<Vec<WallName>>> {
        self.routes.as_ref()?.value.of(kind)
    }

    pub(crate) fn trust_rules(&self, trust: Trust) -> Option<&At<TrustRules>> {
        self.trust_levels.as_ref()?.value.get(&trust)
    }

    pub(crate) fn taint_effect(&self, effect: TaintEffect) -> Option<&At<TaintEffect>> {
        let taint = self.taint.as_ref()?;
        taint.value.effects.iter().find(|present| present.value == effect)
    }
}
