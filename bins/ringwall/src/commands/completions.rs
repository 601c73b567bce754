//! `ringwall completions`: a script for the caller's shell.

use clap::CommandFactory;
use clap_complete::Shell;

use crate::args::Cli;
use crate::report;

pub(super) fn run(shell: Shell) -> anyhow::Result<()> {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Cli::command(), "ringwall", &mut script);
    report::text(script)?;
    Ok(())
}
