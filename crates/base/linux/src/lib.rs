//! Kernel mechanisms, one file each, and the step lists that put them together.
//!
//! Invariant: this is the only crate with unsafe code. Every block says why it is sound, and
//! everything public is safe to call.

pub mod apparmor;
pub mod apply;
mod beside;
pub mod cgroup;
pub mod confine;
pub mod detach;
pub mod exec;
pub mod fdpass;
pub mod guest;
pub mod host;
pub mod inside;
pub mod interface;
pub mod launch;
pub mod mount;
pub mod network;
pub mod process;
pub mod seccomp;
pub mod signals;
pub mod spawn;
pub mod step;
pub mod terminal;
pub mod tsc;
pub mod vsock;
