//! From the peer's bytes to events.
//!
//! Every frame is cut out by its length first and judged afterwards, so a bad one costs its stream
//! and the next frame is still found.

use ringwall_spec::TerminalSize;
use serde::de::DeserializeOwned;

use super::stream::{After, Stream};
use super::{Channel, Connection, Event, Side};
use crate::bound::bound_reply;
use crate::error::{ProtocolError, StreamError, Violation};
use crate::frame::{FrameKind, HEADER_BYTES, Header, StreamId, read_hello};
use crate::limits::{MAX_DATA_BYTES, MAX_STREAMS, MAX_VIOLATIONS};
use crate::message::{Reply, Request};

/// A greeting is tiny; a longer first frame is not one, and is not waited for.
const MAX_HELLO_BYTES: usize = 64;

/// The room for a frame in pieces is kept if it is no larger.
const KEPT_PARTIAL_BYTES: usize = HEADER_BYTES + MAX_DATA_BYTES;

impl Connection {
    /// Takes bytes from the transport, in whatever pieces they came. An error is final: close the
    /// transport. Events of the frames before it are still there.
    pub fn receive(&mut self, bytes: &[u8]) -> Result<(), ProtocolError> {
        if let Some(failure) = &self.failure {
            return Err(failure.clone());
        }
        self.take_frames(bytes).inspect_err(|failure| {
            self.failure = Some(failure.clone());
            self.partial = Vec::new();
        })
    }

    fn take_frames(&mut self, mut bytes: &[u8]) -> Result<(), ProtocolError> {
        while !bytes.is_empty() {
            if !self.partial.is_empty() {
                bytes = self.complete_partial(bytes)?;
                continue;
            }
            match self.header(bytes)? {
                Some(header) if header.frame_bytes() <= bytes.len() => {
                    let (frame, rest) = bytes.split_at(header.frame_bytes());
                    self.take_frame(&header, frame)?;
                    bytes = rest;
                }
                _ => {
                    self.partial.extend_from_slice(bytes);
                    return Ok(());
                }
            }
        }
        Ok(())
    }

    /// Adds no more than the current frame lacks, and gives back the rest. Memory grows with what
    /// has come, never with what a header promises.
    fn complete_partial<'a>(&mut self, bytes: &'a [u8]) -> Result<&'a [u8], ProtocolError> {
        let whole = self.header(&self.partial)?.map_or(HEADER_BYTES, |h| h.frame_bytes());
        let lacking = whole.saturating_sub(self.partial.len()).min(bytes.len());
        let (piece, rest) = bytes.split_at(lacking);
        self.partial.extend_from_slice(piece);
        if let Some(header) = self.header(&self.partial)?
            && header.frame_bytes() == self.partial.len()
        {
            let mut frame = std::mem::take(&mut self.partial);
            self.take_frame(&header, &frame)?;
            if frame.capacity() <= KEPT_PARTIAL_BYTES {
                frame.clear();
                self.partial = frame;
            }
        }
        Ok(rest)
    }

    fn header(&self, bytes: &[u8]) -> Result<Option<Header>, ProtocolError> {
        if self.greeted {
            return Header::parse(bytes);
        }
        // Before the greeting, nonsense means that this is no peer of ours.
        let header = Header::parse(bytes).map_err(|_| ProtocolError::NoHello)?;
        match header {
            Some(h) if h.kind != FrameKind::Hello || h.length > MAX_HELLO_BYTES => {
                Err(ProtocolError::NoHello)
            }
            header => Ok(header),
        }
    }

    fn take_frame(&mut self, header: &Header, frame: &[u8]) -> Result<(), ProtocolError> {
        let payload = frame.get(HEADER_BYTES..).unwrap_or_default();
        if !self.greeted {
            let version = read_hello(header, payload)?;
            self.greeted = true;
            self.events.push_back(Event::Hello { version });
            return Ok(());
        }
        if header.kind == FrameKind::Hello {
            return Err(ProtocolError::SecondHello);
        }
        match self.apply(header, payload) {
            Ok(()) => Ok(()),
            Err(violation) => self.break_stream(header.stream, violation),
        }
    }

    fn break_stream(&mut self, id: StreamId, violation: Violation) -> Result<(), ProtocolError> {
        self.streams.remove(&id);
        self.events.push_back(Event::Broken { stream: id, error: StreamError::ByPeer(violation) });
        self.violations += 1;
        if self.violations > MAX_VIOLATIONS {
            return Err(ProtocolError::TooManyViolations);
        }
        self.write(id, FrameKind::Reset, &[violation.code()]);
        Ok(())
    }

    fn apply(&mut self, header: &Header, payload: &[u8]) -> Result<(), Violation> {
        let id = header.stream;
        if !may_send(self.side.other(), header.kind) {
            return Err(Violation::WrongDirection);
        }
        match header.kind {
            FrameKind::Open => self.take_open(id, payload),
            FrameKind::Reset => self.take_reset(id, payload),
            _ if self.is_open(id) => self.take_on_open_stream(id, header.kind, payload),
            _ if id != StreamId::CONNECTION && id.raw() <= self.last_stream => Ok(()),
            _ => Err(Violation::UnknownStream),
        }
    }

    fn take_open(&mut self, id: StreamId, payload: &[u8]) -> Result<(), Violation> {
        if id.raw() <= self.last_stream {
            return Err(Violation::OutOfOrder);
        }
        self.last_stream = id.raw();
        if self.streams.len() >= MAX_STREAMS {
            return Err(Violation::TooManyStreams);
        }
        let request: Request = decode(payload)?;
        self.streams.insert(id, Stream::new(&request, self.side));
        self.events.push_back(Event::Opened { stream: id, request });
        Ok(())
    }

    /// Never answered, not even a malformed one: two sides must not complain to each other forever.
    fn take_reset(&mut self, id: StreamId, payload: &[u8]) -> Result<(), Violation> {
        if self.streams.remove(&id).is_some() {
            let violation = match payload {
                [code] => Violation::from_code(*code),
                _ => None,
            };
            let error =
                violation.map_or(StreamError::ByPeer(Violation::Malformed), StreamError::ByUs);
            self.events.push_back(Event::Broken { stream: id, error });
        }
        Ok(())
    }

    fn take_on_open_stream(
        &mut self,
        id: StreamId,
        kind: FrameKind,
        payload: &[u8],
    ) -> Result<(), Violation> {
        match kind {
            FrameKind::Reply => self.take_reply(id, payload),
            FrameKind::Stdout => self.take_data(id, Channel::Stdout, payload),
            FrameKind::Stderr => self.take_data(id, Channel::Stderr, payload),
            FrameKind::Bytes => self.take_data(id, Channel::Bytes, payload),
            FrameKind::End => self.take_end(id, payload),
            FrameKind::Credit => {
                let credit = usize::try_from(u32::from_le_bytes(exactly(payload)?));
                self.stream(id)?.credit_received(credit.unwrap_or(usize::MAX))
            }
            FrameKind::Signal => {
                let signal = i32::from_le_bytes(exactly(payload)?);
                self.events.push_back(Event::Signal { stream: id, signal });
                Ok(())
            }
            FrameKind::Resize => {
                let [r0, r1, c0, c1] = exactly(payload)?;
                let size = TerminalSize {
                    rows: u16::from_le_bytes([r0, r1]),
                    columns: u16::from_le_bytes([c0, c1]),
                };
                self.events.push_back(Event::Resize { stream: id, size });
                Ok(())
            }
            FrameKind::Cancel => {
                let [] = exactly(payload)?;
                self.streams.remove(&id);
                self.events.push_back(Event::Cancelled { stream: id });
                Ok(())
            }
            FrameKind::Hello | FrameKind::Open | FrameKind::Reset => Err(Violation::OutOfOrder),
        }
    }

    fn take_data(
        &mut self,
        id: StreamId,
        channel: Channel,
        payload: &[u8],
    ) -> Result<(), Violation> {
        // Empty frames would cost the sender no credit and us an event each.
        if payload.is_empty() || payload.len() > MAX_DATA_BYTES {
            return Err(Violation::BadDataSize);
        }
        let from = self.side.other();
        self.stream(id)?.data_received(from, channel, payload.len())?;
        self.events.push_back(Event::Data { stream: id, channel, bytes: payload.to_vec() });
        Ok(())
    }

    fn take_end(&mut self, id: StreamId, payload: &[u8]) -> Result<(), Violation> {
        let [] = exactly(payload)?;
        let stream = self.stream(id)?;
        stream.end_received()?;
        if stream.is_over() {
            self.streams.remove(&id);
        }
        self.events.push_back(Event::End { stream: id });
        Ok(())
    }

    fn take_reply(&mut self, id: StreamId, payload: &[u8]) -> Result<(), Violation> {
        let reply: Reply = decode(payload)?;
        let stream = self.stream(id)?;
        let after = stream.replied(&reply)?;
        if matches!(reply, Reply::Entries(_)) {
            stream.list_grows(payload.len())?;
        }
        let reply = bound_reply(reply)?;
        if after == After::Closes {
            self.streams.remove(&id);
        }
        self.events.push_back(Event::Reply { stream: id, reply });
        Ok(())
    }

    fn stream(&mut self, id: StreamId) -> Result<&mut Stream, Violation> {
        self.streams.get_mut(&id).ok_or(Violation::UnknownStream)
    }
}

fn may_send(side: Side, kind: FrameKind) -> bool {
    match kind {
        FrameKind::Open | FrameKind::Signal | FrameKind::Resize | FrameKind::Cancel => {
            side == Side::Engine
        }
        FrameKind::Reply | FrameKind::Stdout | FrameKind::Stderr => side == Side::Warden,
        FrameKind::Hello
        | FrameKind::Bytes
        | FrameKind::End
        | FrameKind::Credit
        | FrameKind::Reset => true,
    }
}

fn exactly<const N: usize>(payload: &[u8]) -> Result<[u8; N], Violation> {
    payload.try_into().map_err(|_| Violation::Malformed)
}

/// The whole payload must be the message; a rest would be a way to smuggle.
fn decode<T: DeserializeOwned>(payload: &[u8]) -> Result<T, Violation> {
    match postcard::take_from_bytes(payload) {
        Ok((message, [])) => Ok(message),
        _ => Err(Violation::Malformed),
    }
}
