//! Permits: what may be raised, for whom, by which rules, on whose account and until when.
//!
//! Invariants:
//! - the engine raises nothing without a [`Permit`];
//! - only the reference monitor (`crates/core/desk`) issues one. A test of the repository holds all
//!   product code to that, as the language cannot;
//! - a permit goes to another process only [sealed](SealKey::seal): for one sandbox, under a key that
//!   only this home has.

mod caller;
mod issue;
mod key;
mod seal;

pub use caller::{CallerName, Payer, SystemCaller};
pub use issue::{Issued, Permit, PermitExpired};
pub use key::{SealKey, SealKeyError};
pub use seal::{OpenSealError, Purpose, SealError, SealedFor};
