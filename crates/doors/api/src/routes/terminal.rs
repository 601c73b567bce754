//! A terminal in a sandbox, over a WebSocket.
//!
//! The client's first message says what to run. Then bytes are what is typed and shown, and texts are
//! orders: the client's new size, and at last how the command ended.

use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::extract::ws::rejection::WebSocketUpgradeRejection;
use axum::extract::ws::{Message, WebSocket, WebSocketUpgrade};
use axum::extract::{Path, State};
use axum::response::Response;
use bytes::Bytes;
use ringwall_desk::Caller;
use ringwall_engine::{Job, Output};
use ringwall_spec::TerminalSize;
use ringwall_wire::ProcessInput;
use rustix::process::Signal;
use serde::Deserialize;
use tokio::sync::{mpsc, oneshot};

use super::attach::send_until;
use super::{new_id, runs};
use crate::body;
use crate::caller::Asker;
use crate::fields::CommandFields;
use crate::held::Held;
use crate::lanes::Whose;
use crate::problem::{Code, Problem, ProblemBody};
use crate::service::Service;
use crate::trace::{self, Context};
use crate::until::Until;

/// For the first message.
const PATIENCE: Duration = Duration::from_secs(10);
const MOST_MESSAGE: usize = 64 << 10;
/// Pieces on their way, in each direction.
const PIECES: usize = 16;

/// What the client sends first.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Opening {
    command: CommandFields,
    rows: u16,
    columns: u16,
}

/// What the client may send as text later on.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Resize {
    rows: u16,
    columns: u16,
}

/// Run a command on a terminal, over a WebSocket. First comes a text
/// `{"command": {"argv": [...]}, "rows": 24, "columns": 80}`; then bytes both ways, texts
/// `{"rows": ..., "columns": ...}` for a new size, and at the end one text with the result
#[utoipa::path(get, path = "/v1/sandboxes/{id}/terminal", tag = "calls", params(("id" = String, Path)), responses(
    (status = 101, description = "The WebSocket is open"),
    (status = "default", body = ProblemBody, content_type = "application/problem+json"),
))]
pub(crate) async fn open(
    State(service): State<Arc<Service>>,
    Asker(caller): Asker,
    Path(id): Path<String>,
    upgrade: Result<WebSocketUpgrade, WebSocketUpgradeRejection>,
) -> Result<Response, Problem> {
    let (whose, wanted) = (caller.clone(), id.clone());
    let may = move |service: &Arc<Service>| service.files(&whose, &wanted).map(drop);
    service.work(Whose::of(&caller), may).await?;
    // For the first message, which is read before anything of it is judged.
    let mut room = service.rooms.of(&Whose::of(&caller));
    room.grow(MOST_MESSAGE)?;
    let upgrade = upgrade.map_err(|error| Problem::new(Code::BadRequest, error.to_string()))?;
    let upgrade = upgrade.max_message_size(MOST_MESSAGE).max_frame_size(MOST_MESSAGE);
    let context = trace::current();
    Ok(upgrade.on_upgrade(move |socket| async move {
        let mut socket = socket;
        let serving = Context::around(context, serve(&service, (&caller, room), &id, &mut socket));
        let last = match serving.await {
            Ok(result) => result,
            Err(problem) => serde_json::json!({ "failed": problem.body() }).to_string(),
        };
        // Whoever has gone does not hear of it.
        let _ = socket.send(Message::Text(last.into())).await;
        let _ = socket.send(Message::Close(None)).await;
    }))
}

async fn serve(
    service: &Arc<Service>,
    (caller, mut room): (&Caller, Held),
    id: &str,
    socket: &mut WebSocket,
) -> Result<String, Problem> {
    let opening = opening(socket, &mut room).await?;
    // Both threads hold it.
    let slot = Arc::new(service.admission.enter(caller.tenant(), 0).await?);
    let held = Arc::clone(&slot);
    let mut until = Until::of(&service.books, caller, format!("showing a terminal in {id}"));
    let (shown, mut to_show) = mpsc::channel::<Bytes>(PIECES);
    let (begun, input) = oneshot::channel();
    let (shared, caller, id) = (Arc::clone(service), caller.clone(), id.to_owned());
    let context = trace::current();
    let work = move || {
        let _held = held;
        let started = |job: &Job| {
            let _ = begun.send(job.input());
        };
        let mut output = Shown { to: shown, deadline: None };
        let call = new_id();
        let ended = runs::exec_in(&shared, &caller, (&id, &call), &opening, started, &mut output)?;
        Ok::<String, Problem>(ended.summary())
    };
    let mut running = tokio::task::spawn_blocking(move || Context::within(context, work));
    let ended = |ended: Result<Result<String, Problem>, tokio::task::JoinError>| match ended {
        Ok(result) => result,
        Err(_) => Err(Problem::new(Code::Ending, "the terminal was broken off")),
    };
    let Ok(input) = input.await else { return ended(running.await) };
    let kill = input.clone();
    let (typed, orders) = mpsc::channel(PIECES);
    tokio::task::spawn_blocking(move || {
        let _held = slot;
        pass_orders(&input, orders);
    });
    loop {
        tokio::select! {
            biased;
            piece = to_show.recv() => match piece {
                Some(piece) => {
                    if !until.show(socket, Message::Binary(piece)).await {
                        kill.signal(Signal::KILL.as_raw());
                        to_show.close();
                    }
                }
                // All was shown: how it ended follows.
                None => return ended((&mut running).await),
            },
            message = socket.recv() => match message.and_then(Result::ok) {
                Some(Message::Binary(bytes)) => {
                    let _ = typed.send(Order::Type(bytes)).await;
                }
                Some(Message::Text(text)) => {
                    if let Ok(Resize { rows, columns }) = serde_json::from_str(&text) {
                        let _ = typed.send(Order::Resize(TerminalSize { rows, columns })).await;
                    }
                }
                Some(Message::Ping(_) | Message::Pong(_)) => {}
                Some(Message::Close(_)) | None => {
                    kill.signal(Signal::KILL.as_raw());
                    return ended((&mut running).await);
                }
            },
        }
    }
}

async fn opening(socket: &mut WebSocket, held: &mut Held) -> Result<CommandFields, Problem> {
    let wrong = |why: String| Problem::new(Code::BadRequest, why);
    let first = tokio::time::timeout(PATIENCE, socket.recv()).await;
    let Ok(Some(Ok(Message::Text(text)))) = first else {
        return Err(wrong("the first message must be a text that says what to run".to_owned()));
    };
    held.clear();
    held.grow(text.len())?;
    let Opening { command, rows, columns } = body::parse(text.as_bytes(), held)?;
    Ok(CommandFields { terminal: Some(TerminalSize { rows, columns }), ..command })
}

enum Order {
    Type(Bytes),
    Resize(TerminalSize),
}

/// A command that does not read makes this wait, and with it the client; nobody else.
fn pass_orders(input: &ProcessInput, mut orders: mpsc::Receiver<Order>) {
    while let Some(order) = orders.blocking_recv() {
        match order {
            Order::Type(bytes) => {
                if input.write_all(&bytes).is_err() {
                    return;
                }
            }
            Order::Resize(size) => input.resize(size),
        }
    }
    input.close();
}

struct Shown {
    to: mpsc::Sender<Bytes>,
    deadline: Option<Instant>,
}

impl Shown {
    fn show(&self, bytes: &[u8]) -> io::Result<()> {
        send_until(&self.to, Bytes::copy_from_slice(bytes), self.deadline)
    }
}

impl Output for Shown {
    fn stdout(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.show(bytes)
    }

    fn stderr(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.show(bytes)
    }

    fn wait_until(&mut self, deadline: Option<Instant>) {
        self.deadline = deadline;
    }
}
