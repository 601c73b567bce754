//! The frame: a fixed header of nine bytes, then a bounded payload.
//!
//! ```text
//! 0        4        8    9
//! | length | stream | kind | payload of `length` bytes
//! ```
//!
//! Integers are little-endian. Nothing here knows what a stream is.

use crate::error::ProtocolError;
use crate::limits::{MAX_FRAME_BYTES, VERSION};

pub(crate) const HEADER_BYTES: usize = 9;

/// Starts every greeting, so that a stray program on the socket is named as such.
const MAGIC: [u8; 4] = *b"RWWP";

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct StreamId(u32);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FrameKind {
    Hello = 1,
    Open = 2,
    Reply = 3,
    Stdout = 4,
    Stderr = 5,
    Bytes = 6,
    End = 7,
    Credit = 8,
    Signal = 9,
    Resize = 10,
    Cancel = 11,
    Reset = 12,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Header {
    pub(crate) length: usize,
    pub(crate) stream: StreamId,
    pub(crate) kind: FrameKind,
}

// === impl StreamId ===

impl StreamId {
    /// Greetings travel on it; no request does.
    pub(crate) const CONNECTION: StreamId = StreamId(0);

    pub fn from_raw(raw: u32) -> Self {
        StreamId(raw)
    }

    pub fn raw(self) -> u32 {
        self.0
    }
}

// === impl FrameKind ===

impl FrameKind {
    fn from_byte(byte: u8) -> Option<Self> {
        Some(match byte {
            1 => FrameKind::Hello,
            2 => FrameKind::Open,
            3 => FrameKind::Reply,
            4 => FrameKind::Stdout,
            5 => FrameKind::Stderr,
            6 => FrameKind::Bytes,
            7 => FrameKind::End,
            8 => FrameKind::Credit,
            9 => FrameKind::Signal,
            10 => FrameKind::Resize,
            11 => FrameKind::Cancel,
            12 => FrameKind::Reset,
            _ => return None,
        })
    }
}

// === impl Header ===

impl Header {
    /// None when there are too few bytes yet. An error means that the framing cannot be trusted
    /// any further.
    pub(crate) fn parse(bytes: &[u8]) -> Result<Option<Header>, ProtocolError> {
        let Some((header, _)) = bytes.split_first_chunk::<HEADER_BYTES>() else {
            return Ok(None);
        };
        let [l0, l1, l2, l3, s0, s1, s2, s3, kind] = *header;
        let kind = FrameKind::from_byte(kind).ok_or(ProtocolError::UnknownKind(kind))?;
        let length = u32::from_le_bytes([l0, l1, l2, l3]);
        let fits = usize::try_from(length).ok().filter(|length| *length <= MAX_FRAME_BYTES);
        let length = fits.ok_or(ProtocolError::Oversized(length))?;
        let stream = StreamId(u32::from_le_bytes([s0, s1, s2, s3]));
        Ok(Some(Header { length, stream, kind }))
    }

    pub(crate) fn frame_bytes(&self) -> usize {
        HEADER_BYTES + self.length
    }
}

/// Appends one frame. The payload must be at most [`MAX_FRAME_BYTES`] long; callers split or
/// refuse before.
pub(crate) fn write_frame(into: &mut Vec<u8>, stream: StreamId, kind: FrameKind, payload: &[u8]) {
    let Ok(length) = u32::try_from(payload.len()) else {
        return;
    };
    into.reserve(HEADER_BYTES + payload.len());
    into.extend_from_slice(&length.to_le_bytes());
    into.extend_from_slice(&stream.raw().to_le_bytes());
    into.push(kind as u8);
    into.extend_from_slice(payload);
}

pub(crate) fn write_hello(into: &mut Vec<u8>) {
    let [m0, m1, m2, m3] = MAGIC;
    let [v0, v1] = VERSION.to_le_bytes();
    write_frame(into, StreamId::CONNECTION, FrameKind::Hello, &[m0, m1, m2, m3, v0, v1]);
}

/// Gives the peer's version, which is ours.
pub(crate) fn read_hello(header: &Header, payload: &[u8]) -> Result<u16, ProtocolError> {
    if header.kind != FrameKind::Hello {
        return Err(ProtocolError::NoHello);
    }
    // Later versions may append to the greeting; the version is always where it is.
    let version = payload.strip_prefix(&MAGIC).and_then(|rest| rest.first_chunk::<2>());
    let theirs = u16::from_le_bytes(*version.ok_or(ProtocolError::MalformedHello)?);
    if theirs != VERSION {
        return Err(ProtocolError::Version { theirs });
    }
    let exact = payload.len() == MAGIC.len() + 2 && header.stream == StreamId::CONNECTION;
    if exact { Ok(theirs) } else { Err(ProtocolError::MalformedHello) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_frame_reads_back_as_it_was_written() {
        let mut bytes = Vec::new();
        write_frame(&mut bytes, StreamId(7), FrameKind::Stderr, b"oops");
        let header = Header::parse(&bytes).unwrap().unwrap();
        assert_eq!(header, Header { length: 4, stream: StreamId(7), kind: FrameKind::Stderr });
        assert_eq!(bytes.len(), header.frame_bytes());
        assert_eq!(&bytes[HEADER_BYTES..], b"oops");
    }

    #[test]
    fn a_header_in_pieces_is_waited_for() {
        assert_eq!(Header::parse(&[0; HEADER_BYTES - 1]), Ok(None));
    }

    #[test]
    fn lengths_and_kinds_outside_the_protocol_lose_the_framing() {
        let header = |length: u32, kind: u8| {
            let mut bytes = length.to_le_bytes().to_vec();
            bytes.extend_from_slice(&[0, 0, 0, 0, kind]);
            Header::parse(&bytes)
        };
        assert!(header(1 << 20, 2).unwrap().is_some());
        assert_eq!(header((1 << 20) + 1, 2), Err(ProtocolError::Oversized((1 << 20) + 1)));
        assert_eq!(header(u32::MAX, 2), Err(ProtocolError::Oversized(u32::MAX)));
        assert_eq!(header(0, 0), Err(ProtocolError::UnknownKind(0)));
        assert_eq!(header(0, 13), Err(ProtocolError::UnknownKind(13)));
    }

    #[test]
    fn every_kind_reads_back_from_its_byte() {
        for byte in 0..=u8::MAX {
            if let Some(kind) = FrameKind::from_byte(byte) {
                assert_eq!(kind as u8, byte);
            }
        }
    }
}
