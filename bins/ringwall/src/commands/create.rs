//! `ringwall create`: a sandbox that lives on.

use std::time::Duration;

use ringwall_spec::{Command, Limits};

use super::open_engine;
use crate::args::CreateArgs;
use crate::report;
use crate::spec::{admit, warn_of_flags, warn_of_network};

/// How long a sandbox lives that nobody stops.
const LIFETIME: Duration = Duration::from_secs(3600);

pub(super) fn run(args: CreateArgs) -> anyhow::Result<()> {
    let command = (!args.command.is_empty()).then_some(Command {
        argv: args.command,
        env: args.env,
        cwd: args.cwd,
        terminal: None,
        stdin: false,
    });
    let engine = open_engine()?;
    let default = Limits { timeout: LIFETIME, ..Limits::default() };
    let words = command.as_ref().map(Command::words).unwrap_or_default();
    // What it may use is taken from the grant's budget for as long as it could live.
    let (admitted, holding) = admit(&engine, &args.sandbox, default, &words)?;
    let record = engine.create(&admitted, command.as_ref())?;
    if let Some(holding) = holding {
        holding.leave_to_keeper(&record.id)?;
    }
    warn_of_flags(&args.sandbox);
    warn_of_network(&admitted);
    if args.output.json() {
        report::json(&record)?;
    } else {
        report::text(format!("{}\n", record.id))?;
    }
    Ok(())
}
