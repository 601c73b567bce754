//! `ringwall run`: one command behind a fresh wall.

mod image_word;
mod plan;

use std::io::{self, BufWriter, Write};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use ringwall_desk::{Permit, Placed, Reservation, Used};
use ringwall_engine::{EarlyLauncher, Engine, EngineConfig, Output, Sandbox};
use ringwall_spec::{Command, Ending, Limits, Outcome, RingKind, WorkspaceMode};
use serde::Serialize;

use crate::args::RunArgs;
use crate::daemon::{self, Attachment, Driven};
use crate::granted::Admitted;
use crate::job::{self, Capture, HeldSignals, PassOn, Stop};
use crate::spec::{admit, warn_of_flags, warn_of_network};
use crate::{exit, here, report};

/// What `-o json` prints.
#[derive(Serialize)]
struct Document<'a> {
    #[serde(flatten)]
    outcome: &'a Outcome,
    exit_code: u8,
    stdout: String,
    stderr: String,
    output_truncated: bool,
}

/// The steps between the start of the wall and the start of the command.
pub(super) type Prepare<'a> = &'a dyn Fn(&Sandbox) -> anyhow::Result<()>;

/// How long a command on a terminal may take without a limit: the longest time there is.
const ON_TERMINAL: Duration = Duration::from_secs(7 * 24 * 3600);

pub(super) fn run(mut args: RunArgs, early: Option<EarlyLauncher>) -> anyhow::Result<ExitCode> {
    if args.dry_run {
        return plan(args);
    }
    if let Some(preset) = args.preset {
        return super::preset::run(preset, args);
    }
    image_word::settle(&mut args)?;
    here::take(&mut args.sandbox)?;
    match by_daemon(&args)? {
        Some(code) => Ok(code),
        None => {
            let default = default_limits(&args);
            Ok(run_within(args, default, early, &|_| Ok(()))?.0)
        }
    }
}

/// `ringwall plan`: what `run` would do with the same flags.
pub(super) fn plan(mut args: RunArgs) -> anyhow::Result<ExitCode> {
    image_word::settle(&mut args)?;
    here::take(&mut args.sandbox)?;
    let default = default_limits(&args);
    plan::show(args, default)
}

fn default_limits(args: &RunArgs) -> Limits {
    on_terminal(args, Limits::default())
}

/// Limits that apply where neither a flag nor the policy says otherwise. A person at a terminal ends the run.
pub(super) fn on_terminal(args: &RunArgs, limits: Limits) -> Limits {
    if has_own_time(args) { Limits { timeout: ON_TERMINAL, ..limits } } else { limits }
}

/// Whether a person sits before it and has said nothing about time.
fn has_own_time(args: &RunArgs) -> bool {
    args.job.interactive && args.job.tty && !args.sandbox.has_timeout()
}

/// Has the daemon run it, if one is there and takes it.
fn by_daemon(args: &RunArgs) -> anyhow::Result<Option<ExitCode>> {
    let RunArgs { sandbox, job, evidence, output, command, .. } = args;
    let Some(stream) = daemon::connect_to_start(&EngineConfig::from_environment()?.home) else {
        return Ok(None);
    };
    if has_own_time(args) || command.is_empty() || !super::create::has_image(sandbox) {
        return Ok(None);
    }
    let command = job::command(command.clone(), job)?;
    // While it runs, only the daemon would find it by a name.
    let asked = daemon::sandbox_asked(sandbox, Limits::default(), Some(&command))?;
    let Some(ask) = asked.filter(|_| sandbox.name.is_none()) else { return Ok(None) };
    let signals = job::hold_signals(job)?;
    let Some(attached) = Attachment::open(stream, "/v1/runs/attach", &ask, &command)? else {
        return Ok(None);
    };
    let started = |warning: Option<&str>| {
        warn_of_flags(sandbox);
        warning.into_iter().for_each(report::note);
    };
    let mut capture = Capture::default();
    let mut pass_on = PassOn::new(attached.stop());
    let streams: &mut dyn Output = if output.json() { &mut capture } else { &mut pass_on };
    let ended = match attached.drive(job, signals, streams, &started)? {
        Driven::Ended(ended) => ended,
        Driven::NotHere => return Ok(None),
    };
    let outcome = ended.outcome.context("the daemon did not tell how the run ended")?;
    if output.json() {
        return print_document(&outcome, &capture).map(Some);
    }
    if pass_on.reader_gone() {
        return Ok(Some(ExitCode::from(exit::BROKEN_PIPE)));
    }
    comment(&outcome, &ended.limits, *evidence)?;
    if outcome.ending.exit_code() != 0 {
        here::explain_failure(sandbox);
    }
    Ok(Some(ExitCode::from(outcome.ending.exit_code())))
}

/// With other limits where neither flag nor policy says anything.
pub(super) fn run_within(
    args: RunArgs,
    default: Limits,
    early: Option<EarlyLauncher>,
    prepare: Prepare<'_>,
) -> anyhow::Result<(ExitCode, Outcome)> {
    let RunArgs { sandbox, job, evidence, output, command, .. } = args;
    let mut command = job::command(command, &job)?;
    let signals = job::hold_signals(&job)?;
    let engine = Engine::open_for_one_sandbox(EngineConfig::from_environment()?, early)?;
    engine.open_log_ahead();
    let Admitted { asking, placed } = admit(&engine, &sandbox, default, Some(&command))?;
    let Placed { permit, reservation, elevated: _elevated, .. } = placed;
    if command.argv.is_empty() {
        command.argv = image_word::own_command(&engine, &permit)?;
    }
    let limits = permit.spec().limits.clone();
    let busy = starting(&permit);
    let raised = match engine.raise_for(&permit, &command.words()) {
        Ok(raised) => raised,
        Err(error) => {
            reservation.give_back()?;
            return Err(error.into());
        }
    };
    drop(busy);
    let _lease = asking.watch(format!("the run {}", raised.id()), raised.killer());
    warn_of_flags(&sandbox);
    warn_of_network(&permit);
    raised.caution().into_iter().for_each(report::note);
    let killer = raised.killer();
    let stop: Stop = Arc::new(move || killer.kill());
    if output.json() {
        let mut capture = Capture::default();
        let outcome = settle(raised, (&command, prepare), &job, signals, stop, &mut capture)?;
        end(reservation, &outcome)?;
        return Ok((print_document(&outcome, &capture)?, outcome));
    }
    let mut pass_on = PassOn::new(Arc::clone(&stop));
    let outcome = settle(raised, (&command, prepare), &job, signals, stop, &mut pass_on)?;
    end(reservation, &outcome)?;
    if pass_on.reader_gone() {
        return Ok((ExitCode::from(exit::BROKEN_PIPE), outcome));
    }
    comment(&outcome, &limits, evidence)?;
    if outcome.ending.exit_code() != 0 {
        here::explain_failure(&sandbox);
    }
    Ok((ExitCode::from(outcome.ending.exit_code()), outcome))
}

/// What can take a while: a machine boots, and a workspace is copied. Kernels before 6.6 copy it for every wall.
pub(super) fn starting(permit: &Permit) -> Option<report::Busy> {
    let spec = permit.spec();
    let is_vm = spec.wall.outermost() == RingKind::Vm;
    let is_kept_apart =
        spec.workspace.as_ref().is_some_and(|it| it.mode == WorkspaceMode::CopyOnWrite);
    match (is_vm, is_kept_apart) {
        (true, true) => Some(report::busy("starting a microVM and copying the workspace into it")),
        (true, false) => Some(report::busy("starting a microVM")),
        (false, true) => Some(report::busy("preparing the workspace")),
        (false, false) => None,
    }
}

/// Starts the command, waits for it, and takes the wall down whatever happened.
fn settle(
    raised: Sandbox,
    (command, prepare): (&Command, Prepare<'_>),
    job: &crate::args::JobArgs,
    signals: HeldSignals,
    stop: Stop,
    output: &mut dyn Output,
) -> anyhow::Result<Outcome> {
    let started =
        prepare(&raised).and_then(|()| raised.start(command).map_err(anyhow::Error::from));
    match started.and_then(|started| job::drive(started, job, signals, stop, output)) {
        Ok(ending) => Ok(raised.settle(ending)?),
        Err(error) => {
            // The first error says what went wrong; taking the wall down is tidying up.
            let _ = raised.settle(Ending::Stopped);
            Err(error)
        }
    }
}

/// Gives back what the run did not use.
fn end(reservation: Reservation, outcome: &Outcome) -> anyhow::Result<()> {
    let used = Used::of_sandbox(&outcome.usage);
    if reservation.sent_all(used) {
        report::note("the budget of egress_bytes is spent, so nothing more was sent");
    }
    Ok(reservation.settle(used)?)
}

fn comment(outcome: &Outcome, limits: &Limits, evidence: bool) -> anyhow::Result<()> {
    if evidence {
        let mut err = BufWriter::new(io::stderr().lock());
        report::write_evidence(&mut err, outcome)?;
        err.flush()?;
    }
    if let Some(reason) = report::explain(outcome.ending, outcome.usage, limits) {
        report::note(&reason);
    }
    for reason in [&outcome.uncounted, &outcome.changes_lost].into_iter().flatten() {
        report::note(reason);
    }
    if let Some(hint) = report::hint_at_changes(&outcome.id, outcome.changes) {
        report::note(&hint);
    }
    Ok(())
}

fn print_document(outcome: &Outcome, capture: &Capture) -> anyhow::Result<ExitCode> {
    let exit_code = outcome.ending.exit_code();
    report::json(&Document {
        outcome,
        exit_code,
        stdout: String::from_utf8_lossy(&capture.stdout).into_owned(),
        stderr: String::from_utf8_lossy(&capture.stderr).into_owned(),
        output_truncated: capture.truncated,
    })?;
    Ok(ExitCode::from(exit_code))
}
