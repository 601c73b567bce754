//! `ringwall exec`: a command in a living sandbox.

use std::process::ExitCode;
use std::sync::Arc;

use ringwall_desk::{Action, Exec, Input};
use ringwall_engine::{EngineConfig, PolicySearch};
use ringwall_spec::{Ending, Limits, Usage};
use rustix::process::Signal;
use serde_json::json;

use super::open_engine;
use crate::args::ExecArgs;
use crate::daemon::{self, Attachment, Driven};
use crate::granted::Asking;
use crate::job::{self, PassOn, Stop};
use crate::{exit, report};

pub(super) fn run(args: ExecArgs) -> anyhow::Result<ExitCode> {
    if let Some(code) = by_daemon(&args)? {
        return Ok(code);
    }
    let command = job::command(args.command, &args.job)?;
    let signals = job::hold_signals(&args.job)?;
    let engine = open_engine()?;
    engine.open_log_ahead();
    let record = engine.find(&args.sandbox)?;
    let workspace = record.workspace.as_ref().map(|workspace| workspace.path.clone());
    let from = workspace.or_else(|| std::env::current_dir().ok());
    let asked = Exec {
        kind: args.kind.as_deref(),
        command: &command,
        input: Input::of(&command, None),
        timeout: args.timeout,
    };
    let asking = Asking::by(None)?;
    let here = PolicySearch::from_environment(from);
    asking.desk(&engine).enter(&asking.caller, (&record, &here), Action::Exec(&asked))?;
    let timeout = args.timeout.unwrap_or(record.limits.timeout);
    let attached = engine.attach(&record)?;
    let started = attached.start(&command, timeout)?;
    let input = started.input();
    let stop: Stop = Arc::new(move || input.signal(Signal::KILL.as_raw()));
    let mut pass_on = PassOn::new(Arc::clone(&stop));
    let ending = job::drive(started, &args.job, signals, stop, &mut pass_on)?;
    Ok(told(ending, &pass_on, &Limits { timeout, ..record.limits }))
}

fn told(ending: Ending, pass_on: &PassOn, limits: &Limits) -> ExitCode {
    if pass_on.reader_gone() {
        return ExitCode::from(exit::BROKEN_PIPE);
    }
    // What the command used is not measured apart from the rest of the sandbox.
    if let Some(reason) = report::explain(ending, Usage::default(), limits) {
        report::note(&reason);
    }
    ExitCode::from(ending.exit_code())
}

/// Has the daemon execute it, if one is there and takes it. With a kind of work the policy counts that is
/// found from here.
fn by_daemon(args: &ExecArgs) -> anyhow::Result<Option<ExitCode>> {
    let plain = args.sandbox.chars().all(|it| it.is_ascii_alphanumeric() || "-_.".contains(it));
    if args.kind.is_some() || !plain {
        return Ok(None);
    }
    let Some(stream) = daemon::connect(&EngineConfig::from_environment()?.home) else {
        return Ok(None);
    };
    let command = job::command(args.command.clone(), &args.job)?;
    let Some(mut ask) = daemon::words_of(&command) else { return Ok(None) };
    let timeout = args.timeout.map(|time| u64::try_from(time.as_millis()).unwrap_or(u64::MAX));
    ask["timeout_ms"] = json!(timeout);
    let signals = job::hold_signals(&args.job)?;
    let path = format!("/v1/sandboxes/{}/attach", args.sandbox);
    let Some(attached) = Attachment::open(stream, &path, &ask, &command)? else {
        return Ok(None);
    };
    let mut pass_on = PassOn::new(attached.stop());
    match attached.drive(&args.job, signals, &mut pass_on, &|_| {})? {
        Driven::Ended(ended) => Ok(Some(told(ended.ending, &pass_on, &ended.limits))),
        Driven::NotHere => Ok(None),
    }
}
