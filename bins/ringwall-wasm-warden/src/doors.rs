//! Connections of tools to the gateway, each carried by one stream of the engine's.
//!
//! There is no socket in this ring. Who wants a connection gets one end of it here, and the loop that
//! speaks to the engine moves its bytes.

use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

use ringwall_wire::{Channel, Connection, Reply, StreamId};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// Connections of all calls at once.
const MAX_CONNECTIONS: usize = 16;
/// Bytes of one connection that wait to be sent. What waits to be read is bounded by the wire.
const MAX_UNSENT_BYTES: usize = 64 << 10;

/// The connections of this ring. Clones share them.
#[derive(Clone, Default)]
pub(crate) struct Doors(Arc<Mutex<State>>);

#[derive(Default)]
struct State {
    next: u64,
    connections: BTreeMap<u64, Carried>,
    /// Streams for connections to come.
    offered: VecDeque<StreamId>,
    /// Something is to be moved, and the loop has not looked yet.
    changed: bool,
    looks: Option<Waker>,
}

#[derive(Default)]
struct Carried {
    stream: Option<StreamId>,
    incoming: VecDeque<u8>,
    /// Read here, and not yet given back as credit.
    used: usize,
    outgoing: VecDeque<u8>,
    /// Nothing more comes, by our wish or the other side's.
    ended: bool,
    peer_ended: bool,
    /// Nobody holds our end any more.
    left: bool,
    cut: bool,
    reads: Option<Waker>,
    writes: Option<Waker>,
}

/// Our end of a connection. Dropping it closes the connection.
pub(crate) struct End {
    doors: Doors,
    number: u64,
}

impl Doors {
    /// None if there are too many.
    pub(crate) fn connect(&self) -> Option<End> {
        let mut state = self.lock();
        if state.connections.len() >= MAX_CONNECTIONS {
            return None;
        }
        let number = state.next;
        state.next += 1;
        state.connections.insert(number, Carried::default());
        state.tell();
        drop(state);
        Some(End { doors: self.clone(), number })
    }

    // --- the loop's side ---

    /// Ready when something is to be moved that was not at the last look.
    pub(crate) fn poll_changed(&self, cx: &mut Context<'_>) -> Poll<()> {
        let mut state = self.lock();
        if std::mem::take(&mut state.changed) {
            return Poll::Ready(());
        }
        if !state.looks.as_ref().is_some_and(|looks| looks.will_wake(cx.waker())) {
            state.looks = Some(cx.waker().clone());
        }
        Poll::Pending
    }

    /// The engine takes another connection.
    pub(crate) fn offer(&self, stream: StreamId) {
        self.lock().offered.push_back(stream);
    }

    pub(crate) fn knows(&self, stream: StreamId) -> bool {
        self.lock().carried_by(stream).is_some()
    }

    pub(crate) fn receive(&self, stream: StreamId, bytes: &[u8]) {
        if let Some(carried) = self.lock().carried_by(stream) {
            if carried.left {
                carried.used += bytes.len();
            } else {
                carried.incoming.extend(bytes);
            }
            wake(&mut carried.reads);
        }
    }

    pub(crate) fn end(&self, stream: StreamId) {
        if let Some(carried) = self.lock().carried_by(stream) {
            carried.peer_ended = true;
            wake(&mut carried.reads);
        }
    }

    /// The stream is no more.
    pub(crate) fn cut(&self, stream: StreamId) {
        let mut state = self.lock();
        state.offered.retain(|offered| *offered != stream);
        if let Some(carried) = state.carried_by(stream) {
            (carried.cut, carried.peer_ended) = (true, true);
            wake(&mut carried.reads);
            wake(&mut carried.writes);
        }
    }

    /// Moves what can be moved now.
    pub(crate) fn carry(&self, wire: &mut Connection) {
        let mut state = self.lock();
        let State { connections, offered, .. } = &mut *state;
        for carried in connections.values_mut() {
            if carried.stream.is_none() && !carried.left {
                carried.stream = offered.pop_front();
                if let Some(stream) = carried.stream {
                    wire.reply(stream, &Reply::Raised);
                }
            }
            if let Some(stream) = carried.stream {
                carried.carry(stream, wire);
            }
        }
        // One that nobody took has nothing to say goodbye to.
        connections.retain(|_, carried| {
            let over = carried.stream.is_none() || carried.cut || carried.peer_ended;
            !(carried.left && over)
        });
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn carried_by(&mut self, stream: StreamId) -> Option<&mut Carried> {
        self.connections.values_mut().find(|carried| carried.stream == Some(stream))
    }

    /// Has the loop look.
    fn tell(&mut self) {
        self.changed = true;
        wake(&mut self.looks);
    }
}

impl Carried {
    fn carry(&mut self, stream: StreamId, wire: &mut Connection) {
        let used = std::mem::take(&mut self.used);
        if used > 0 {
            wire.consumed(stream, used);
        }
        while !self.outgoing.is_empty() {
            let sent = wire.send(stream, Channel::Bytes, self.outgoing.as_slices().0);
            if sent == 0 {
                break;
            }
            self.outgoing.drain(..sent);
            wake(&mut self.writes);
        }
        if (self.ended && self.outgoing.is_empty()) || self.left {
            // Says so once only.
            wire.end(stream);
        }
    }
}

fn wake(waker: &mut Option<Waker>) {
    if let Some(waker) = waker.take() {
        waker.wake();
    }
}

impl End {
    fn with<T>(&self, act: impl FnOnce(&mut Carried) -> T) -> io::Result<T> {
        let mut state = self.doors.lock();
        let gone = || io::Error::from(io::ErrorKind::NotConnected);
        let done = act(state.connections.get_mut(&self.number).ok_or_else(gone)?);
        state.tell();
        Ok(done)
    }
}

impl Drop for End {
    fn drop(&mut self) {
        let _ = self.with(|carried| {
            carried.left = true;
            carried.used += carried.incoming.len();
            carried.incoming.clear();
            carried.outgoing.clear();
        });
    }
}

impl AsyncRead for End {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let read = self.with(|carried| {
            if carried.incoming.is_empty() && !carried.peer_ended {
                carried.reads = Some(cx.waker().clone());
                return Poll::Pending;
            }
            let (front, _) = carried.incoming.as_slices();
            let count = front.len().min(buffer.remaining());
            buffer.put_slice(front.get(..count).unwrap_or_default());
            carried.incoming.drain(..count);
            carried.used += count;
            Poll::Ready(())
        });
        match read {
            Ok(polled) => polled.map(Ok),
            Err(error) => Poll::Ready(Err(error)),
        }
    }
}

impl AsyncWrite for End {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let written = self.with(|carried| {
            if carried.cut || carried.ended {
                return Poll::Ready(Err(io::ErrorKind::BrokenPipe.into()));
            }
            let count = bytes.len().min(MAX_UNSENT_BYTES.saturating_sub(carried.outgoing.len()));
            if count == 0 && !bytes.is_empty() {
                carried.writes = Some(cx.waker().clone());
                return Poll::Pending;
            }
            carried.outgoing.extend(bytes.get(..count).unwrap_or_default());
            Poll::Ready(Ok(count))
        });
        written.unwrap_or_else(|error| Poll::Ready(Err(error)))
    }

    fn poll_flush(self: Pin<&mut Self>, _cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(self.with(|carried| carried.ended = true))
    }
}
