//! The gateway's process: a main round `crates/network/gateway`.
//!
//! It finds the socket for orders as its standard input, and ends with it. Before it looks at an order,
//! it gives up all that it does not need: it can read how names are resolved, and open connections.

use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::process::ExitCode;

use ringwall_gateway::control;
use ringwall_linux::inside::settle_signals;
use ringwall_linux::step::PathAccess;
use ringwall_linux::{confine, exec, seccomp};
use rustix::process::{DumpableBehavior, Resource, Rlimit};

#[global_allocator]
static ALLOCATOR: dlmalloc::GlobalDlmalloc = dlmalloc::GlobalDlmalloc;

/// Memory that the process may have for data and stacks. What a task sends cannot take more of the host:
/// the process ends, and with it the task's network.
const MAX_MEMORY_BYTES: u64 = 512 * 1024 * 1024;

/// How this machine resolves names.
const RESOLVER: &str = "/etc/resolv.conf";

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        // Whoever gave the orders sees that the socket has ended.
        Err(_) => ExitCode::FAILURE,
    }
}

fn run() -> io::Result<()> {
    let socket = orders()?;
    // Memory holds secrets: no core dump, and no look inside by others of the same user.
    rustix::process::set_dumpable_behavior(DumpableBehavior::NotDumpable)?;
    rustix::process::setrlimit(Resource::Core, Rlimit { current: Some(0), maximum: Some(0) })?;
    bound_memory()?;
    settle_signals()?;
    allow_many_descriptors()?;
    confine()?;
    control::serve(&socket).map_err(io::Error::other)
}

/// Moves the socket out of the way of whatever uses standard input.
fn orders() -> io::Result<OwnedFd> {
    let socket = rustix::io::fcntl_dupfd_cloexec(rustix::stdio::stdin(), exec::FIRST_SAFE)?;
    let null = std::fs::File::open("/dev/null")?;
    rustix::stdio::dup2_stdin(&null)?;
    Ok(socket)
}

/// No power, no file but one, no program, and the system calls that jobs have. There is one thread
/// yet, so this holds for all that come.
fn confine() -> io::Result<()> {
    if rustix::process::geteuid().is_root() {
        confine::drop_capabilities()?;
    }
    confine::no_new_privileges()?;
    let rules = [RESOLVER].map(|path| (path.into(), PathAccess::ReadFiles));
    let there = rules.iter().filter(|_| Path::new(RESOLVER).is_file()).cloned();
    confine::landlock(&there.collect::<Vec<_>>(), &[])?;
    seccomp::install_job_filter()
}

/// No more than there is already, which nobody without power can raise.
fn bound_memory() -> io::Result<()> {
    let known = rustix::process::getrlimit(Resource::Data).maximum;
    let most = Some(known.unwrap_or(MAX_MEMORY_BYTES).min(MAX_MEMORY_BYTES));
    Ok(rustix::process::setrlimit(Resource::Data, Rlimit { current: most, maximum: most })?)
}

/// A connection needs two, and the usual limit is for programs that have few.
fn allow_many_descriptors() -> io::Result<()> {
    let limit = rustix::process::getrlimit(Resource::Nofile);
    rustix::process::setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit })?;
    Ok(())
}
