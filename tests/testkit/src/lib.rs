//! The worlds of the tests: the built programs in places of their own, with checks that show everything
//! when they fail.
//!
//! It uses no crate of the product, so that every crate can test with it.

#![allow(
    clippy::expect_used,
    clippy::new_without_default,
    clippy::panic,
    clippy::print_stderr,
    clippy::print_stdout,
    clippy::unwrap_used,
    missing_debug_implementations,
    reason = "a test that cannot be set up has failed"
)]

pub mod attacks;
mod client;
mod daemon;
mod ended;
mod finished;
pub mod ground;
mod image;
mod patience;
mod postgresql;
pub mod programs;
mod terminal;
pub mod tool;
pub mod witness;
mod world;

pub use client::{Answer, Client};
pub use daemon::Daemon;
pub use ended::Ended;
pub use finished::{Finished, code};
pub use image::busybox_layout;
pub use patience::{eventually, wait_for_end};
pub use postgresql::{PostgreSql, postgresql_program};
pub use terminal::Terminal;
pub use world::{User, World, is_root};
