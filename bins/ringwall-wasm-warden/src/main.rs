//! The WASM warden: runs tools, in a ring that holds nothing but it and the granted directories.
//!
//! It is started with the engine's byte stream as descriptor 3, a directory with a file that only
//! Landlock forbids to open as descriptor 4, and the socket for descriptors of compiled code as 5.
//! Inside another ring it has the stream only, and its arguments are the granted directories.

mod call;
mod clock;
mod context;
mod doors;
mod http;
mod output;
mod poll;
mod serve;
mod ticker;
mod tools;

use std::io;
use std::process::ExitCode;

use ringwall_linux::inside::{inherited, settle_signals};
use ringwall_linux::seccomp;
use rustix::process::DumpableBehavior;

#[global_allocator]
static ALLOCATOR: dlmalloc::GlobalDlmalloc = dlmalloc::GlobalDlmalloc;

const STREAM: i32 = 3;
const CANARY: i32 = 4;
const LOADER: i32 = 5;

/// Where this program is, in every ring. Only Landlock can forbid to list it.
const OWN_DIRECTORY: &str = "/dev/.ringwall";

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        // Nobody to tell: standard error is /dev/null in a ring.
        Err(_) => ExitCode::FAILURE,
    }
}

fn run() -> io::Result<()> {
    let missing = || io::Error::from(io::ErrorKind::NotConnected);
    let stream = inherited(STREAM).ok_or_else(missing)?;
    let denied_open = match inherited(CANARY) {
        Some(canary) => ringwall_facts::try_denied_open(Some(canary)),
        None => ringwall_facts::try_denied_listing(OWN_DIRECTORY),
    };
    let loader = inherited(LOADER);
    settle_signals()?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        // A tool that computes gives way every millisecond; the engine's stream is looked at then.
        .event_interval(1)
        .build()?;
    let grants = context::Grants::new(std::env::args().skip(1));
    let tools = tools::Tools::new(loader, grants).map_err(io::Error::other)?;
    // Not before: the pool has opened this process's own page map.
    rustix::process::set_dumpable_behavior(DumpableBehavior::NotDumpable)?;
    // Everything that needs more has been done, and no byte of a tool has been seen.
    seccomp::install_wasm_filter()?;
    let ticker = ticker::Ticker::start(tools.engine().clone())?;
    let _inside = runtime.enter();
    runtime.block_on(serve::Server::new(stream, denied_open, tools, ticker)?.serve())
}
