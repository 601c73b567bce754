//! The gateway between real clients and real servers on loopback, with a certificate authority of
//! the test's own.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "helpers of tests fail by panicking")]

mod addresses;
mod credentials;
mod dns;
mod http;
mod limits;
mod origin;
mod smuggling;
mod tunnels;
mod world;
