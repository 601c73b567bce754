//! The control plane: admit, place, raise, run, settle. It runs inside the command line by
//! default; nothing has to be started first.
//!
//! Invariants:
//! - nothing is raised without a permit, and no job starts before the evidence was checked;
//! - whatever a sandbox needs on the host is named by its record before it is made, so that a
//!   crash at any moment leaves nothing that [`Engine::gc`] cannot find.

mod admit;
mod attach;
mod config;
mod denials;
mod distrust;
mod drill;
mod egress;
mod gate;
mod gc;
mod hiding;
mod home;
mod host;
mod inside;
mod job;
mod keep;
mod ledger;
mod limits;
mod meter;
mod missing_image;
mod names;
mod network;
mod orders;
mod oversight;
mod own;
mod phase;
mod place;
mod policy_files;
mod pool;
mod raise;
mod record;
mod relay;
mod remember;
mod remove_tree;
mod rights;
mod sandbox;
mod secrets;
mod settle;
mod shown;
mod snapshot;
mod standing;
mod stop;
mod tool_policy;
mod tools;
mod turns;
mod unaccepted;
mod vm;
mod watchdog;
#[cfg(feature = "weakened")]
mod weaken;
mod workspace_copy;

pub use admit::{AdmitError, Asked, Decision, Issue, deciding, narrow_writing};
pub use attach::{AttachError, Attached, TakeError};
pub use config::{EarlyLauncher, Engine, EngineConfig, OpenError, Programs};
pub use denials::{anchors_above, denied_above};
pub use distrust::DistrustError;
pub use drill::{Drill, limits_of_monitor};
pub use egress::{EgressError, NetworkBounds};
pub use gc::{GcError, GcReport};
pub use hiding::HidingError;
pub use job::{Brief, Finished, Job, Output, RunError, StartError};
pub use keep::{KeepError, with_causes};
pub use ledger::{CallEntry, LedgerError};
pub use meter::Unattended;
pub use missing_image::MissingImageError;
pub use network::{ChangeNetworkError, Closing, NetworkChange, NetworkError};
pub use oversight::Oversight;
pub use own::own_state_in;
pub use phase::{PhaseError, WorkInside};
pub use place::PlaceError;
pub use policy_files::{CASE_FILE, GUARD_RAIL_FILE, POLICY_FILE, PolicySearch};
pub use pool::{Pool, PoolError};
pub use raise::RaiseError;
pub use record::{Record, RecordError, RecordKind, RecordState};
pub use rights::ChangeRightsError;
pub use ringwall_wire::CallStop;
pub use sandbox::{Killer, Sandbox};
pub use secrets::{SecretBinding, SecretError, StoredSecret, usual_variable};
pub use settle::SettleError;
pub use snapshot::ForkError;
pub use stop::StopError;
pub use tool_policy::{AskedCall, ToolDenied, ToolGate};
pub use tools::{
    CompileError, Compiled, DirGrant, ToolCall, ToolError, ToolHost, ToolHostError, ToolInput,
    ToolNetwork, ToolOutcome,
};
pub use vm::{Snapshot, SnapshotError};
#[cfg(feature = "weakened")]
pub use weaken::Protection;
