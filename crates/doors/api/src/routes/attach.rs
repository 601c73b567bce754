//! Commands with all their streams, over a WebSocket: what `ringwall run` and `ringwall exec` use.
//!
//! The client's first text says what to run. Bytes from the client are standard input, and no bytes its
//! end; bytes to the client begin with 1 for standard output or 2 for standard error. Texts are orders of
//! the client, and `started` and then `ended` or `failed` of the daemon.

use std::cell::Cell;
use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::extract::ws::rejection::WebSocketUpgradeRejection;
use axum::extract::ws::{Message, WebSocket, WebSocketUpgrade};
use axum::extract::{Path, State};
use axum::response::Response;
use bytes::Bytes;
use ringwall_desk::{Caller, Permit};
use ringwall_engine::{Job, Killer, Output};
use ringwall_spec::{EgressSpec, TerminalSize};
use ringwall_wire::ProcessInput;
use rustix::process::Signal;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use tokio::sync::{mpsc, oneshot};

use super::{new_id, runs};
use crate::admission::Slot;
use crate::body;
use crate::caller::Asker;
use crate::fields::{CommandFields, SandboxFields};
use crate::held::Held;
use crate::lanes::Whose;
use crate::problem::{Code, Problem, ProblemBody};
use crate::service::Service;
use crate::trace::{self, Context};
use crate::until::Until;

/// For the first message.
const PATIENCE: Duration = Duration::from_secs(10);
/// What is asked for may have a long script in it.
const MOST_MESSAGE: usize = 1 << 20;
/// Pieces on their way, in each direction.
const PIECES: usize = 16;
/// How often it is tried again to send to a client that has read nothing.
const FULL_INTERVAL: Duration = Duration::from_millis(5);

/// What the client sends first.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Opening<T> {
    ask: T,
    /// Whether the client will send standard input.
    #[serde(default)]
    stdin: bool,
    terminal: Option<Size>,
}

#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(deny_unknown_fields)]
struct Size {
    rows: u16,
    columns: u16,
}

/// What the client may send as text later on.
#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
enum Said {
    Signal(i32),
    Resize(Size),
    /// Ends it by force: a command, or all that was raised for it.
    Stop,
}

/// What passes between the thread that runs a job and the client whose job it is.
struct Between {
    shown: mpsc::Sender<Message>,
    begun: Cell<Option<oneshot::Sender<Reins>>>,
}

/// By which a job is driven.
struct Reins {
    input: ProcessInput,
    stop: Box<dyn Fn() + Send>,
}

impl Between {
    fn started(&self, input: ProcessInput, stop: impl Fn() + Send + 'static) {
        // Whoever waits for it may have gone.
        let reins = Reins { input, stop: Box::new(stop) };
        let _ = self.begun.take().map(|begun| begun.send(reins));
    }

    fn say(&self, told: &Value) {
        let _ = self.shown.blocking_send(Message::Text(told.to_string().into()));
    }
}

/// Run a command in a sandbox with all its streams, over a WebSocket. First comes a text
/// `{"ask": {"argv": [...]}, "stdin": true, "terminal": {"rows": 24, "columns": 80}}`, without `terminal`
/// where there is none. Then bytes are standard input, none at all its end, each piece sent when the one
/// before was answered with `"taken"`; and what the command writes after a byte of 1 (standard output) or 2 (standard error); texts `{"signal": 2}`,
/// `{"resize": {"rows": ..., "columns": ...}}` and `"stop"` are orders. At the end comes one text,
/// `{"ended": ...}` or `{"failed": ...}`
#[utoipa::path(get, path = "/v1/sandboxes/{id}/attach", tag = "calls", params(("id" = String, Path)), responses(
    (status = 101, description = "The WebSocket is open"),
    (status = "default", body = ProblemBody, content_type = "application/problem+json"),
))]
pub(crate) async fn exec(
    State(service): State<Arc<Service>>,
    Asker(caller): Asker,
    Path(id): Path<String>,
    upgrade: Result<WebSocketUpgrade, WebSocketUpgradeRejection>,
) -> Result<Response, Problem> {
    let (whose, wanted) = (caller.clone(), id.clone());
    let may = move |service: &Arc<Service>| service.files(&whose, &wanted).map(drop);
    service.work(Whose::of(&caller), may).await?;
    let held = hold_message(&service, &caller)?;
    let context = trace::current();
    Ok(upgradable(upgrade)?.on_upgrade(move |mut socket| async move {
        let work = exec_for(&service, (caller, held), id, &mut socket);
        let last = Context::around(context, work).await;
        end(socket, last).await;
    }))
}

async fn exec_for(
    service: &Arc<Service>,
    (caller, mut held): (Caller, Held),
    id: String,
    socket: &mut WebSocket,
) -> Result<Value, Problem> {
    let opening = opening::<CommandFields>(socket, &mut held).await?;
    let Opening { ask, stdin, terminal } = opening;
    let slot = service.admission.enter(caller.tenant(), 0).await?;
    let until = Until::of(&service.books, &caller, format!("showing a command in {id}"));
    let (fields, service) =
        (ask.attached(stdin, terminal.map(Size::terminal)), Arc::clone(service));
    converse(socket, (slot, until), move |between| {
        let started = |job: &Job| {
            between.say(&json!({ "started": { "warning": null } }));
            let killed = job.input();
            between.started(job.input(), move || killed.signal(Signal::KILL.as_raw()));
        };
        let (call, mut output) = (new_id(), Tagged { to: between.shown.clone(), deadline: None });
        let ended = runs::exec_in(&service, &caller, (&id, &call), &fields, started, &mut output)?;
        Ok(json!({
            "ending": ended.ending, "stopped_by": ended.stopped_by, "limits": ended.limits,
        }))
    })
    .await
}

/// Run a command behind a fresh wall with all its streams, over a WebSocket: as in a sandbox, with what
/// `POST /v1/runs` takes as `ask`. When the wall stands comes `{"started": ...}`
#[utoipa::path(get, path = "/v1/runs/attach", tag = "calls", responses(
    (status = 101, description = "The WebSocket is open"),
    (status = "default", body = ProblemBody, content_type = "application/problem+json"),
))]
pub(crate) async fn run(
    State(service): State<Arc<Service>>,
    Asker(caller): Asker,
    upgrade: Result<WebSocketUpgrade, WebSocketUpgradeRejection>,
) -> Result<Response, Problem> {
    let held = hold_message(&service, &caller)?;
    let context = trace::current();
    Ok(upgradable(upgrade)?.on_upgrade(move |mut socket| async move {
        let work = run_for(&service, (caller, held), &mut socket);
        let last = Context::around(context, work).await;
        end(socket, last).await;
    }))
}

async fn run_for(
    service: &Arc<Service>,
    (caller, mut held): (Caller, Held),
    socket: &mut WebSocket,
) -> Result<Value, Problem> {
    let opening = opening::<SandboxFields>(socket, &mut held).await?;
    let Opening { ask, stdin, terminal } = opening;
    let slot = service.admission.enter(caller.tenant(), ask.memory()).await?;
    let until = Until::of(&service.books, &caller, "showing a run".to_owned());
    let (mut fields, service) = (ask, Arc::clone(service));
    let terminal = terminal.map(Size::terminal);
    fields.command = fields.command.map(|command| command.attached(stdin, terminal));
    converse(socket, (slot, until), move |between| {
        let raised = |permit: &Permit, _: &Killer| {
            let warning = permit.spec().egress.as_ref().and_then(EgressSpec::warning);
            between.say(&json!({ "started": { "warning": warning } }));
        };
        let started = |job: &Job, killer: &Killer| {
            let killer = killer.clone();
            between.started(job.input(), move || killer.kill());
        };
        let mut output = Tagged { to: between.shown.clone(), deadline: None };
        let hooks = (&raised as _, &started as _, &mut output as _);
        let ran = runs::run_behind_wall(&service, &caller, &fields, hooks)?;
        Ok(json!({
            "ending": ran.outcome.ending, "stopped_by": ran.stopped_by, "limits": ran.limits,
            "outcome": ran.outcome,
        }))
    })
    .await
}

fn upgradable(
    upgrade: Result<WebSocketUpgrade, WebSocketUpgradeRejection>,
) -> Result<WebSocketUpgrade, Problem> {
    let upgrade = upgrade.map_err(|error| Problem::new(Code::BadRequest, error.to_string()))?;
    Ok(upgrade.max_message_size(MOST_MESSAGE).max_frame_size(MOST_MESSAGE))
}

/// Whoever has gone does not hear of it.
async fn end(mut socket: WebSocket, last: Result<Value, Problem>) {
    let last = match last {
        Ok(result) => json!({ "ended": result }),
        Err(problem) => json!({ "failed": problem.body() }),
    };
    let _ = socket.send(Message::Text(last.to_string().into())).await;
    let _ = socket.send(Message::Close(None)).await;
}

/// Room for the first message, which is read before anything of it is judged.
fn hold_message(service: &Service, caller: &Caller) -> Result<Held, Problem> {
    let mut held = service.rooms.of(&Whose::of(caller));
    held.grow(MOST_MESSAGE)?;
    Ok(held)
}

async fn opening<T: DeserializeOwned>(
    socket: &mut WebSocket,
    held: &mut Held,
) -> Result<Opening<T>, Problem> {
    let wrong = |why: String| Problem::new(Code::BadRequest, why);
    let first = tokio::time::timeout(PATIENCE, socket.recv()).await;
    let Ok(Some(Ok(Message::Text(text)))) = first else {
        return Err(wrong("the first message must be a text that says what to run".to_owned()));
    };
    held.clear();
    held.grow(text.len())?;
    body::parse(text.as_bytes(), held)
}

/// Has `work` done on a thread for that, and passes on what comes and goes meanwhile.
///
/// Orders never wait behind input: a client sends a piece of that only when the one before was taken. Both
/// threads hold the slot: a client that reads nothing keeps the second one after the end of the first.
async fn converse(
    socket: &mut WebSocket,
    (slot, mut until): (Slot, Until),
    work: impl FnOnce(Between) -> Result<Value, Problem> + Send + 'static,
) -> Result<Value, Problem> {
    let (shown, mut to_show) = mpsc::channel(PIECES);
    let (begun, mut reins) = oneshot::channel();
    let (typed, input) = mpsc::channel(2);
    let (mut input, taken) = (Some(input), shown.downgrade());
    let between = Between { shown, begun: Cell::new(Some(begun)) };
    let context = trace::current();
    let slot = Arc::new(slot);
    let held = Arc::clone(&slot);
    let working = move || {
        let _held = held;
        Context::within(context, || work(between))
    };
    let running = tokio::task::spawn_blocking(working);
    let (mut driven, mut known): (Option<Reins>, bool) = (None, false);
    let mut waiting = Vec::new();
    loop {
        let said = tokio::select! {
            biased;
            piece = to_show.recv() => match piece {
                Some(piece) => match until.show(socket, piece).await {
                    true => continue,
                    false => Said::Stop,
                },
                // All was shown, or nobody is there to be shown anything: how it ended follows.
                None => {
                    if !known && let Ok(got) = (&mut reins).await {
                        waiting.drain(..).for_each(|said| got.obey(&said));
                    }
                    let broken = |_| Problem::new(Code::Ending, "the job was broken off");
                    return running.await.map_err(broken)?;
                }
            },
            got = &mut reins, if !known => {
                known = true;
                if let (Ok(got), Some(input)) = (got, input.take()) {
                    let (into, taken) = (got.input.clone(), taken.clone());
                    let also_held = Arc::clone(&slot);
                    tokio::task::spawn_blocking(move || {
                        let _held = also_held;
                        pass_input(&into, input, &taken);
                    });
                    waiting.drain(..).for_each(|said| got.obey(&said));
                    driven = Some(got);
                }
                continue;
            },
            message = socket.recv(), if !to_show.is_closed() => match message.and_then(Result::ok) {
                Some(Message::Binary(bytes)) => match typed.try_send(bytes) {
                    Ok(()) => continue,
                    // It did not wait for its turn, or the command is over.
                    Err(_) if known && driven.is_none() => continue,
                    Err(_) => Said::Stop,
                },
                Some(Message::Text(text)) => match serde_json::from_str(&text) {
                    Ok(said) => said,
                    Err(_) => continue,
                },
                Some(Message::Ping(_) | Message::Pong(_)) => continue,
                Some(Message::Close(_)) | None => {
                    to_show.close();
                    Said::Stop
                }
            },
        };
        match &driven {
            Some(driven) => driven.obey(&said),
            // What was ordered too early counts when it has begun.
            None if waiting.len() < PIECES => waiting.push(said),
            None => {}
        }
    }
}

impl Reins {
    /// Never waits for anything.
    fn obey(&self, said: &Said) {
        match said {
            Said::Signal(signal) => self.input.signal(*signal),
            Said::Resize(size) => self.input.resize(size.terminal()),
            Said::Stop => (self.stop)(),
        }
    }
}

/// Tells the client of each piece when the command has taken it, or will take none any more.
fn pass_input(
    input: &ProcessInput,
    mut typed: mpsc::Receiver<Bytes>,
    taken: &mpsc::WeakSender<Message>,
) {
    while let Some(bytes) = typed.blocking_recv() {
        if bytes.is_empty() {
            input.close();
        } else {
            // One that has closed its input wants none of the rest.
            let _ = input.write_all(&bytes);
        }
        let Some(taken) = taken.upgrade() else { return };
        let _ = taken.blocking_send(Message::Text("\"taken\"".into()));
    }
}

/// Each piece has a byte before it that says which stream it is of.
struct Tagged {
    to: mpsc::Sender<Message>,
    deadline: Option<Instant>,
}

impl Tagged {
    fn show(&self, tag: u8, bytes: &[u8]) -> io::Result<()> {
        let piece = Message::Binary([&[tag], bytes].concat().into());
        send_until(&self.to, piece, self.deadline)
    }
}

/// Sends to a client, and waits no longer than this for one that reads nothing: it must not choose how long a
/// command runs.
pub(super) fn send_until<T>(
    to: &mpsc::Sender<T>,
    mut piece: T,
    deadline: Option<Instant>,
) -> io::Result<()> {
    let gone = || io::Error::from(io::ErrorKind::BrokenPipe);
    let Some(deadline) = deadline else { return to.blocking_send(piece).map_err(|_| gone()) };
    loop {
        piece = match to.try_send(piece) {
            Ok(()) => return Ok(()),
            Err(mpsc::error::TrySendError::Closed(_)) => return Err(gone()),
            Err(mpsc::error::TrySendError::Full(piece)) => piece,
        };
        if Instant::now() >= deadline {
            return Err(io::ErrorKind::TimedOut.into());
        }
        std::thread::sleep(FULL_INTERVAL);
    }
}

impl Output for Tagged {
    fn stdout(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.show(1, bytes)
    }

    fn stderr(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.show(2, bytes)
    }

    fn wait_until(&mut self, deadline: Option<Instant>) {
        self.deadline = deadline;
    }
}

impl Size {
    fn terminal(self) -> TerminalSize {
        TerminalSize { rows: self.rows, columns: self.columns }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_client_that_reads_nothing_does_not_choose_how_long_a_command_runs() {
        let (to, mut from) = mpsc::channel(1);
        let deadline = Some(Instant::now() + Duration::from_millis(20));
        let mut output = Tagged { to, deadline: None };
        output.wait_until(deadline);
        output.stdout(b"first").unwrap();
        let late = output.stdout(b"second").unwrap_err();
        assert_eq!(late.kind(), io::ErrorKind::TimedOut);
        from.try_recv().unwrap();
        output.stderr(b"there is room again").unwrap();
        drop(from);
        assert_eq!(output.stdout(b"third").unwrap_err().kind(), io::ErrorKind::BrokenPipe);
    }
}
