//! The answering side for programs with threads: one call of a handler per request.
//!
//! A warden has its own poll loop; this serves processes that pass requests on to one. Threads take
//! turns: whoever reads a request lets the next one read and handles it itself, and an answer is sent
//! by whoever gives it, so that a short request is nobody's business but one thread's. What the socket
//! does not take at once is left to a thread that may block. So neither waiting for credit nor a peer
//! that does not read can keep the other direction from moving.

use std::collections::{HashMap, VecDeque};
use std::fmt;
use std::io::{self, Read, Write};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use ringwall_spec::TerminalSize;
use rustix::io::Errno;
use rustix::net::{SendFlags, send};

use crate::connection::{Channel, Connection, Event, Side};
use crate::frame::StreamId;
use crate::message::{Reply, Request};

/// Threads of one connection that wait for their turn to read. More end with what they did.
const MOST_STANDING_BY: usize = 2;
const READ_BYTES: usize = 64 << 10;

/// Answers requests. No two of them are on one thread at the same time.
pub trait Handler: Send + Sync + 'static {
    fn handle(&self, request: Request, stream: ServerStream);

    /// The peer is gone.
    fn closed(&self) {}
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
    socket: UnixStream,
    state: Mutex<State>,
    /// Input or room came, or the connection closed.
    changed: Condvar,
    /// The socket did not take all.
    left_over: Condvar,
}

#[derive(Debug)]
struct State {
    connection: Connection,
    inputs: HashMap<StreamId, VecDeque<InputEvent>>,
    /// What takes a stream's input, until there is some.
    takers: HashMap<StreamId, Taker>,
    /// Bytes are with the thread that may block, and nobody else may send.
    writer_has_it: bool,
    closed: bool,
    closing: bool,
}

/// Runs on a thread of its own once there is input.
struct Taker(Box<dyn FnOnce() + Send>);

impl fmt::Debug for Taker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Taker")
    }
}

/// One connection as its threads share it.
struct Lane<H> {
    shared: Arc<Shared>,
    handler: Arc<H>,
    reader: Mutex<Reader>,
    standing_by: AtomicUsize,
}

/// Whose turn it is.
struct Reader {
    buffer: Vec<u8>,
    requests: VecDeque<(StreamId, Request)>,
}

/// Serves one connection until the peer closes it; requests that are under way then may end later, on
/// threads of their own.
pub fn serve<H: Handler>(socket: UnixStream, handler: Arc<H>) -> io::Result<()> {
    let state = State {
        connection: Connection::new(Side::Warden),
        inputs: HashMap::new(),
        takers: HashMap::new(),
        writer_has_it: false,
        closed: false,
        closing: false,
    };
    let (changed, left_over) = (Condvar::new(), Condvar::new());
    let shared = Arc::new(Shared { socket, state: Mutex::new(state), changed, left_over });
    let writer = Arc::clone(&shared);
    thread(move || writer.write_what_is_left())?;
    let reader = Mutex::new(Reader { buffer: vec![0; READ_BYTES], requests: VecDeque::new() });
    take_turns(&Arc::new(Lane { shared, handler, reader, standing_by: AtomicUsize::new(0) }));
    Ok(())
}

fn thread(work: impl FnOnce() + Send + 'static) -> io::Result<()> {
    std::thread::Builder::new().spawn(work).map(drop)
}

fn take_turns<H: Handler>(lane: &Arc<Lane<H>>) {
    loop {
        lane.standing_by.fetch_add(1, Ordering::SeqCst);
        let mut reader = lane.reader.lock().unwrap_or_else(PoisonError::into_inner);
        lane.standing_by.fetch_sub(1, Ordering::SeqCst);
        let Some((stream, request)) = reader.next(&lane.shared) else {
            if !lane.shared.close() {
                lane.handler.closed();
            }
            return;
        };
        if lane.standing_by.load(Ordering::SeqCst) == 0 {
            let next = Arc::clone(lane);
            if thread(move || take_turns(&next)).is_err() {
                // Nobody would see that this request is given up.
                lane.shared.close();
                return;
            }
        }
        drop(reader);
        lane.handler.handle(request, ServerStream { shared: Arc::clone(&lane.shared), stream });
        if lane.standing_by.load(Ordering::SeqCst) >= MOST_STANDING_BY {
            return;
        }
    }
}

impl Reader {
    /// None when no more will come.
    fn next(&mut self, shared: &Arc<Shared>) -> Option<(StreamId, Request)> {
        loop {
            if let Some(request) = self.requests.pop_front() {
                return Some(request);
            }
            let length = match (&shared.socket).read(&mut self.buffer) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                read => read.ok()?,
            };
            let bytes = self.buffer.get(..length).filter(|bytes| !bytes.is_empty())?;
            let mut takers = Vec::new();
            let received = shared.update(|state| {
                let received = state.connection.receive(bytes);
                while let Some(event) = state.connection.next_event() {
                    takers.extend(state.take(event, &mut self.requests));
                }
                received
            });
            for Taker(taker) in takers {
                thread(taker).ok()?;
            }
            received.ok()?;
        }
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn update<T>(&self, change: impl FnOnce(&mut State) -> T) -> T {
        let mut state = self.lock();
        let result = change(&mut state);
        self.send_now(&mut state);
        drop(state);
        self.changed.notify_all();
        result
    }

    /// Whether it was told to be closed before.
    fn close(&self) -> bool {
        let before = std::mem::replace(&mut self.lock().closing, true);
        self.lock().closed = true;
        // Somebody may be stuck in a write to a peer that does not read.
        let _ = self.socket.shutdown(Shutdown::Both);
        self.changed.notify_all();
        self.left_over.notify_all();
        before
    }

    /// Sends what the socket takes without blocking.
    fn send_now(&self, state: &mut State) {
        while !state.writer_has_it && !state.closed && !state.connection.outgoing().is_empty() {
            let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
            match send(&self.socket, state.connection.outgoing(), flags) {
                Ok(count) => state.connection.sent(count),
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => {
                    state.writer_has_it = true;
                    self.left_over.notify_one();
                }
                Err(_) => state.closed = true,
            }
        }
    }

    fn write_what_is_left(&self) {
        let mut state = self.lock();
        while !state.closed {
            if !state.writer_has_it {
                state = self.left_over.wait(state).unwrap_or_else(PoisonError::into_inner);
                continue;
            }
            let bytes = state.connection.outgoing().to_vec();
            state.connection.sent(bytes.len());
            state.writer_has_it = !bytes.is_empty();
            drop(state);
            // Room was made: somebody may wait to send.
            self.changed.notify_all();
            if (&self.socket).write_all(&bytes).is_err() {
                self.close();
            }
            state = self.lock();
        }
    }
}

impl State {
    /// Gives what is to take the input of a stream, when the first of it has come.
    fn take(
        &mut self,
        event: Event,
        requests: &mut VecDeque<(StreamId, Request)>,
    ) -> Option<Taker> {
        let (stream, input) = match event {
            Event::Opened { stream, request } => {
                self.inputs.insert(stream, VecDeque::new());
                requests.push_back((stream, request));
                return None;
            }
            Event::Data { stream, bytes, .. } => (stream, InputEvent::Data(bytes)),
            Event::End { stream } => (stream, InputEvent::End),
            Event::Signal { stream, signal } => (stream, InputEvent::Signal(signal)),
            Event::Resize { stream, size } => (stream, InputEvent::Resize(size)),
            Event::Cancelled { stream } | Event::Broken { stream, .. } => {
                (stream, InputEvent::Cancelled)
            }
            Event::Hello { .. } | Event::Reply { .. } => return None,
        };
        let queue = self.inputs.get_mut(&stream)?;
        // Data is bounded by credit; the rest is a few bytes each and bounded here.
        if queue.len() < 4096 || input == InputEvent::Cancelled {
            queue.push_back(input);
        }
        self.takers.remove(&stream)
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
                state.takers.remove(&self.stream);
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
            self.shared.send_now(&mut state);
            // Without any progress there is no credit, or the writer has too much already.
            if sent == 0 {
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

    /// Has input taken on another thread as soon as there is any; most requests never have some.
    pub fn take_input(&self, take: impl FnOnce(ServerInput) + Send + 'static) {
        let input = self.input();
        let taker = Taker(Box::new(move || take(input)));
        let mut state = self.shared.lock();
        match state.inputs.get(&self.stream) {
            Some(queue) if queue.is_empty() => {
                state.takers.insert(self.stream, taker);
            }
            Some(_) => {
                drop(state);
                if thread(taker.0).is_err() {
                    self.shared.close();
                }
            }
            None => {}
        }
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
                    self.shared.send_now(&mut state);
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
                    self.shared.send_now(&mut state);
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
