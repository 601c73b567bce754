//! The SDK for Ringwall tools in Rust: a tool is one function over serde types and a manifest.
//!
//! ```text
//! #[derive(serde::Deserialize)]
//! struct Input { name: String }
//! #[derive(serde::Serialize)]
//! struct Output { greeting: String }
//!
//! ringwall_tool_sdk::tool! { manifest: "tool.json", call: greet }
//!
//! fn greet(input: Input) -> Result<Output, ringwall_tool_sdk::Failure> {
//!     Ok(Output { greeting: format!("Hello, {}", input.name) })
//! }
//! ```
//!
//! Files are read with `std::fs`, below the directories that the manifest wants and the caller
//! grants. There is no network and no environment.

pub mod budget;
mod export;
mod failure;
pub mod files;
#[cfg(feature = "testing")]
pub mod testing;

#[doc(hidden)]
pub use export::*;
pub use failure::Failure;

/// How loud a log line is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Level {
    Error,
    Warning,
    Information,
    Detail,
}

/// Says something to whoever runs the tool. The host bounds how much it keeps.
pub fn log(level: Level, text: &str) {
    #[cfg(target_family = "wasm")]
    bindings::ringwall::tool::host::log(level as u8, text);
    #[cfg(not(target_family = "wasm"))]
    let _ = (level, text);
}
