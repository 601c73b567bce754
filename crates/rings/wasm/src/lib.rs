//! Engine settings that the WASM compiler and the WASM warden share, and the loading of compiled
//! code.
//!
//! Invariant: one configuration for all compiled code. Code from another one does not load.

mod load;
mod settings;

pub use load::{copy_component, copy_module, load_component, load_module};
#[cfg(feature = "compiler")]
pub use settings::compiler_engine;
pub use settings::{STACK_BYTES, slots, warden_engine};

/// The custom section in which a tool describes itself.
pub const MANIFEST_SECTION: &str = "ringwall:tool";

/// What a component of ours exports.
pub const TOOL_INTERFACE: &str = "ringwall:tool/tool@0.1.0";
/// What both say things in; holds types only.
pub const TYPES_INTERFACE: &str = "ringwall:tool/types@0.1.0";
/// What it may import besides WASI.
pub const HOST_INTERFACE: &str = "ringwall:tool/host@0.1.0";
