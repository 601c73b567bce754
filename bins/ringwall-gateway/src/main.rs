//! The gateway's process: a main round `crates/gateway`.
//!
//! It is started with the socket for orders as descriptor 3, and ends with it.

use std::io;
use std::process::ExitCode;

use ringwall_gateway::control;
use ringwall_linux::inside::{inherited, settle_signals};
use rustix::process::{DumpableBehavior, Resource, Rlimit};

#[global_allocator]
static ALLOCATOR: dlmalloc::GlobalDlmalloc = dlmalloc::GlobalDlmalloc;

const CONTROL: i32 = 3;

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        // Whoever gave the orders sees that the socket has ended.
        Err(_) => ExitCode::FAILURE,
    }
}

fn run() -> io::Result<()> {
    let socket = inherited(CONTROL).ok_or(io::ErrorKind::NotConnected)?;
    // Memory holds secrets: no core dump, and no look inside by others of the same user.
    rustix::process::set_dumpable_behavior(DumpableBehavior::NotDumpable)?;
    rustix::process::setrlimit(Resource::Core, Rlimit { current: Some(0), maximum: Some(0) })?;
    settle_signals()?;
    allow_many_descriptors()?;
    control::serve(&socket).map_err(io::Error::other)
}

/// A connection needs two, and the usual limit is for programs that have few.
fn allow_many_descriptors() -> io::Result<()> {
    let limit = rustix::process::getrlimit(Resource::Nofile);
    rustix::process::setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit })?;
    Ok(())
}
