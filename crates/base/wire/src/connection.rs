//! The protocol as a state machine without IO: bytes in, events out, calls in, bytes out.
//!
//! Life of a stream: the engine opens it with a request; the warden answers with replies, the last
//! of which closes it. Cancelling closes it at once on both sides. Frames for a stream that is
//! closed already are dropped without complaint: they were under way when it closed.
//!
//! Invariant: what is held for a peer is bounded. Data are bounded by the window of each stream,
//! frames by their size, complaints by [`MAX_VIOLATIONS`]. Events are the one thing that the owner
//! must bound: drain them after each [`Connection::receive`], whose input bounds their number.

mod incoming;
mod outgoing;
mod stream;

use std::collections::{BTreeMap, VecDeque};

use ringwall_spec::TerminalSize;

use crate::bound::cut_text;
use crate::error::{OpenError, ProtocolError, StreamError};
use crate::frame::{FrameKind, StreamId, write_frame, write_hello};
use crate::limits::{
    MAX_DATA_BYTES, MAX_FRAME_BYTES, MAX_MESSAGE_BYTES, MAX_STREAMS, OUTGOING_HIGH_WATER,
};
use crate::message::{ErrorCode, RemoteError, Reply, Request};
use outgoing::Outgoing;
use stream::{After, Stream};

/// Where bytes of a stream belong.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Channel {
    Stdout,
    Stderr,
    /// Standard input, the content of a file, or a tunnel.
    Bytes,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Side {
    Engine,
    Warden,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    Hello {
        version: u16,
    },
    /// Warden only.
    Opened {
        stream: StreamId,
        request: Request,
    },
    /// Warden only.
    Signal {
        stream: StreamId,
        signal: i32,
    },
    /// Warden only.
    Resize {
        stream: StreamId,
        size: TerminalSize,
    },
    /// Warden only. The stream is closed; whatever it asked for must stop.
    Cancelled {
        stream: StreamId,
    },
    /// Engine only. The last reply of a request has closed the stream.
    Reply {
        stream: StreamId,
        reply: Reply,
    },
    /// Never empty. Say [`Connection::consumed`] once used, or the peer runs out of credit.
    Data {
        stream: StreamId,
        channel: Channel,
        bytes: Vec<u8>,
    },
    /// The peer sends no more data on this stream.
    End {
        stream: StreamId,
    },
    /// One side broke the protocol on this stream only; it is closed.
    Broken {
        stream: StreamId,
        error: StreamError,
    },
}

#[derive(Debug)]
pub struct Connection {
    side: Side,
    greeted: bool,
    failure: Option<ProtocolError>,
    streams: BTreeMap<StreamId, Stream>,
    /// The highest id ever opened. Ids only grow, so this tells a late frame from a wrong one.
    last_stream: u32,
    violations: u32,
    /// The beginning of a frame whose rest has not come yet.
    partial: Vec<u8>,
    events: VecDeque<Event>,
    outgoing: Outgoing,
}

impl Side {
    pub fn other(self) -> Side {
        match self {
            Side::Engine => Side::Warden,
            Side::Warden => Side::Engine,
        }
    }
}

// === impl Connection ===

impl Connection {
    /// Queues our greeting; it goes out with the first request or reply.
    pub fn new(side: Side) -> Self {
        let mut outgoing = Outgoing::default();
        write_hello(outgoing.queue());
        Connection {
            side,
            greeted: false,
            failure: None,
            streams: BTreeMap::new(),
            last_stream: 0,
            violations: 0,
            partial: Vec::new(),
            events: VecDeque::new(),
            outgoing,
        }
    }

    pub fn next_event(&mut self) -> Option<Event> {
        self.events.pop_front()
    }

    /// Bytes to write to the transport.
    pub fn outgoing(&self) -> &[u8] {
        self.outgoing.pending()
    }

    /// The transport has taken the first `n` bytes of [`Connection::outgoing`].
    pub fn sent(&mut self, n: usize) {
        self.outgoing.sent(n);
    }

    pub fn is_open(&self, stream: StreamId) -> bool {
        self.streams.contains_key(&stream)
    }

    // --- the engine's side ---

    pub fn open(&mut self, request: &Request) -> Result<StreamId, OpenError> {
        if self.side != Side::Engine {
            return Err(OpenError::NotEngine);
        }
        if self.streams.len() >= MAX_STREAMS {
            return Err(OpenError::TooManyStreams);
        }
        if self.outgoing.len() >= OUTGOING_HIGH_WATER {
            return Err(OpenError::Congested);
        }
        let payload = postcard::to_stdvec(request)?;
        if payload.len() > MAX_FRAME_BYTES {
            return Err(OpenError::TooLarge(payload.len()));
        }
        self.last_stream = self.last_stream.checked_add(1).ok_or(OpenError::NoMoreIds)?;
        let id = StreamId::from_raw(self.last_stream);
        self.streams.insert(id, Stream::new(request, self.side));
        self.write(id, FrameKind::Open, &payload);
        Ok(id)
    }

    pub fn signal(&mut self, stream: StreamId, signal: i32) {
        self.tell(stream, FrameKind::Signal, &signal.to_le_bytes());
    }

    pub fn resize(&mut self, stream: StreamId, size: TerminalSize) {
        let [r0, r1] = size.rows.to_le_bytes();
        let [c0, c1] = size.columns.to_le_bytes();
        self.tell(stream, FrameKind::Resize, &[r0, r1, c0, c1]);
    }

    /// Closes the stream on this side at once; the warden sees [`Event::Cancelled`].
    pub fn cancel(&mut self, stream: StreamId) {
        self.tell(stream, FrameKind::Cancel, &[]);
        self.streams.remove(&stream);
    }

    /// Only the engine tells, and only about streams that are still open.
    fn tell(&mut self, stream: StreamId, kind: FrameKind, payload: &[u8]) {
        if self.side == Side::Engine && self.is_open(stream) {
            self.write(stream, kind, payload);
        }
    }

    // --- the warden's side ---

    /// Answers on a stream; the last of its replies closes it. Nothing happens on a stream that is closed already. A reply that is too large for a frame, or a
    /// listing that has become too long, becomes an error of [`ErrorCode::Limit`].
    pub fn reply(&mut self, stream: StreamId, reply: &Reply) {
        if self.side != Side::Warden {
            return;
        }
        let Some(state) = self.streams.get_mut(&stream) else {
            return;
        };
        let mut refusal = None;
        let payload = encode_reply(reply).filter(|payload| {
            !matches!(reply, Reply::Entries(_)) || state.list_grows(payload.len()).is_ok()
        });
        let payload = payload.or_else(|| {
            let error = RemoteError {
                code: ErrorCode::Limit,
                errno: None,
                message: "the answer is longer than the connection to the warden allows".into(),
            };
            encode_reply(refusal.insert(Reply::Error(error)))
        });
        let said = refusal.as_ref().unwrap_or(reply);
        // A reply out of turn is our own mistake: it is sent for the engine to complain about, and
        // closes nothing here.
        let closes = matches!(state.replied(said), Ok(After::Closes));
        self.write(stream, FrameKind::Reply, &payload.unwrap_or_default());
        if closes {
            self.streams.remove(&stream);
        }
    }

    // --- both sides ---

    /// How many bytes [`Connection::send`] would take now. None while too much is unsent, so that
    /// a peer that does not read cannot make us hold more.
    pub fn sendable(&self, stream: StreamId) -> usize {
        let credit = self.streams.get(&stream).map_or(0, |state| state.sendable(self.side));
        credit.min(self.room())
    }

    /// How many bytes may still wait to be sent, whatever the stream.
    pub fn room(&self) -> usize {
        OUTGOING_HIGH_WATER.saturating_sub(self.outgoing.len())
    }

    /// Whether data could still be sent, now or once there is credit.
    pub fn accepts_data(&self, stream: StreamId) -> bool {
        self.streams.get(&stream).is_some_and(|state| !state.has_ended())
    }

    /// Queues as much as the peer's credit and our own buffer allow, and says how much that was.
    pub fn send(&mut self, stream: StreamId, channel: Channel, bytes: &[u8]) -> usize {
        let taken = bytes.len().min(self.sendable(stream));
        let Some(state) = self.streams.get_mut(&stream) else {
            return 0;
        };
        if !state.may_carry(self.side, channel) {
            return 0;
        }
        state.data_sent(taken);
        let kind = match channel {
            Channel::Stdout => FrameKind::Stdout,
            Channel::Stderr => FrameKind::Stderr,
            Channel::Bytes => FrameKind::Bytes,
        };
        for piece in bytes.get(..taken).unwrap_or_default().chunks(MAX_DATA_BYTES) {
            self.write(stream, kind, piece);
        }
        taken
    }

    /// No more data from us: the end of standard input or of a file's content, or our half of a
    /// tunnel.
    pub fn end(&mut self, stream: StreamId) {
        let Some(state) = self.streams.get_mut(&stream) else {
            return;
        };
        if state.end() {
            let over = state.is_over();
            self.write(stream, FrameKind::End, &[]);
            if over {
                self.streams.remove(&stream);
            }
        }
    }

    /// We have used `n` received bytes of the stream: the peer may send as many again. Told to the
    /// peer in steps.
    pub fn consumed(&mut self, stream: StreamId, n: usize) {
        let credit = self.streams.get_mut(&stream).and_then(|state| state.consumed(n));
        if let Some(credit) = credit {
            self.write(stream, FrameKind::Credit, &credit.to_le_bytes());
        }
    }

    fn write(&mut self, stream: StreamId, kind: FrameKind, payload: &[u8]) {
        write_frame(self.outgoing.queue(), stream, kind, payload);
    }
}

/// None if it does not fit into a frame.
fn encode_reply(reply: &Reply) -> Option<Vec<u8>> {
    let payload = match reply {
        Reply::Error(error) if error.message.len() > MAX_MESSAGE_BYTES => {
            let mut error = error.clone();
            cut_text(&mut error.message, MAX_MESSAGE_BYTES);
            postcard::to_stdvec(&Reply::Error(error))
        }
        _ => postcard::to_stdvec(reply),
    };
    payload.ok().filter(|payload| payload.len() <= MAX_FRAME_BYTES)
}
