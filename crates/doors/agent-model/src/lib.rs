//! What the brain of an agent and its supervisor say to each other, line by line, and how a model is
//! asked: requests and streams of Anthropic's Messages, OpenAI's Chat Completions and Responses, and
//! of everything that is compatible with them.
//!
//! Invariant: nothing that a model, a server or the other side of the pipe sends makes this crate
//! panic or hold more than a fixed amount of memory. No sockets here: bytes go in, values come out.

mod anthropic;
mod chat;
pub mod http;
mod json;
mod provider;
mod responses;
mod sse;
mod talk;

pub use provider::{Answer, Provider, Reader, StreamError};
pub use sse::{Event, SseError, SseParser};
pub use talk::{
    Call, CallResult, FromBrain, MAX_LINE_BYTES, Said, Start, Stop, TalkError, ToBrain, Tokens,
    ToolOffer, Turn, read_line, write_line,
};
