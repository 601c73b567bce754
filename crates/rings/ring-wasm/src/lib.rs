//! The wasm ring: an empty root, one warden that runs WASM tools, and the directories that were
//! granted to them. And the cache of compiled code.
//!
//! Invariant: the ring cannot find the cache. It can map the code whose descriptors it is handed.

mod cache;
mod inner;
mod plan;

pub use cache::{Cache, CacheError, Entry};
pub use inner::inner_wasm_plan;
pub use plan::{GrantedDir, MAX_GRANTS, WasmRing};
