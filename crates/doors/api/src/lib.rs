//! The daemon: what the engine does, for many clients at once, over HTTP.
//!
//! A request goes: connection (`server`) → who asks (`caller`) → room for it (`admission`) → budget →
//! the engine, on a blocking thread → an answer. Errors are `application/problem+json` with codes
//! that stay (`problem`).
//!
//! Invariants:
//! - without a token only the owner's unix socket is served; with one, only what its grant allows;
//! - whoever carries a grant decides on no approval, here or on the page for people;
//! - a tenant's objects are looked up by tenant, never looked up and then compared;
//! - whatever waits, is kept or is read has a bound, and what is beyond it is refused by name.

mod admission;
mod body;
mod caller;
mod document;
mod engines;
mod fields;
mod guard;
mod held;
mod lanes;
mod live;
mod metrics;
mod once;
mod options;
mod page;
mod problem;
mod routes;
mod server;
mod service;
mod spending;
mod trace;
mod until;
mod warm;

pub use document::{openapi, reference};
pub use options::{Options, Tls};
pub use server::{ServeError, serve};
