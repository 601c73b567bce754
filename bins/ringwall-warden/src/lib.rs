//! What runs on the inner side of a ring, as process 1: starts jobs, does file operations, reports
//! facts and raises the next ring, all for the engine at the other end of one byte stream.
//!
//! Invariant: one thread, one `poll`. Every step is short, everything kept in memory is bounded,
//! and when the stream is gone the warden is gone, and with it the ring.

mod error;
mod files;
mod guest;
mod job;
mod network;
mod pump;
mod raise;
mod start;
mod task;
mod tree;
mod warden;

pub use guest::{is_first_process, run as run_guest};
pub use warden::{Ended, Warden};
