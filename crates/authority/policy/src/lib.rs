//! The policy: `ringwall.toml` is read, lowered to Cedar, and asked what may run where.
//!
//! Invariants:
//! - what no rule permits is denied, and whatever goes wrong while deciding is a no;
//! - a layer below another can narrow and never widen, because every layer must allow;
//! - the same question to the same policy on the same host gets the same answer;
//! - no IO, no clock: the caller reads files and says what it saw of them.

mod cases;
mod check;
mod claims;
mod commands;
mod decide;
mod diff;
mod file;
mod guard_rails;
mod host;
mod layer;
mod limits;
mod lower;
mod parse;
mod pattern;
mod place;
mod placements;
mod request;
mod rights;
mod samples;
mod stack;
mod strength;
mod values;
mod words;

#[cfg(test)]
mod schema_tests;

pub use cases::CaseResult;
pub use check::{Finding, Severity};
pub use claims::{Claim, NoClaims, claims};
pub use decide::{Action, Decision, Stage, Subject, Task, Work};
pub use diff::{Difference, Method as DiffMethod, Widening, compare};
pub use guard_rails::schema as cedar_schema;
pub use host::{HostFacts, Missing};
pub use layer::{FileFacts, GuardRailText, LayerText, LoadError, OriginKind, RuleRef};
pub use lower::{Act, LowerError};
pub use parse::{Fault, MOST_BYTES};
pub use pattern::{Anchors, FilePath, NamePattern, PathPattern};
pub use place::{
    Candidate, DecisionRecord, Outcome, PlaceRequest, Plan, Refusal, ReplayError, Verdict, replay,
};
pub use request::{AskError, Asked, parse_asked};
pub use rights::PathRights;
pub use stack::{DEFAULT_POLICY, ElevationTerms, LayerRef, Stack, TakenIn};
pub use strength::{Inside, at_least, known_walls};
pub use values::{Name, PublicKey, ValueError};
pub use words::{Kind, Reach, Risk, TaintEffect, ToolReach, Trust, UnknownWord, nearest};
