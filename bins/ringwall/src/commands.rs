//! One file per verb. Each turns its arguments into calls of the engine and prints what came back.

mod agent;
mod apply;
mod approvals;
mod audit;
mod completions;
mod cp;
mod create;
mod diff;
mod doctor;
mod exec;
mod gc;
mod grant;
mod image;
mod keep;
mod logs;
mod man;
mod mcp;
mod net;
mod phase;
mod policy;
mod preset;
mod ps;
mod rights;
mod rm;
mod run;
mod secret;
mod serve;
mod snapshot;
mod stop;
mod tool;
mod top;
mod verify;
mod vm;
mod why;

use std::ffi::OsString;
use std::process::ExitCode;

use ringwall_engine::{EarlyLauncher, Engine, EngineConfig};

pub(crate) use approvals::{decide_on, key_place, words_of};

use crate::args::Verb;
use crate::exit::AlreadyReported;
use crate::{granted, report};

/// Starts the launcher of `ringwall run` before its arguments are read: both take about as long, and
/// a machine with two processors does them at once. A daemon brings its own.
pub(crate) fn start_early(arguments: &[OsString]) -> Option<EarlyLauncher> {
    let config = match arguments.get(1) {
        Some(verb) if verb == "run" => EngineConfig::from_environment().ok()?,
        _ => return None,
    };
    let by_daemon = crate::daemon::default_socket(&config.home).exists();
    if by_daemon { None } else { EarlyLauncher::start(&config) }
}

pub(crate) fn run(verb: Verb, early: Option<EarlyLauncher>) -> anyhow::Result<ExitCode> {
    match &verb {
        // These write to the log; before that, it says which elevations have ended.
        Verb::Run(_)
        | Verb::Create(_)
        | Verb::Exec(_)
        | Verb::Apply(_)
        | Verb::Phase(_)
        | Verb::Grant(_)
        | Verb::Approvals(_)
        | Verb::Mcp(_)
        | Verb::Agent(_)
        | Verb::Tool(_) => granted::record_ended()?,
        // A log that cannot be written can still be read.
        Verb::Audit(_) | Verb::Why(_) => drop(granted::record_ended()),
        _ => {}
    }
    let done = match verb {
        Verb::Run(args) => return run::run(*args, early),
        Verb::Plan(args) => return run::plan(*args),
        Verb::Exec(args) => return exec::run(*args),
        Verb::Doctor(args) => return doctor::run(&args),
        Verb::Verify(args) => return verify::run(&args),
        Verb::Tool(verb) => return tool::run(verb),
        Verb::Agent(verb) => return agent::run(verb),
        Verb::Audit(verb) => return audit::run(&verb),
        Verb::Why(args) => return why::run(&args),
        Verb::Net(verb) => return net::run(*verb),
        Verb::Policy(verb) => return ringwall_engine::deciding(|| policy::run(verb)),
        Verb::Mcp(args) => return mcp::run(*args),
        Verb::Create(args) => create::run(*args),
        Verb::Ps(args) => ps::run(&args),
        Verb::Logs(args) => logs::run(&args),
        Verb::Stop(args) => stop::run(&args),
        Verb::Rm(args) => rm::run(&args),
        Verb::Cp(args) => cp::run(&args),
        Verb::Diff(args) => diff::run(&args),
        Verb::Apply(args) => apply::run(&args),
        Verb::Phase(args) => phase::run(&args),
        Verb::Rights(args) => rights::run(&args),
        Verb::Snapshot(args) => snapshot::run(&args),
        Verb::Restore(args) => snapshot::restore(args),
        Verb::Fork(args) => snapshot::fork(&args),
        Verb::Image(verb) => image::run(&verb),
        Verb::Grant(verb) => grant::run(&verb),
        Verb::Approvals(verb) => approvals::run(&verb),
        Verb::Secret(verb) => secret::run(verb),
        Verb::Vm(verb) => vm::run(&verb),
        Verb::Serve(args) => serve::run(&args),
        Verb::Top(args) => top::run(&args),
        Verb::Gc(output) => gc::run(output.json()),
        Verb::Completions { shell } => completions::run(shell),
        Verb::Man { directory } => man::run(directory.as_deref()),
        Verb::Keep => keep::run(),
        Verb::Reference => report::text(crate::args::reference()).map_err(Into::into),
    };
    done.map(|()| ExitCode::SUCCESS)
}

fn open_engine() -> anyhow::Result<Engine> {
    Ok(Engine::open(EngineConfig::from_environment()?)?)
}

/// Does the same for many sandboxes or images: one that fails does not keep the others from
/// their turn.
fn for_each<T: AsRef<str>>(
    items: &[T],
    mut action: impl FnMut(&str) -> anyhow::Result<()>,
) -> anyhow::Result<()> {
    let mut failed = false;
    for item in items {
        if let Err(error) = action(item.as_ref()) {
            report::note(&crate::exit::line(&error));
            failed = true;
        }
    }
    if failed { Err(AlreadyReported.into()) } else { Ok(()) }
}
