//! The tool contract: what a tool says about itself, what it is given, and where tools are kept.
//!
//! A tool is one `.wasm` file with a manifest inside. Here the manifest is checked, inputs and
//! outputs are held against its schemas, its wishes against what was granted.
//!
//! Invariant: no WebAssembly is parsed, compiled or run here; a [`Compiler`] does that behind a
//! wall, and what it reports of a file is as hostile as the file.

mod compiler;
mod contract;
mod grant;
mod limits;
mod manifest;
mod registry;
mod schema;
mod store;
mod synthesis;
mod template;
#[cfg(test)]
mod testing;

pub use compiler::{BoxError, Compiler, Described, LoadError, describe, load};
pub use contract::{Failure, Request, Tool, asks_strict};
pub use grant::{DirGrant, GrantError, Grants};
pub use limits::{LimitWishError, limits_for};
pub use manifest::{
    CommandShape, Determinism, DirWish, Example, Kind, LimitWishes, MAX_MANIFEST_BYTES, Manifest,
    ManifestError, Risk, Stdout, Wants,
};
pub use registry::{Event, Registry, Reserved, WatchError, Watcher, watch};
pub use schema::{Misfit, Schema, SchemaError};
pub use store::{
    AddError, AddOptions, Added, BuiltIns, Entry, MAX_WASM_BYTES, Origin, RemoveError, Source,
    StoreError, ToolName, ToolNameError, ToolStore, read_wasm,
};
pub use synthesis::manifest_from_help;
pub use template::TemplateError;
