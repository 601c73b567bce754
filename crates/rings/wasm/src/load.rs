//! Maps compiled code into this process.
//!
//! Invariant: the only unsafe code outside `crates/base/linux`. Compiled code is native code, and no
//! check here could show that it keeps to its sandbox; that is decided by who hands it over.

use std::os::fd::{AsRawFd, OwnedFd};

use wasmtime::component::Component;
use wasmtime::{Engine, Module, Result};

/// `code` must be what our compiler wrote and the engine has verified, and nobody may change the
/// file any more.
pub fn load_component(engine: &Engine, code: &OwnedFd) -> Result<Component> {
    // SAFETY: the caller vouches for the content. Here that is the engine, which passes only
    // descriptors of cache entries whose authenticity it has checked and that are never rewritten.
    unsafe { Component::deserialize_file(engine, path_of(code)) }
}

/// As [`load_component`], for a core module.
pub fn load_module(engine: &Engine, code: &OwnedFd) -> Result<Module> {
    // SAFETY: as above.
    unsafe { Module::deserialize_file(engine, path_of(code)) }
}

/// As [`load_component`], for code in memory: it is copied to pages of its own.
pub fn copy_component(engine: &Engine, code: &[u8]) -> Result<Component> {
    // SAFETY: as above; the engine sends only what it has checked.
    unsafe { Component::deserialize(engine, code) }
}

/// As [`copy_component`], for a core module.
pub fn copy_module(engine: &Engine, code: &[u8]) -> Result<Module> {
    // SAFETY: as above.
    unsafe { Module::deserialize(engine, code) }
}

/// Mapping a file, rather than reading it, is offered for paths only. This one means the
/// descriptor itself, whatever happens to its name.
fn path_of(code: &OwnedFd) -> String {
    format!("/proc/self/fd/{}", code.as_raw_fd())
}
