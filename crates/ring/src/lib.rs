//! The ring contract: a ring is planned as data, raised by the launcher, and believed only after
//! its facts were checked against the plan.
//!
//! Invariant: planning does no IO and needs no privileges; ring crates differ only in the plans
//! they make.

mod base;
mod check;
mod input;
mod network;
mod plan;
mod raise;
mod rights;
pub mod run_slots;
#[doc(hidden)]
pub mod testing;

pub use base::{BASE_PATH, Base, WARDEN_PATH, WORKSPACE_LINK, layer_places, shown_slot};
pub use check::{Checker, EvidenceError, Expected, HostNamespaces, check};
pub use input::{Identity, NetworkInput, RingInput, ShownPath, WorkspaceInput};
pub use network::{AUTHORITY_PATH, PROXY_PORT};
pub use plan::{PlanError, Ring, RingPlan, inner_process_plan};
pub use raise::{RaiseRingError, RaisedRing, SpawnerHandle};
pub use rights::rights_steps;
