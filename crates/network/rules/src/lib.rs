//! Rules for the network: checked, and the one decision by them. The gateway decides with it, policies are
//! checked with it, and both say the same.
//!
//! Invariant: no IO. Nothing is looked up.

pub mod address;
mod check;
mod decide;
mod git;
mod names;
pub mod target;

pub use check::{
    BadRules, Matching, Refused, Rule, Rules, check, check_allow, check_deny, check_host, is_method,
};
pub use decide::{
    Ask, AskedRequest, Destination, GoesBy, Permit, Refusal, authorize, authorize_name,
};
pub use git::{FETCH, PUSH, REFERENCES, requests as git_requests};
pub use names::is_clear;
