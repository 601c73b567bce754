//! A world of its own for every test, a client that speaks the protocol by hand, and the programs of
//! others that `make clients` installs.

#![allow(dead_code, reason = "shared with the tests of the API; only a part of it is used here")]

mod agent;
#[path = "../../api/src/support/client.rs"]
mod client;
#[path = "../../api/src/support/daemon.rs"]
mod daemon;
#[path = "../../e2e/src/support/finished.rs"]
mod finished;
mod others;
#[path = "../../e2e/src/support/patience.rs"]
mod patience;
mod request;
#[path = "../../e2e/src/support/tool.rs"]
pub(crate) mod tool;
#[path = "../../e2e/src/support/world.rs"]
mod world;

pub(crate) use agent::Agent;
pub(crate) use client::{Answer, Client};
pub(crate) use daemon::Daemon;
pub(crate) use finished::Finished;
pub(crate) use others::Others;
pub(crate) use patience::eventually;
pub(crate) use request::read_request;
pub(crate) use world::World;
