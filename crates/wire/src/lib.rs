//! Frames between the engine and its wardens.
//!
//! One connection carries many streams over any byte stream. The engine opens a stream per
//! request; the warden answers on it. [`Connection`] does no IO: it turns bytes into events and
//! requests into bytes, so the same state machine serves the warden's poll loop, the engine's
//! blocking [`Client`] and the fuzzer.
//!
//! Invariant: nothing a peer sends can panic this crate or make it hold more than a fixed amount
//! of memory; a bad frame ends its stream, a broken framing ends the connection.

mod message;

pub use message::*;
