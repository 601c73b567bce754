//! One call, from its input to its report.

use std::rc::Rc;
use std::time::{Duration, Instant};

use ringwall_spec::{ToolMeter, ToolStatus};
use ringwall_wire::{CallReport, CallTool, ErrorCode, RemoteError};
use wasmtime::{Error, Result, Trap};
use wasmtime_wasi::I32Exit;

use crate::context::{self, Context, Surroundings};
use crate::output::Output;
use crate::ticker::Ticking;
use crate::tools::{DENIED_USE, Ran, Tool, refused};

const NOT_GRANTED: &str = "it was given no host to reach; allow one by policy or with --net";
const NOT_WITH_A_SEED: &str =
    "a call with a seed reaches nothing, because its answer could not be repeated";

/// Everything that one call gave.
#[derive(Debug)]
pub(crate) struct Finished {
    pub(crate) report: CallReport,
    pub(crate) output: Vec<u8>,
    pub(crate) errors: Vec<u8>,
}

/// Runs a tool to its end, whatever that is. An error means that the request made no sense.
pub(crate) async fn run(
    with: Surroundings,
    tool: Rc<Tool>,
    call: CallTool,
    input: Vec<u8>,
    _ticking: Ticking,
) -> Result<Finished, RemoteError> {
    let begun = Instant::now();
    let deadline = begun + call.limits.time;
    let most = usize::try_from(call.limits.output_bytes).unwrap_or(usize::MAX);
    let (out, err) = (Output::new(most), Output::new(most));
    let bytes_in = input.len() as u64;
    let (text, stdin) = match &*tool {
        Tool::Component { .. } => {
            let text = String::from_utf8(input);
            (text.map_err(|_| refused(ErrorCode::Invalid, "the input is not UTF-8"))?, Vec::new())
        }
        _ => (String::new(), input),
    };
    let mut store = context::store(&with, &call, stdin, (&out, &err), deadline).map_err(no_room)?;
    let ran = tokio::time::timeout_at(deadline.into(), tool.run(&mut store, &text)).await;
    let status = match ran {
        Ok(Ok(Ran::Exited(code))) => ToolStatus::Exited { code },
        Ok(Ok(Ran::Failed(failure))) => {
            ToolStatus::Failed { code: failure.code, message: failure.message }
        }
        Ok(Ok(Ran::Returned(text))) if out.push(&[text.as_bytes()]) => ToolStatus::Returned,
        Ok(Ok(Ran::Returned(_))) => ToolStatus::OutputLimit,
        Ok(Err(error)) => why_stopped(&error, store.data(), &[&out, &err], call.seed.is_some()),
        Err(_) => ToolStatus::Timeout,
    };
    let (output, errors) = (out.take(), err.take());
    let meter = ToolMeter {
        fuel: call.limits.fuel.saturating_sub(store.get_fuel().unwrap_or(0)),
        wall_us: micros(begun.elapsed()),
        peak_memory_bytes: store.data().limiter.peak_bytes as u64,
        bytes_in,
        bytes_out: (output.len() + errors.len()) as u64,
        host_calls: store.data().host_calls.made,
        // Counted where it passes.
        ..ToolMeter::default()
    };
    Ok(Finished { report: CallReport { status, meter }, output, errors })
}

/// Makes an instance of a tool, to see whether that works.
pub(crate) async fn probe(
    with: Surroundings,
    tool: Rc<Tool>,
    _ticking: Ticking,
) -> Result<(), RemoteError> {
    let call = context::probe_call();
    let deadline = Instant::now() + call.limits.time;
    let nowhere = Output::new(0);
    let streams = (&nowhere, &nowhere);
    let mut store = context::store(&with, &call, Vec::new(), streams, deadline).map_err(no_room)?;
    let wrong = |reason: &str| {
        let message = format!("no instance of the tool can be made: {reason}");
        refused(ErrorCode::Invalid, &message)
    };
    match tokio::time::timeout_at(deadline.into(), tool.probe(&mut store)).await {
        Ok(Ok(())) => Ok(()),
        Ok(Err(error)) => Err(wrong(&format!("{error:#}"))),
        Err(_) => Err(wrong("it takes too long")),
    }
}

/// The first limit that was reached tells more than what the tool made of it.
fn why_stopped(
    error: &Error,
    context: &Context,
    streams: &[&Output],
    repeatable: bool,
) -> ToolStatus {
    if let Some(I32Exit(code)) = error.downcast_ref::<I32Exit>() {
        return ToolStatus::Exited { code: u8::try_from(code & 0xff).unwrap_or(1) };
    }
    if context.timed_out {
        return ToolStatus::Timeout;
    }
    if streams.iter().any(|stream| stream.flooded()) {
        return ToolStatus::OutputLimit;
    }
    if context.host_calls.exhausted() {
        return ToolStatus::HostCallLimit;
    }
    match error.downcast_ref::<Trap>() {
        Some(Trap::OutOfFuel) => return ToolStatus::OutOfFuel,
        Some(Trap::StackOverflow) => return ToolStatus::StackOverflow,
        _ if context.limiter.refused => return ToolStatus::MemoryLimit,
        Some(trap) => return ToolStatus::Trapped { reason: trap.to_string() },
        None => {}
    }
    let reason = format!("{:#}", error);
    match reason.split_once(DENIED_USE).and_then(|(_, rest)| rest.split_once('`')) {
        Some((what, _)) => {
            let why = if repeatable { NOT_WITH_A_SEED } else { NOT_GRANTED };
            ToolStatus::Denied { what: format!("{what}: {why}") }
        }
        None => ToolStatus::Trapped { reason },
    }
}

/// A store that cannot be made: a directory is gone, or the pool is full.
fn no_room(error: Error) -> RemoteError {
    refused(ErrorCode::System, &format!("the call could not be prepared: {error:#}"))
}

fn micros(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
}
