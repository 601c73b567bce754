//! The system call filter of jobs and wardens.
//!
//! The rules are data with reasons, `resources/seccomp/job.filter`; the build turns them into a
//! static program. Nothing is parsed when a sandbox is started.
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

pub use install::{install_job_filter, read_fingerprint};

include!(concat!(env!("OUT_DIR"), "/job_filter.rs"));
