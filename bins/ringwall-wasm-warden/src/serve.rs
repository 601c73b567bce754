//! The loop: bytes of the engine, and calls that go on beside each other on one thread.

use std::collections::BTreeMap;
use std::io;
use std::os::fd::OwnedFd;
use std::pin::Pin;
use std::task::{Poll, ready};
use std::time::{Duration, Instant};

use futures_util::future::{AbortHandle, Abortable, Aborted};
use futures_util::stream::{FuturesUnordered, Stream};
use ringwall_spec::DeniedOpen;
use ringwall_wire::{
    CallTool, Channel, Connection, Door, ErrorCode, Event, MAX_CODE_BYTES, MAX_TOOL_INPUT_BYTES,
    RemoteError, Reply, Request, SendTool, Side, StreamId,
};
use rustix::fs::OFlags;
use rustix::io::Errno;
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

use crate::call::{self, Finished};
use crate::doors::Doors;
use crate::ticker::Ticker;
use crate::tools::{Tools, refused};

/// The most that is moved at once between the stream and the connection.
const BUFFER_BYTES: usize = 64 << 10;

/// After an answer the next request is awaited for so long without sleeping: to wake a process on
/// another CPU takes longer than most calls, and in a virtual machine far longer.
const LINGER: Duration = Duration::from_micros(50);

type Task = Pin<Box<dyn Future<Output = (StreamId, Result<Ended, RemoteError>)>>>;

pub(crate) struct Server {
    stream: AsyncFd<OwnedFd>,
    /// There while the stream does not take all that we have to say.
    blocked: Option<AsyncFd<OwnedFd>>,
    connection: Connection,
    denied_open: DeniedOpen,
    tools: Tools,
    ticker: Ticker,
    /// Where requests of tools come out.
    doors: Doors,
    buffer: Vec<u8>,
    /// Calls whose input has not all come.
    waiting: BTreeMap<StreamId, (Box<CallTool>, Vec<u8>)>,
    /// Tools whose code has not all come.
    arriving: BTreeMap<StreamId, (SendTool, Vec<u8>)>,
    /// Calls whose turn has not come.
    queued: Vec<(StreamId, Box<CallTool>, Vec<u8>)>,
    running: FuturesUnordered<Abortable<Task>>,
    aborts: BTreeMap<StreamId, AbortHandle>,
    /// Calls whose output has not all gone.
    sending: BTreeMap<StreamId, Sending>,
    leaving: bool,
    /// An answer has gone, and nothing else is to be done.
    lingers: bool,
}

enum Ended {
    Call(Finished),
    Probe,
}

struct Sending {
    finished: Finished,
    output_sent: usize,
    errors_sent: usize,
}

enum Woken {
    /// So many bytes; none at the end.
    Read(usize),
    Writable,
    /// A connection of a tool has something to move.
    Door,
    Ended(Option<(StreamId, Result<Ended, RemoteError>)>),
}

impl Server {
    /// Must be called inside the runtime.
    pub(crate) fn new(
        stream: OwnedFd,
        denied_open: DeniedOpen,
        tools: Tools,
        ticker: Ticker,
    ) -> io::Result<Server> {
        let flags = rustix::fs::fcntl_getfl(&stream)?;
        rustix::fs::fcntl_setfl(&stream, flags | OFlags::NONBLOCK)?;
        Ok(Server {
            stream: watch(stream, Interest::READABLE)?,
            blocked: None,
            connection: Connection::new(Side::Warden),
            denied_open,
            tools,
            ticker,
            doors: Doors::default(),
            buffer: vec![0; BUFFER_BYTES],
            waiting: BTreeMap::new(),
            arriving: BTreeMap::new(),
            queued: Vec::new(),
            running: FuturesUnordered::new(),
            aborts: BTreeMap::new(),
            sending: BTreeMap::new(),
            leaving: false,
            lingers: false,
        })
    }

    /// Serves the engine until it is gone or has asked to stop.
    pub(crate) async fn serve(mut self) -> io::Result<()> {
        loop {
            let woken = match self.linger()? {
                Some(woken) => woken,
                None => self.wake().await?,
            };
            match woken {
                Woken::Read(0) => return Ok(()),
                Woken::Read(count) => {
                    let bytes = self.buffer.get(..count).unwrap_or_default();
                    self.connection.receive(bytes).map_err(io::Error::other)?;
                }
                Woken::Ended(Some((stream, ended))) => self.ended(stream, ended),
                Woken::Writable | Woken::Door | Woken::Ended(None) => {}
            }
            while let Some(event) = self.connection.next_event() {
                self.handle(event);
            }
            self.start_queued();
            self.send_output();
            self.doors.carry(&mut self.connection);
            let answered = !self.connection.outgoing().is_empty();
            self.flush()?;
            self.lingers = answered && self.is_idle();
            if self.leaving && self.connection.outgoing().is_empty() {
                return Ok(());
            }
        }
    }

    /// Nothing but a new request can come.
    fn is_idle(&self) -> bool {
        self.running.is_empty() && self.sending.is_empty() && self.blocked.is_none()
    }

    /// Looks for the next request for a moment, after an answer. Gives way meanwhile: whoever is to
    /// send it may need this very CPU.
    fn linger(&mut self) -> io::Result<Option<Woken>> {
        if !std::mem::take(&mut self.lingers) {
            return Ok(None);
        }
        let until = Instant::now() + LINGER;
        loop {
            match rustix::io::read(self.stream.get_ref(), &mut *self.buffer) {
                Ok(count) => return Ok(Some(Woken::Read(count))),
                Err(Errno::AGAIN | Errno::INTR) if Instant::now() < until => {
                    rustix::thread::sched_yield();
                }
                Err(Errno::AGAIN | Errno::INTR) => return Ok(None),
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// Waits for whatever comes first, and lets the calls go on meanwhile.
    async fn wake(&mut self) -> io::Result<Woken> {
        let Server { stream, blocked, buffer, running, doors, .. } = self;
        std::future::poll_fn(|cx| {
            if let Poll::Ready(Some(ended)) = Pin::new(&mut *running).poll_next(cx) {
                let given_up = |_: Aborted| None;
                return Poll::Ready(Ok(Woken::Ended(ended.map_or_else(given_up, Some))));
            }
            if doors.poll_changed(cx).is_ready() {
                return Poll::Ready(Ok(Woken::Door));
            }
            if let Some(blocked) = blocked
                && blocked.poll_write_ready(cx)?.is_ready()
            {
                return Poll::Ready(Ok(Woken::Writable));
            }
            loop {
                let mut ready = ready!(stream.poll_read_ready(cx))?;
                let read = rustix::io::read(stream.get_ref(), &mut **buffer);
                // Less than there is room for was all: what comes later is told anew.
                if read.is_ok_and(|count| count < buffer.len()) || read == Err(Errno::AGAIN) {
                    ready.clear_ready();
                }
                match read {
                    Err(Errno::AGAIN | Errno::INTR) => {}
                    read => return Poll::Ready(Ok(Woken::Read(read?))),
                }
            }
        })
        .await
    }

    /// Writes what the stream takes.
    fn flush(&mut self) -> io::Result<()> {
        while !self.connection.outgoing().is_empty() {
            match rustix::io::write(self.stream.get_ref(), self.connection.outgoing()) {
                Ok(count) => self.connection.sent(count),
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => {
                    // Asked for only while it is wanted: else every answer would wake us twice.
                    let copy = self.stream.get_ref().try_clone()?;
                    self.blocked = Some(watch(copy, Interest::WRITABLE)?);
                    return Ok(());
                }
                Err(error) => return Err(error.into()),
            }
        }
        self.blocked = None;
        Ok(())
    }

    fn handle(&mut self, event: Event) {
        match event {
            Event::Opened { stream, request } => self.open(stream, request),
            Event::Data { stream, bytes, .. } if self.doors.knows(stream) => {
                self.doors.receive(stream, &bytes);
            }
            Event::Data { stream, bytes, .. } => self.take_input(stream, &bytes),
            Event::End { stream } => {
                self.doors.end(stream);
                if let Some((call, input)) = self.waiting.remove(&stream) {
                    self.queued.push((stream, call, input));
                }
                if let Some((sent, code)) = self.arriving.remove(&stream) {
                    let answer = self.tools.take(sent, &code).map(|()| Reply::Done);
                    self.connection.reply(stream, &answer.unwrap_or_else(Reply::Error));
                }
            }
            Event::Cancelled { stream } | Event::Broken { stream, .. } => {
                self.doors.cut(stream);
                self.waiting.remove(&stream);
                self.arriving.remove(&stream);
                self.queued.retain(|(queued, ..)| *queued != stream);
                self.sending.remove(&stream);
                if let Some(abort) = self.aborts.remove(&stream) {
                    abort.abort();
                }
            }
            Event::Hello { .. }
            | Event::Reply { .. }
            | Event::Signal { .. }
            | Event::Resize { .. } => {}
        }
    }

    fn open(&mut self, stream: StreamId, request: Request) {
        let answer = match request {
            Request::CallTool(call) => {
                self.waiting.insert(stream, (call, Vec::new()));
                return;
            }
            Request::ProbeTool { tool } => match self.tools.get(tool) {
                Ok(tool) => {
                    let with = self.tools.surroundings(&self.doors);
                    let probe = call::probe(with, tool, self.ticker.hold());
                    self.run(stream, async { probe.await.map(|()| Ended::Probe) });
                    return;
                }
                Err(error) => Err(error),
            },
            Request::SendTool(sent) if sent.bytes <= MAX_CODE_BYTES as u64 => {
                self.arriving.insert(stream, (sent, Vec::new()));
                return;
            }
            Request::SendTool(_) => Err(refused(ErrorCode::Limit, "the code is too long")),
            Request::LoadTool(load) => self.tools.load(load).map(|()| Reply::Done),
            Request::UnloadTool { tool } => {
                self.tools.unload(tool);
                Ok(Reply::Done)
            }
            Request::Accept { door: Door::Proxy } => {
                self.doors.offer(stream);
                return;
            }
            Request::Facts => Ok(Reply::Facts(Box::new(ringwall_facts::gather(self.denied_open)))),
            Request::Shutdown => {
                self.leaving = true;
                Ok(Reply::Done)
            }
            _ => Err(refused(ErrorCode::Invalid, "this ring runs WASM tools and nothing else")),
        };
        self.connection.reply(stream, &answer.unwrap_or_else(Reply::Error));
    }

    fn take_input(&mut self, stream: StreamId, bytes: &[u8]) {
        if let Some((sent, code)) = self.arriving.get_mut(&stream) {
            code.extend_from_slice(bytes);
            if code.len() as u64 > sent.bytes {
                self.arriving.remove(&stream);
                let error = refused(ErrorCode::Invalid, "more code came than was announced");
                self.connection.reply(stream, &Reply::Error(error));
                return;
            }
            self.connection.consumed(stream, bytes.len());
            return;
        }
        let Some((_, input)) = self.waiting.get_mut(&stream) else {
            return;
        };
        if input.len() + bytes.len() > MAX_TOOL_INPUT_BYTES {
            self.waiting.remove(&stream);
            let message = format!("the input is longer than {} MiB", MAX_TOOL_INPUT_BYTES >> 20);
            self.connection.reply(stream, &Reply::Error(refused(ErrorCode::Limit, &message)));
            return;
        }
        input.extend_from_slice(bytes);
        self.connection.consumed(stream, bytes.len());
    }

    /// Starts as many calls as there are slots for; the others keep their turn.
    fn start_queued(&mut self) {
        while self.running.len() < self.tools.slots() && !self.queued.is_empty() {
            let (stream, call, input) = self.queued.remove(0);
            match self.tools.get(call.tool) {
                Ok(tool) => {
                    let with = self.tools.surroundings(&self.doors);
                    let ran = call::run(with, tool, *call, input, self.ticker.hold());
                    self.run(stream, async { ran.await.map(Ended::Call) });
                }
                Err(error) => self.connection.reply(stream, &Reply::Error(error)),
            }
        }
    }

    fn run(
        &mut self,
        stream: StreamId,
        task: impl Future<Output = Result<Ended, RemoteError>> + 'static,
    ) {
        let (abort, registration) = AbortHandle::new_pair();
        let task: Task = Box::pin(async move { (stream, task.await) });
        self.running.push(Abortable::new(task, registration));
        self.aborts.insert(stream, abort);
    }

    fn ended(&mut self, stream: StreamId, ended: Result<Ended, RemoteError>) {
        self.aborts.remove(&stream);
        match ended {
            Ok(Ended::Call(finished)) => {
                let sending = Sending { finished, output_sent: 0, errors_sent: 0 };
                self.sending.insert(stream, sending);
            }
            Ok(Ended::Probe) => self.connection.reply(stream, &Reply::Done),
            Err(error) => self.connection.reply(stream, &Reply::Error(error)),
        }
    }

    /// Sends what the engine has given credit for, and reports of what has all been sent.
    fn send_output(&mut self) {
        let connection = &mut self.connection;
        self.sending.retain(|stream, sending| {
            let Sending { finished, output_sent, errors_sent } = sending;
            let mut done = true;
            for (channel, bytes, sent) in [
                (Channel::Stdout, &finished.output, output_sent),
                (Channel::Stderr, &finished.errors, errors_sent),
            ] {
                let rest = bytes.get(*sent..).unwrap_or_default();
                if !rest.is_empty() {
                    *sent += connection.send(*stream, channel, rest);
                    done &= *sent == bytes.len();
                }
            }
            if done {
                let report = Box::new(finished.report.clone());
                connection.reply(*stream, &Reply::Called(report));
            }
            !done
        });
    }
}

#[expect(
    deprecated,
    reason = "its successor is unsafe, and this one sound for a descriptor that it owns"
)]
fn watch(fd: OwnedFd, interest: Interest) -> io::Result<AsyncFd<OwnedFd>> {
    AsyncFd::with_interest(fd, interest)
}
