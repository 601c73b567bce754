//! `ringwall exec`: a command in a living sandbox.

use std::process::ExitCode;
use std::sync::Arc;

use ringwall_engine::PolicySearch;
use ringwall_spec::{Limits, Usage};
use rustix::process::Signal;

use super::open_engine;
use crate::args::ExecArgs;
use crate::job::{self, PassOn, Stop};
use crate::{exit, report};

pub(super) fn run(args: ExecArgs) -> anyhow::Result<ExitCode> {
    let command = job::command(args.command, &args.job);
    let signals = job::hold_signals(&args.job)?;
    let engine = open_engine()?;
    let record = engine.find(&args.sandbox)?;
    if let Some(kind) = &args.kind {
        let workspace = record.workspace.as_ref().map(|workspace| workspace.path.clone());
        let from = workspace.or_else(|| std::env::current_dir().ok());
        engine.allow_exec(&record, kind, &PolicySearch::from_environment(from))?;
    }
    let timeout = args.timeout.unwrap_or(record.limits.timeout);
    let attached = engine.attach(&record)?;
    let started = attached.start(&command, timeout)?;
    let input = started.input();
    let stop: Stop = Arc::new(move || input.signal(Signal::KILL.as_raw()));
    let mut pass_on = PassOn::new(Arc::clone(&stop));
    let ending = job::drive(started, &args.job, signals, stop, &mut pass_on)?;
    if pass_on.reader_gone() {
        return Ok(ExitCode::from(exit::BROKEN_PIPE));
    }
    // What the command used is not measured apart from the rest of the sandbox.
    let limits = Limits { timeout, ..record.limits };
    if let Some(reason) = report::explain(ending, Usage::default(), &limits) {
        report::note(&reason);
    }
    Ok(ExitCode::from(ending.exit_code()))
}
