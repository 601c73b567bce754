//! The system call filters of jobs and wardens, the one that goes with the memory watchdog, and the
//! tighter one of what runs WASM. Jobs may add none; a ring that is to hold another one has a filter
//! that lets its warden add some, and its jobs are sealed one by one.
//!
//! The rules are data with reasons, in `resources/seccomp`; the build turns them into static
//! programs. Nothing is parsed when a sandbox is started.
//!
//! Invariant: a filter can only be added, never removed, and holds for every program started later.

#[cfg(not(target_arch = "x86_64"))]
compile_error!(
    "the seccomp filter exists for x86_64 only: another architecture needs its own table \
     in resources/seccomp and its own audit number in the compiler"
);

mod fingerprint;
mod install;

// While building, the build script has these two; here they serve the tests.
#[cfg(test)]
mod compile;
#[cfg(test)]
mod source;
#[cfg(test)]
mod tests;

pub use install::{
    install_job_filter, install_nesting_filter, install_sealed_filter, install_wasm_filter,
    install_watched_filter, read_fingerprint,
};

include!(concat!(env!("OUT_DIR"), "/job_filter.rs"));
include!(concat!(env!("OUT_DIR"), "/nesting_filter.rs"));
include!(concat!(env!("OUT_DIR"), "/sealed_filter.rs"));
include!(concat!(env!("OUT_DIR"), "/watched_filter.rs"));
include!(concat!(env!("OUT_DIR"), "/wasm_filter.rs"));
