//! The policy from file to decision, through the public interface.
#![allow(clippy::unwrap_used, clippy::panic, reason = "helpers of tests fail by panicking")]

mod agree;
mod check;
mod common;
mod decide;
mod file;
mod narrowing;
mod place;
mod seeds;
