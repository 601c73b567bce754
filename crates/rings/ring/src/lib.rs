//! The ring contract: a ring is planned as data, raised by the launcher, and believed only after
//! its facts were checked against the plan.
//!
//! Invariant: planning does no IO and needs no privileges; ring crates differ only in the plans
//! they make.

mod above;
mod asked;
mod base;
mod check;
mod cover;
mod explain;
mod input;
mod network;
mod plan;
mod proc;
mod raise;
mod rights;
pub mod run_slots;
mod show;
#[doc(hidden)]
pub mod testing;

pub use base::{BASE_PATH, Base, WARDEN_PATH, WORKSPACE_LINK, layer_places, shown_slot};
pub use check::{Checker, EvidenceError, Expected, HostNamespaces, check, shown_paths};
pub use cover::cover_steps;
pub use explain::explain_steps;
pub use input::{Identity, JobFilter, NetworkInput, RingInput, ShownPath, WorkspaceInput};
pub use network::{AUTHORITY_PATH, PROXY_PORT};
pub use plan::{PlanError, Ring, RingPlan, inner_process_plan};
pub use raise::{RaiseRingError, RaisedRing, SpawnerHandle};
pub use rights::{RightsChange, expected_mounts};
pub use show::{MAX_COPIED_BYTES, Part};
