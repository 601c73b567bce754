//! What can be wrong with a peer: one stream's fault, or the whole connection's.

use crate::limits::{MAX_FRAME_BYTES, MAX_STREAMS, MAX_VIOLATIONS, VERSION};

/// The framing is lost or the peer cannot be spoken to: close the connection.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ProtocolError {
    #[error(
        "the peer speaks version {theirs} of the wire protocol and this side {VERSION}; use a warden and an engine of the same release"
    )]
    Version { theirs: u16 },
    #[error(
        "the peer's first frame is no greeting; something other than a Ringwall peer is on this connection"
    )]
    NoHello,
    #[error("the peer's greeting is malformed")]
    MalformedHello,
    #[error("the peer greeted twice")]
    SecondHello,
    #[error("unknown frame kind {0}")]
    UnknownKind(u8),
    #[error("a frame of {0} bytes is larger than the most allowed, {MAX_FRAME_BYTES}")]
    Oversized(u32),
    #[error("the peer broke the protocol on more than {MAX_VIOLATIONS} streams")]
    TooManyViolations,
}

/// How a stream ended without a reply.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, thiserror::Error)]
pub enum StreamError {
    /// Seen here; the peer has been told.
    #[error("the peer broke the protocol: {0}")]
    ByPeer(Violation),
    /// The peer's complaint about us.
    #[error("the peer closed the stream: {0}")]
    ByUs(Violation),
}

/// A rule of the protocol that one stream broke.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, thiserror::Error)]
pub enum Violation {
    #[error("a frame's content cannot be decoded")]
    Malformed,
    #[error("a frame for a stream that was never opened")]
    UnknownStream,
    #[error("a stream was opened twice or out of order")]
    OutOfOrder,
    #[error("more than {MAX_STREAMS} streams at once")]
    TooManyStreams,
    #[error("data beyond the credit given")]
    PastCredit,
    #[error("data after the end of data")]
    AfterEnd,
    #[error("a data frame is empty or larger than allowed")]
    BadDataSize,
    #[error("data on a channel that the request does not have")]
    WrongChannel,
    #[error("more credit than was used")]
    BadCredit,
    #[error("a frame that only the other side may send")]
    WrongDirection,
    #[error("a reply that the request does not have, or out of turn")]
    UnexpectedReply,
    #[error("a listing longer than allowed")]
    ListTooLong,
}

/// Why no stream could be opened.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum OpenError {
    #[error("{MAX_STREAMS} streams are open already; wait for one to end")]
    TooManyStreams,
    #[error(
        "the request takes {0} bytes, more than the {MAX_FRAME_BYTES} allowed; give fewer or shorter arguments and environment entries"
    )]
    TooLarge(usize),
    #[error("the warden does not read: too much is waiting to be sent to it; wait for it to go")]
    Congested,
    #[error("only the engine's side opens streams")]
    NotEngine,
    #[error("every stream id of this connection has been used; open a new connection")]
    NoMoreIds,
    #[error("the request cannot be encoded")]
    Encode(#[from] postcard::Error),
}

impl Violation {
    /// The byte that stands for it in a reset frame; also its place in this list.
    const CODES: [Violation; 12] = [
        Violation::Malformed,
        Violation::UnknownStream,
        Violation::OutOfOrder,
        Violation::TooManyStreams,
        Violation::PastCredit,
        Violation::AfterEnd,
        Violation::BadDataSize,
        Violation::WrongChannel,
        Violation::BadCredit,
        Violation::WrongDirection,
        Violation::UnexpectedReply,
        Violation::ListTooLong,
    ];

    pub(crate) fn code(self) -> u8 {
        self as u8
    }

    pub(crate) fn from_code(code: u8) -> Option<Self> {
        Self::CODES.get(usize::from(code)).copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_violation_has_a_code_that_reads_back() {
        for violation in Violation::CODES {
            assert_eq!(Violation::from_code(violation.code()), Some(violation));
        }
        assert_eq!(Violation::from_code(12), None);
    }
}
