//! Runs the probes behind every wall of this host, and judges what became of them.
//!
//! [`stage`] lays out what attacks go for, and watches it from outside; [`run`] raises a wall and has the
//! probe program attack in it; [`tools`] has hostile tools do so where only tools run; [`drill`] puts the
//! probe program where wardens and VMMs run; [`judge`] compares the words of attacks with the
//! observations; [`report`] is what people read. [`adversary`](mod@adversary) plays random sequences
//! instead of known attacks.
//!
//! Invariant: observations from outside count, whatever an attack says; an attack that was not made is
//! never counted as stopped.

mod adversary;
mod drill;
mod image;
mod judge;
mod raising;
pub mod report;
mod run;
mod session;
mod stage;
mod tools;

use ringwall_desk::{Permit, SystemCaller, system_permit};
use ringwall_engine::Decision;

pub use adversary::{AdversaryBreach, AdversaryOptions, AdversaryReport, adversary};
pub use drill::DrillReport;
pub use judge::{Finding, Verdict};
pub use raising::{AsPlanned, Raising};
pub use report::Report;
pub use ringwall_probes::Scene;
pub use run::{Options, VerifyError, verify};

/// No policy decided about the sandboxes that are attacked here: the audit log names `verify`.
fn verify_permit(decision: Decision) -> Permit {
    system_permit(SystemCaller::Verify, decision)
}
