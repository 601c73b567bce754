//! One call of a tool, from the request to its outcome.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Instant;

use ringwall_ring_wasm::Entry;
use ringwall_spec::{
    EgressSpec, Evidence, ToolDigest, ToolKind, ToolLimits, ToolMeter, ToolStatus,
};
use ringwall_wire::{
    Answer, CallReport, CallStop, CallTool, ClientError, ErrorCode, GuestDir, Http, LoadedTool,
    MAX_TOOL_INPUT_BYTES, RemoteError,
};

use super::dirs::{DirGrant, GrantClass};
use super::pool::Seat;
use super::{ToolHost, lock};
use crate::ledger::CallEntry;
use crate::network::NetworkError;
use crate::raise::RaiseError;

/// Longest arguments and environment, together: they travel in one frame.
const MAX_WORDS_BYTES: usize = 512 << 10;

#[derive(Debug, Clone)]
pub enum ToolInput {
    /// For a component: JSON, not looked at here.
    Component { json: Vec<u8> },
    /// For a command; its own name is not among the arguments.
    Command { args: Vec<String>, stdin: Vec<u8> },
}

#[derive(Debug, Clone)]
pub struct ToolCall {
    pub digest: ToolDigest,
    pub input: ToolInput,
    /// What a command is told that it is called.
    pub program: String,
    pub dirs: Vec<DirGrant>,
    pub env: Vec<(String, String)>,
    pub limits: ToolLimits,
    /// Given: the same call gives the same bytes.
    pub seed: Option<u64>,
    /// Imports of HTTP are accepted. Without a network every use of them is denied.
    pub wants_http: bool,
    /// What it may reach by HTTP. Such a call has a warden and a gateway of its own.
    pub network: Option<ToolNetwork>,
    /// Ends it from another thread.
    pub stop: CallStop,
}

/// The network of one call.
#[derive(Debug, Clone)]
pub struct ToolNetwork {
    pub egress: EgressSpec,
    /// The variables that the tool asks for; those that stand for a secret are among them, or not given.
    pub variables: Vec<String>,
    /// What joins the gateway's records to the call.
    pub entry: CallEntry,
}

#[derive(Debug, Clone)]
pub struct ToolOutcome {
    pub status: ToolStatus,
    /// The JSON of a component, or standard output.
    pub output: Vec<u8>,
    /// The log of a component, or standard error.
    pub errors: Vec<u8>,
    pub meter: ToolMeter,
    /// The checked facts of the ring that it ran in.
    pub evidence: Arc<Vec<Evidence>>,
}

#[derive(Debug, thiserror::Error)]
pub enum ToolError {
    #[error("the tool {0} is not compiled here; install it again")]
    NotCompiled(ToolDigest),
    #[error("the directory {path:?} cannot be granted: {reason}")]
    Dir { path: PathBuf, reason: String },
    #[error("the call is refused: {0}")]
    Refused(String),
    #[error("the process that ran the tool ended; call the tool again")]
    WardenLost,
    #[error("the call was stopped, because its grant has ended; ask for a new grant")]
    Stopped,
    #[error("no ring for the tool could be raised")]
    Raise(#[from] RaiseError),
    #[error("the tool has no gateway to reach the network by")]
    Network(#[from] NetworkError),
    /// The keeper's own words.
    #[error("{0}")]
    Sandbox(String),
}

impl ToolCall {
    pub fn component(digest: ToolDigest, json: impl Into<Vec<u8>>) -> ToolCall {
        ToolCall::new(digest, ToolInput::Component { json: json.into() }, "tool")
    }

    pub fn command(
        digest: ToolDigest,
        program: &str,
        args: Vec<String>,
        stdin: Vec<u8>,
    ) -> ToolCall {
        ToolCall::new(digest, ToolInput::Command { args, stdin }, program)
    }

    fn new(digest: ToolDigest, input: ToolInput, program: &str) -> ToolCall {
        ToolCall {
            digest,
            input,
            program: program.to_owned(),
            dirs: Vec::new(),
            env: Vec::new(),
            limits: ToolLimits::default(),
            seed: None,
            wants_http: false,
            network: None,
            stop: CallStop::default(),
        }
    }
}

impl ToolHost {
    /// Runs a tool to its end, whatever that is. An error means that it did not run, or that it is
    /// not known how it ended.
    pub fn call(&self, call: &ToolCall) -> Result<ToolOutcome, ToolError> {
        // Answers from other hosts cannot be repeated.
        if let Some(network) = call.network.as_ref().filter(|_| call.seed.is_none()) {
            return self.call_with_network(call, network);
        }
        let entry = self.entry(&call.digest).ok_or(ToolError::NotCompiled(call.digest))?;
        let (class, guests) = self.inner.rings.resolve(&call.dirs)?;
        let sent = request(call, entry.kind, guests)?;
        let mut tried = self.try_call(call, &entry, &class, &sent)?;
        if matches!(tried, Tried::Lost) {
            // The fault was another call's, and this one has changed nothing.
            tried = self.try_call(call, &entry, &class, &sent)?;
        }
        let Tried::Ended(outcome) = tried else { return Err(ToolError::WardenLost) };
        self.count(&outcome);
        Ok(outcome)
    }

    /// Maps a tool and makes an instance of it, without calling it.
    pub fn probe(&self, digest: &ToolDigest, wants_http: bool) -> Result<(), ToolError> {
        let entry = self.entry(digest).ok_or(ToolError::NotCompiled(*digest))?;
        let seat = self.inner.pool.seat(&GrantClass::default())?;
        let tool = self.load(&seat, digest, &entry, if_wanted(wants_http))?;
        let client = seat.warden.client.until(Instant::now() + seat.warden.patience.load);
        client.probe_tool(tool).map_err(|error| match error {
            ClientError::Remote(refusal) => ToolError::Refused(refusal.message),
            _ => {
                seat.give_up();
                ToolError::WardenLost
            }
        })
    }

    fn try_call(
        &self,
        call: &ToolCall,
        entry: &Entry,
        class: &GrantClass,
        sent: &Sent<'_>,
    ) -> Result<Tried, ToolError> {
        let seat = self.inner.pool.seat(class)?;
        self.call_in(&seat, (&call.digest, entry, if_wanted(call.wants_http)), sent)
    }

    /// Calls a tool in this very warden.
    pub(super) fn call_in(
        &self,
        seat: &Seat,
        (digest, entry, http): (&ToolDigest, &Entry, Http),
        sent: &Sent<'_>,
    ) -> Result<Tried, ToolError> {
        let Sent { request, input, stop } = sent;
        if stop.is_stopped() {
            return Err(ToolError::Stopped);
        }
        let tool = match self.load(seat, digest, entry, http) {
            // Nothing has run yet.
            Err(ToolError::WardenLost) => return Ok(Tried::Lost),
            loaded => loaded?,
        };
        let request = CallTool { tool, ..request.clone() };
        let begun = Instant::now();
        let patience = seat.warden.patience;
        let deadline = begun + request.limits.time + patience.grace;
        let client = seat.warden.client.until(deadline).unless(stop);
        let most = usize::try_from(request.limits.output_bytes).unwrap_or(usize::MAX);
        let evidence = Arc::clone(&seat.warden.evidence);
        match client.call_tool(request, input, most) {
            Ok(Answer { report: CallReport { status, meter }, output, errors }) => {
                let outcome = ToolOutcome { status, output, errors, meter, evidence };
                Ok(Tried::Ended(outcome))
            }
            Err(ClientError::TimedOut) => {
                seat.give_up();
                let wall_us = u64::try_from(begun.elapsed().as_micros()).unwrap_or(u64::MAX);
                let bytes_in = input.len() as u64;
                let meter = ToolMeter { wall_us, bytes_in, ..ToolMeter::default() };
                let (status, output, errors) = (ToolStatus::Timeout, Vec::new(), Vec::new());
                Ok(Tried::Ended(ToolOutcome { status, output, errors, meter, evidence }))
            }
            // It was unloaded in this very moment, to make room.
            Err(ClientError::Remote(RemoteError { code: ErrorCode::NotFound, .. })) => {
                Ok(Tried::Lost)
            }
            Err(ClientError::Remote(refusal)) => Err(ToolError::Refused(refusal.message)),
            // The warden has ended this call and no other.
            Err(_) if stop.is_stopped() => Err(ToolError::Stopped),
            Err(_) => {
                seat.give_up();
                if seat.was_shared() && !seat.warden.class.has_writable() {
                    return Ok(Tried::Lost);
                }
                Err(ToolError::WardenLost)
            }
        }
    }

    fn load(
        &self,
        seat: &Seat,
        digest: &ToolDigest,
        entry: &Entry,
        http: Http,
    ) -> Result<LoadedTool, ToolError> {
        seat.warden.tool(*digest, entry, http).map_err(|error| match error {
            // Code of another machine or another build; the cache could not know.
            ClientError::Remote(RemoteError { code: ErrorCode::NotPermitted, .. }) => {
                self.forget(digest);
                ToolError::NotCompiled(*digest)
            }
            ClientError::Remote(refusal) => ToolError::Refused(refusal.message),
            _ => {
                seat.give_up();
                ToolError::WardenLost
            }
        })
    }

    pub(super) fn count(&self, outcome: &ToolOutcome) {
        let mut totals = lock(&self.inner.totals);
        totals.calls += 1;
        totals.failures += u64::from(!outcome.status.is_success());
        totals.fuel = totals.fuel.saturating_add(outcome.meter.fuel);
        totals.wall_us = totals.wall_us.saturating_add(outcome.meter.wall_us);
        totals.bytes_in = totals.bytes_in.saturating_add(outcome.meter.bytes_in);
        totals.bytes_out = totals.bytes_out.saturating_add(outcome.meter.bytes_out);
    }
}

/// A request to a warden, and the way to take it back.
pub(super) struct Sent<'a> {
    request: CallTool,
    input: &'a [u8],
    stop: &'a CallStop,
}

pub(super) enum Tried {
    Ended(ToolOutcome),
    /// The warden was lost, and trying once more does no harm.
    Lost,
}

fn if_wanted(wants_http: bool) -> Http {
    if wants_http { Http::Denied } else { Http::Unwanted }
}

/// What goes to the warden, but for the number of the tool there.
pub(super) fn request(
    call: &ToolCall,
    kind: ToolKind,
    dirs: Vec<GuestDir>,
) -> Result<Sent<'_>, ToolError> {
    let (args, input) = match (&call.input, kind) {
        (ToolInput::Component { json }, ToolKind::Component) => (Vec::new(), json),
        (
            ToolInput::Command { args, stdin },
            ToolKind::CommandComponent | ToolKind::CommandModule,
        ) => {
            let all = std::iter::once(&call.program).chain(args).cloned();
            (all.collect(), stdin)
        }
        (ToolInput::Component { .. }, _) => {
            let reason = "the tool is a command; give it arguments and standard input";
            return Err(ToolError::Refused(reason.to_owned()));
        }
        (ToolInput::Command { .. }, _) => {
            let reason = "the tool is a component; give it JSON";
            return Err(ToolError::Refused(reason.to_owned()));
        }
    };
    if input.len() > MAX_TOOL_INPUT_BYTES {
        let reason = format!("its input is longer than {} MiB", MAX_TOOL_INPUT_BYTES >> 20);
        return Err(ToolError::Refused(reason));
    }
    let env = call.env.clone();
    let words = args.iter().map(String::len).chain(env.iter().map(|(k, v)| k.len() + v.len()));
    if words.map(|length| length + 8).sum::<usize>() > MAX_WORDS_BYTES {
        let reason = format!("its arguments are longer than {} KiB", MAX_WORDS_BYTES >> 10);
        return Err(ToolError::Refused(reason));
    }
    let limits = call.limits.capped();
    let request = CallTool { tool: 0, args, env, dirs, limits, seed: call.seed };
    Ok(Sent { request, input, stop: &call.stop })
}
