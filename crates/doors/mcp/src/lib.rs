//! Ringwall for other people's agents: the Model Context Protocol over standard streams (`stdio`) and
//! HTTP (`http`).
//!
//! What an agent asks for becomes requests to the API (`api`), with the token of its session, so that
//! policy, grant, budget and tenant are checked where they are for everybody. This crate adds bounds
//! of its own for a session without a token, whose requests are the owner's (`session`).
//!
//! Invariants:
//! - no tool approves, grants, or changes policy, and none writes protected paths;
//! - a tool that is not offered cannot be called;
//! - a session of the owner's reaches its own workspace and its own sandboxes, and nothing else;
//! - a call that is cancelled ends what it started.

mod api;
mod asking;
mod catalogue;
mod commands;
mod files;
mod http;
mod resources;
mod server;
mod session;
mod stdio;
mod wasm_tools;

pub use http::{Door, MAX_BODY_BYTES, router};
pub use stdio::{StdioError, StdioOptions, serve_stdio};
