//! The gateway between real clients and real servers on loopback, with a certificate authority of
//! the test's own.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "helpers of tests fail by panicking"
)]

mod addresses;
mod clients;
mod credentials;
mod dns;
mod evasion;
mod git_server;
mod guard;
mod http;
mod limits;
mod origin;
mod services;
mod smuggling;
mod tunnels;
mod world;
