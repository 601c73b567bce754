//! A daemon of its own for every test, and a client that speaks plain HTTP/1.1.

#![allow(dead_code, reason = "shared with the end-to-end tests; only a part of it is used here")]

mod client;
mod daemon;
#[path = "../../e2e/src/support/finished.rs"]
mod finished;
#[path = "../../e2e/src/support/patience.rs"]
mod patience;
#[path = "../../e2e/src/support/tool.rs"]
pub(crate) mod tool;
#[path = "../../e2e/src/support/world.rs"]
mod world;

pub(crate) use client::{Answer, Client};
pub(crate) use daemon::Daemon;
pub(crate) use finished::Finished;
pub(crate) use patience::eventually;
pub(crate) use world::{User, World, is_root};
