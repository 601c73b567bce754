//! A world of its own for every test, a client that speaks the protocol by hand, and the programs of
//! others that `make clients` installs.

mod agent;
mod others;
mod request;

pub(crate) use agent::Agent;
pub(crate) use others::Others;
pub(crate) use request::read_request;
pub(crate) use ringwall_testkit::{Answer, Client, Daemon, Finished, World, eventually, tool};
