//! Frames between the engine and its wardens.
//!
//! One connection carries many streams over any byte stream. The engine opens a stream per
//! request; the warden answers on it. [`Connection`] does no IO: it turns bytes into events and
//! requests into bytes, so the same state machine serves the warden's poll loop, the engine's
//! blocking [`Client`] and the fuzzer.
//!
//! Invariant: nothing a peer sends can panic this crate or make it hold more than a fixed amount
//! of memory; a bad frame ends its stream, a broken framing ends the connection.

mod adopt;
mod bound;
mod client;
mod connection;
mod error;
mod frame;
pub mod guest_paths;
mod limits;
mod message;
mod process;
mod server;
mod tool;
mod tunnel;

pub use adopt::{
    AdoptError, Adoption, NONCE_BYTES, Taking, adopt, say_failed, say_ready, say_taken,
    wait_adoption, wait_ready,
};
pub use client::{Answer, CallStop, Client, ClientError, Parents, PendingTunnel, RemoveWhat, Rest};
pub use connection::{Channel, Connection, Event, Side};
pub use error::{OpenError, ProtocolError, StreamError, Violation};
pub use frame::StreamId;
pub use limits::{
    COMPILED_CODE, MAX_CODE_BYTES, MAX_DATA_BYTES, MAX_FRAME_BYTES, MAX_LIST_BYTES,
    MAX_MANIFEST_BYTES, MAX_MESSAGE_BYTES, MAX_STREAMS, MAX_TOOL_BYTES, MAX_TOOL_CALLS,
    MAX_TOOL_INPUT_BYTES, MAX_VIOLATIONS, OUTGOING_HIGH_WATER, VERSION, WINDOW,
};
pub use message::*;
pub use process::{ProcessEvent, ProcessInput, RemoteProcess};
pub use server::{Gone, Handler, InputEvent, ServerInput, ServerStream, serve};
pub use tool::{
    CallInside, CallReport, CallTool, CompileReport, GuestDir, Http, InsideDir, InsideReport,
    LoadTool, LoadedTool, SendTool,
};
pub use tunnel::{Tunnel, TunnelCut, TunnelReader, TunnelWriter};
