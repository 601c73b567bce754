//! The reference monitor: the one place between every entrance (command line, daemon, agents) and the engine.
//!
//! An entrance reads a request and shows an answer. Everything between is decided here, in one order:
//!
//! 1. authenticate: a token becomes a [`Caller`] ([`Books::authenticate`]);
//! 2. narrow: the grant is asked for every path, wall, kind, phase and tool;
//! 3. decide: the policy is asked;
//! 4. elevate or ask: what a person has allowed, or a question to a person ([`Elevated`]);
//! 5. reserve: the most that it can cost ([`Reservation`], by the one price list in [`Share`]);
//! 6. do: the entrance does it with the engine, which raises nothing without the [`Permit`] that is given
//!    here and nowhere else, while a [`Lease`] watches the grant, and in shims an [`Overseer`];
//! 7. settle: what was used. A reservation that is dropped charges all of it;
//! 8. record: refusals, questions and uses stand in the audit log before an answer is given.

mod action;
mod agents;
mod books;
mod caller;
mod elevate;
mod held;
mod inside;
mod lease;
mod oversight;
mod permits;
mod place;
mod price;
mod refused;
mod reserve;
mod rules;
mod steps;
mod tainting;
mod tools;

pub use action::{Action, Apply, Exec, Input};
pub use agents::{Allowance, NewAgent, SubAgent};
pub use books::{Books, Desk, SharedBudget};
pub use caller::{Caller, Hands, Holder, OWNER};
pub use elevate::{Elevated, WORKSPACE, terms};
pub use held::Keeper;
pub use lease::{Lease, Watched};
pub use oversight::Overseer;
pub use permits::{fork, restore, system_permit, tools_permit};
pub use place::{Placed, Placing};
pub use price::{Share, Used};
pub use refused::{Kind, Refused};
pub use reserve::{Reservation, Turn, TurnReservation};
pub use ringwall_permit::{Permit, SystemCaller};
pub use rules::{Job, Rules, Step, Taken};
pub use steps::{Answer, Question, Stepping};
pub use tainting::{TaintingPath, Top};
pub use tools::{BegunCall, CallWish};

/// Words of the policy with which a task and its work are described.
pub use ringwall_policy::{HostFacts, Kind as WorkKind, Risk, Task, Trust, Work};
