//! The answering side for programs with threads: one call of a handler per request.
//!
//! A warden has its own poll loop; this serves processes that pass requests on to one. Two threads
//! carry the bytes of a connection, so that neither waiting for credit nor a peer that does not
//! read can keep the other direction from moving.

use std::collections::{HashMap, VecDeque};
use std::io::{self, Read, Write};
use std::os::unix::net::UnixStream;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use ringwall_spec::TerminalSize;

use crate::connection::{Channel, Connection, Event, Side};
use crate::frame::StreamId;
use crate::message::{Reply, Request};

/// Answers requests. Called on a thread of its own for each.
pub trait Handler: Send + Sync + 'static {
    fn handle(&self, request: Request, stream: ServerStream);
}

/// What the peer sends on a stream after its request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum InputEvent {
    Data(Vec<u8>),
    /// No more data will come.
    End,
    Signal(i32),
    Resize(TerminalSize),
    /// The peer gave the stream up. Nothing follows.
    Cancelled,
}

/// The peer is gone or gave the stream up.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the caller is gone")]
pub struct Gone;

/// One request's way back. A stream that was not answered when this is dropped is broken off with
/// the connection, so handlers always answer.
#[derive(Debug)]
pub struct ServerStream {
    shared: Arc<Shared>,
    stream: StreamId,
}

/// One request's input, for another thread than the one that answers.
#[derive(Debug)]
pub struct ServerInput {
    shared: Arc<Shared>,
    stream: StreamId,
}

#[derive(Debug)]
struct Shared {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug)]
struct State {
    connection: Connection,
    inputs: HashMap<StreamId, VecDeque<InputEvent>>,
    closed: bool,
}

/// Serves one connection until the peer closes it.
pub fn serve<H: Handler>(socket: UnixStream, handler: Arc<H>) -> io::Result<()> {
    let state =
        State { connection: Connection::new(Side::Warden), inputs: HashMap::new(), closed: false };
    let shared = Arc::new(Shared { state: Mutex::new(state), changed: Condvar::new() });
    let writer = {
        let (shared, socket) = (shared.clone(), socket.try_clone()?);
        std::thread::spawn(move || write_all_out(&shared, socket))
    };
    let result = read_all_in(&shared, &socket, &handler);
    shared.update(|state| state.closed = true);
    // The writer may be stuck in a write to a peer that does not read.
    let _ = socket.shutdown(std::net::Shutdown::Both);
    let _ = writer.join();
    result
}

fn read_all_in<H: Handler>(
    shared: &Arc<Shared>,
    mut socket: &UnixStream,
    handler: &Arc<H>,
) -> io::Result<()> {
    let mut buffer = vec![0; 64 * 1024];
    loop {
        let length = socket.read(&mut buffer)?;
        let Some(bytes) = buffer.get(..length).filter(|bytes| !bytes.is_empty()) else {
            return Ok(());
        };
        let mut opened = Vec::new();
        let broken = shared.update(|state| {
            let received = state.connection.receive(bytes);
            while let Some(event) = state.connection.next_event() {
                state.take(event, &mut opened);
            }
            received.is_err()
        });
        for (stream, request) in opened {
            let (handler, shared) = (handler.clone(), shared.clone());
            std::thread::spawn(move || handler.handle(request, ServerStream { shared, stream }));
        }
        if broken {
            return Err(io::ErrorKind::InvalidData.into());
        }
    }
}

fn write_all_out(shared: &Shared, mut socket: UnixStream) {
    loop {
        let mut state = shared.lock();
        while state.connection.outgoing().is_empty() {
            if state.closed {
                return;
            }
            state = shared.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        let bytes = state.connection.outgoing().to_vec();
        state.connection.sent(bytes.len());
        drop(state);
        // Room was made: somebody may wait to send.
        shared.changed.notify_all();
        if socket.write_all(&bytes).is_err() {
            shared.update(|state| state.closed = true);
            return;
        }
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn update<T>(&self, change: impl FnOnce(&mut State) -> T) -> T {
        let result = change(&mut self.lock());
        self.changed.notify_all();
        result
    }
}

impl State {
    fn take(&mut self, event: Event, opened: &mut Vec<(StreamId, Request)>) {
        let (stream, input) = match event {
            Event::Opened { stream, request } => {
                self.inputs.insert(stream, VecDeque::new());
                opened.push((stream, request));
                return;
            }
            Event::Data { stream, bytes, .. } => (stream, InputEvent::Data(bytes)),
            Event::End { stream } => (stream, InputEvent::End),
            Event::Signal { stream, signal } => (stream, InputEvent::Signal(signal)),
            Event::Resize { stream, size } => (stream, InputEvent::Resize(size)),
            Event::Cancelled { stream } | Event::Broken { stream, .. } => {
                (stream, InputEvent::Cancelled)
            }
            Event::Hello { .. } | Event::Reply { .. } => return,
        };
        if let Some(queue) = self.inputs.get_mut(&stream) {
            // Data is bounded by credit; the rest is a few bytes each and bounded here.
            if queue.len() < 4096 || input == InputEvent::Cancelled {
                queue.push_back(input);
            }
        }
    }

    fn is_gone(&self, stream: StreamId) -> bool {
        let cancelled = |queue: &VecDeque<InputEvent>| queue.contains(&InputEvent::Cancelled);
        self.closed || self.inputs.get(&stream).is_none_or(cancelled)
    }
}

impl ServerStream {
    /// Answers. The last answer of a request ends its stream.
    pub fn reply(&self, reply: &Reply) {
        let last = !matches!(reply, Reply::Started { .. } | Reply::Entries(_) | Reply::Raised);
        self.shared.update(|state| {
            if !state.is_gone(self.stream) {
                state.connection.reply(self.stream, reply);
            }
            if last {
                state.inputs.remove(&self.stream);
            }
        });
    }

    /// Sends all of it, as fast as the peer takes it.
    pub fn send(&self, channel: Channel, mut bytes: &[u8]) -> Result<(), Gone> {
        let mut state = self.shared.lock();
        while !bytes.is_empty() {
            if state.is_gone(self.stream) {
                return Err(Gone);
            }
            let sent = state.connection.send(self.stream, channel, bytes);
            bytes = bytes.get(sent..).unwrap_or_default();
            self.shared.changed.notify_all();
            if !bytes.is_empty() {
                state = self.shared.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
            }
        }
        Ok(())
    }

    /// Whether anybody still waits for an answer.
    pub fn is_gone(&self) -> bool {
        self.shared.lock().is_gone(self.stream)
    }

    pub fn input(&self) -> ServerInput {
        ServerInput { shared: self.shared.clone(), stream: self.stream }
    }
}

impl ServerInput {
    /// The next event; `None` when the stream was answered or the connection closed.
    pub fn next(&self) -> Option<InputEvent> {
        let mut state = self.shared.lock();
        loop {
            let event = state.inputs.get_mut(&self.stream)?.pop_front();
            if let Some(event) = event {
                if let InputEvent::Data(bytes) = &event {
                    state.connection.consumed(self.stream, bytes.len());
                    self.shared.changed.notify_all();
                }
                if event == InputEvent::Cancelled {
                    state.inputs.remove(&self.stream);
                }
                return Some(event);
            }
            if state.closed {
                return None;
            }
            state = self.shared.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }
}

impl Iterator for ServerInput {
    type Item = InputEvent;

    fn next(&mut self) -> Option<InputEvent> {
        ServerInput::next(self)
    }
}

impl Read for ServerInput {
    /// The data alone, for handlers that take a file's content. Signals mean nothing there.
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        loop {
            let mut state = self.shared.lock();
            let Some(queue) = state.inputs.get_mut(&self.stream) else {
                return Ok(0);
            };
            match queue.pop_front() {
                Some(InputEvent::Data(mut bytes)) => {
                    let length = bytes.len().min(buffer.len());
                    let rest = bytes.split_off(length);
                    for (to, from) in buffer.iter_mut().zip(&bytes) {
                        *to = *from;
                    }
                    if !rest.is_empty() {
                        queue.push_front(InputEvent::Data(rest));
                    }
                    state.connection.consumed(self.stream, length);
                    self.shared.changed.notify_all();
                    return Ok(length);
                }
                Some(InputEvent::End) => return Ok(0),
                Some(InputEvent::Cancelled) => return Err(io::ErrorKind::BrokenPipe.into()),
                Some(_) => {}
                None if state.closed => return Err(io::ErrorKind::BrokenPipe.into()),
                None => {
                    drop(self.shared.changed.wait(state).unwrap_or_else(PoisonError::into_inner));
                }
            }
        }
    }
}
