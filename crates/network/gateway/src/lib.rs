//! The egress gateway: the only way out of a sandbox, and the only place that knows a secret.
//!
//! A connection goes accept (`listen`) -> identify (`forward`, `socks`, `tunnel`, `dns`) -> decide
//! (`ringwall_rules::authorize`) -> resolve, judge and pin ([`address`], `task`) -> dial (`dial`, `lane`) -> relay
//! (`exchange`, `websocket`, `relay`) -> record ([`event`]). Everything that a sandbox sends is
//! hostile input.

pub mod address;
mod body;
mod ca;
mod call;
pub mod control;
mod credential;
mod dial;
mod direct;
pub mod dns;
mod early;
pub mod event;
mod exchange;
pub mod exempt;
mod fakes;
pub mod fetch;
mod forward;
pub mod framing;
mod gateway;
pub mod git;
mod head;
mod held;
mod hello;
mod inference;
mod lane;
mod linger;
mod listen;
pub mod meter;
mod needles;
mod oauth;
pub mod pack;
mod problem;
mod relay;
mod resolve;
mod secret;
mod sigv4;
pub mod socks;
mod task;
mod tunnel;
mod usage;
mod websocket;

pub use ca::CaError;
pub use credential::BadSecret;
pub use dial::TrustError;
pub use gateway::{Gateway, SetupError, TaskError};
pub use hello::extensions as tls_extensions;
pub use inference::{BadInference, HOST as INFERENCE_HOST};
pub use listen::Listeners;
pub use resolve::ResolveError;
pub use secret::{NoSecret, Secret, Sources};
