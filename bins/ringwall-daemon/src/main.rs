//! The daemon's process: a main round `crates/doors/api`. A program of its own, so that the command line
//! links no HTTP server and starts as quickly as it did.
//!
//! `ringwall serve` starts it with its settings as one argument of JSON. As `keep` it is the keeper
//! of a sandbox that it was asked for. As `mcp` it is no daemon but a client of one, for an agent.

use std::io::{self, Write};
use std::process::ExitCode;

use anyhow::Context;
use ringwall_api::Options;
use ringwall_desk::Books;
use ringwall_engine::{Engine, EngineConfig};
use ringwall_linux::signals::SignalWatch;
use rustix::process::{Resource, Rlimit, Signal};

#[global_allocator]
static ALLOCATOR: dlmalloc::GlobalDlmalloc = dlmalloc::GlobalDlmalloc;

/// Where the state is, if not in a file. Not an argument: those can be seen by all, and this may
/// hold a password.
const POSTGRESQL: &str = "RINGWALL_POSTGRESQL";

/// The token of an agent's grant, for clients that hand secrets over in the environment.
const GRANT: &str = "RINGWALL_GRANT";

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            let _ = writeln!(io::stderr(), "ringwall: {error:#}");
            ExitCode::from(125)
        }
    }
}

fn run() -> anyhow::Result<()> {
    let mut arguments = std::env::args().skip(1);
    match (arguments.next().as_deref(), arguments.next()) {
        (Some("serve"), Some(settings)) => serve(&settings),
        (Some("keep"), None) => {
            let config = EngineConfig::from_environment()?;
            let books = Books::open(&config.home)?;
            Engine::open(config)?.keep(io::stdin().lock(), &mut books.oversee())?;
            Ok(())
        }
        (Some("mcp"), Some(settings)) => mcp(&settings),
        (Some("openapi"), None) => print(&ringwall_api::openapi()?),
        (Some("reference"), None) => print(&ringwall_api::reference()),
        _ => anyhow::bail!("this program is started by `ringwall serve` and `ringwall mcp`"),
    }
}

fn print(text: &str) -> anyhow::Result<()> {
    Ok(io::stdout().write_all(text.as_bytes())?)
}

fn serve(settings: &str) -> anyhow::Result<()> {
    let mut options: Options = serde_json::from_str(settings).context("the settings are wrong")?;
    options.postgresql = std::env::var(POSTGRESQL).ok().filter(|text| !text.is_empty());
    // Before any other thread exists, so that all of them leave these signals to the watch.
    let signals = SignalWatch::new(&[Signal::TERM, Signal::INT, Signal::HUP])?;
    allow_many_descriptors()?;
    let (end, ended) = tokio::sync::oneshot::channel();
    let config = EngineConfig::from_environment()?;
    let socket = options.socket.display().to_string();
    let ready = move || {
        let _ = writeln!(io::stdout(), "serving on {socket}");
        // A thread only now: the socket was bound under a mask that others must not see.
        std::thread::spawn(move || {
            if signals.wait().is_ok() {
                let _ = end.send(());
            }
        });
    };
    Ok(ringwall_api::serve(config, &options, ended, ready)?)
}

fn mcp(settings: &str) -> anyhow::Result<()> {
    let options = serde_json::from_str(settings).context("the settings are wrong")?;
    let token = std::env::var(GRANT).ok().filter(|text| !text.is_empty());
    Ok(ringwall_mcp::serve_stdio(options, token)?)
}

/// A sandbox and a client need some each, and the usual limit is for programs that have few.
fn allow_many_descriptors() -> io::Result<()> {
    let limit = rustix::process::getrlimit(Resource::Nofile);
    rustix::process::setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit })?;
    Ok(())
}
