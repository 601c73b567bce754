//! Approvals: what a grant or the policy refuses, a person may allow: once, for exactly what was
//! asked, for a time.
//!
//! 1. [`Approvals::ask`] makes a refused request a pending approval, bound to the [`Action::hash`].
//! 2. [`Approvals::decide`] records a person's yes or no under that person's key. A yes holds a block
//!    that is signed for one token only.
//! 3. [`Approvals::elevate`] puts the block into that token.
//! 4. [`Approvals::authorize`] lets the action go ahead if token and record agree, and uses up what is
//!    single-use.
//! 5. [`Approvals::returned`] tells what has ended, once each.
//!
//! [`Approvals::use_or_ask`] is 1, 3 and 4 for whoever enforces.
//!
//! What is decided is on the disk before anybody is told; a process that is killed leaves an approval
//! pending or decided, nothing between. Nothing here writes to the audit log: what belongs there is
//! returned, with its event.

mod action;
mod decide;
mod ending;
mod event;
mod permit;
mod person;
mod record;
mod rule;
mod spend;
mod store;

pub use action::{
    Action, ActionError, MAX_PARAMETER_BYTES, MAX_PARAMETERS, MAX_RESOURCE_BYTES, MAX_WORD_BYTES,
    command_parameters, sandbox_parameters,
};
pub use decide::{Answer, DecideError, Decided, MAX_REASON_BYTES, Verdict};
pub use ending::{EndError, Returned, Why};
pub use permit::{Permit, Wanted};
pub use person::{PersonError, default_place, load_key, make_key};
pub use record::{ApprovalId, ApprovalIdError, AskedFor, Decision, RecordError, Requester};
pub use ringwall_spec::shown;
pub use rule::{Approver, ElevationRule, TermsError, trusted};
pub use spend::{Authorized, Difference, ElevateError, UseError, UsedElevation};
pub use store::{
    Approval, Approvals, AskError, Listed, MAX_PENDING, MAX_PENDING_OF_TASK, MAX_PENDING_OF_TENANT,
    State,
};
