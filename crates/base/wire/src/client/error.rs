//! Why a call to a warden did not give what was asked for.

use std::io;

use crate::error::{OpenError, ProtocolError, StreamError};
use crate::message::RemoteError;

#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    #[error("the warden did not answer in time")]
    TimedOut,
    #[error("the connection to the warden is gone; its ring has ended or was killed")]
    Disconnected,
    #[error("the warden does not follow the protocol and was disconnected")]
    Protocol(#[source] ProtocolError),
    #[error("the exchange with the warden was broken off")]
    Stream(#[source] StreamError),
    #[error("the request could not be sent")]
    Open(#[from] OpenError),
    /// The warden's own answer: it refused or failed.
    #[error(transparent)]
    Remote(RemoteError),
    #[error("the local end of the transfer failed")]
    Local(#[source] io::Error),
    #[error("the file is larger than the {max_bytes} bytes asked for at most")]
    FileTooLarge { max_bytes: u64 },
    #[error("the exchange with the warden has ended already")]
    Ended,
    #[error("standard input of the program is closed")]
    InputClosed,
}

impl ClientError {
    /// For callers that speak `Read` and `Write`.
    pub(crate) fn into_io(self) -> io::Error {
        let kind = match &self {
            ClientError::TimedOut => io::ErrorKind::TimedOut,
            ClientError::Disconnected => io::ErrorKind::ConnectionAborted,
            ClientError::InputClosed => io::ErrorKind::BrokenPipe,
            _ => io::ErrorKind::Other,
        };
        io::Error::new(kind, self)
    }
}
