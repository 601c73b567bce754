//! The vocabulary of Ringwall as plain data: walls, limits, specs, facts, outcomes.
//!
//! Invariant: no IO, no clock, no randomness. Everything here can be built, compared and
//! serialised in a test without a kernel.

mod command;
mod egress;
mod facts;
mod host;
mod host_pattern;
mod id;
mod limits;
mod outcome;
mod range;
mod rights;
mod sandbox;
mod text;
mod tool;
mod units;
mod valid;
mod wall;

pub use command::{Command, TerminalSize};
pub use egress::{
    Allow, Deny, EgressSpec, GitRights, ModelEndpoint, ModelShape, Preset, RuleSet, Scheme,
};
pub use facts::{
    Capabilities, CheckedFact, DeniedOpen, Evidence, IdMapLine, LandlockFacts, MountFact,
    Namespace, NamespaceKind, RingFacts, SeccompFacts,
};
pub use host::{BadHost, Host};
pub use host_pattern::{BadPattern, HostPattern};
pub use id::{IdError, SandboxId, SandboxName};
pub use limits::{DEFAULT_OPEN_FILES, KeptLimit, LimitError, LimitMeans, LimitName, Limits};
pub use outcome::{ChangeSummary, Ending, Outcome, Usage};
pub use range::{BadRange, Range};
pub use rights::{RightsError, WriteRights};
pub use sandbox::{SandboxSpec, WorkspaceMode, WorkspaceSpec};
pub use text::{is_deceptive, push_shown, shown};
pub use tool::{
    CodeFor, DirAccess, ToolDigest, ToolDigestError, ToolKind, ToolLimits, ToolMeter, ToolStatus,
    ToolTotals,
};
pub use units::{UnitError, parse_bytes, parse_cpus, parse_duration, show_bytes, show_duration};
pub use valid::{Decided, Invalid, ValidSpec, can_reach_gateway, validate};
pub use wall::{RingKind, Wall, WallError};
