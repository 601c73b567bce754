//! Decisions and actions, in a log that cannot be changed unnoticed.
//!
//! [`AuditLog`] appends typed [`Event`]s to a file under the engine's home. Every record carries the
//! hash of all before it; behind every group that was written together stands a signed checkpoint of
//! a Merkle tree over all records, in the formats of C2SP (`tlog-checkpoint`, `signed-note`) and RFC
//! 6962. An append returns when the disk has it. A log that is broken, full or not writable is an
//! error, which callers turn into a refusal.
//!
//! [`verify`] needs the log and the public key alone and shares nothing with the writer but the
//! formats. [`LogReader`] reads, follows and joins records.

mod event;
mod hash;
mod keys;
mod line;
mod log;
mod merkle;
mod note;
pub mod ocsf;
mod position;
mod proof;
mod reader;
mod state;
mod summary;
mod text;
mod verify;
mod writer;

pub use event::*;
pub use hash::{Hash, hex, sha256};
pub use keys::{AuditPaths, KeyFileError, verifier_key};
pub use line::MOST_LINE_BYTES;
pub use log::AuditLog;
pub use merkle::{leaf_hash, verify_consistency, verify_inclusion};
pub use note::{Checkpoint, KeyError, NoteError, VerifierKey};
pub use position::Broken;
pub use proof::{ConsistencyProof, InclusionProof, ProofError, consistency, inclusion};
pub use reader::{Filter, LogReader, ReadError, Stored, chain};
pub use state::StateError;
pub use text::{Id, Text};
pub use verify::{Finding, Problem, Report, Verify, VerifyError, verify};
pub use writer::{AppendError, OpenError, Receipt, Record};
