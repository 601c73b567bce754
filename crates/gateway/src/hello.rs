//! The first bytes of a tunnel: a TLS greeting with the right name in it, or nothing goes on.

use std::io;

use rustls::server::{Accepted, Acceptor};
use thiserror::Error;
use tokio::io::{AsyncRead, AsyncReadExt};

use crate::host::Host;

/// Greetings with post-quantum key shares have about two kilobytes.
const LONGEST_HELLO: usize = 32 * 1024;
const ENCRYPTED_CLIENT_HELLO: u16 = 0xfe0d;

#[derive(Debug, Error)]
pub(crate) enum BadHello {
    #[error("the tunnel's first bytes are no TLS")]
    NotTls,
    #[error("the TLS greeting is too long")]
    TooLong,
    #[error("the TLS greeting names {0:?} instead of the tunnel's host")]
    WrongName(String),
    #[error("the TLS greeting names no host")]
    NoName,
    #[error("the TLS greeting hides its real host (ECH), and this tunnel is not opened")]
    Hidden,
    #[error("the TLS greeting ended early: {0}")]
    Read(#[from] io::Error),
}

/// A greeting that was read, with its bytes for those who pass it on.
pub(crate) struct Hello {
    pub(crate) accepted: Accepted,
    pub(crate) bytes: Vec<u8>,
}

pub(crate) async fn read_hello(stream: &mut (impl AsyncRead + Unpin)) -> Result<Hello, BadHello> {
    let mut acceptor = Acceptor::default();
    let mut bytes = Vec::new();
    let mut buffer = vec![0; 4096];
    loop {
        let count = stream.read(&mut buffer).await?;
        let Some(fresh) = buffer.get(..count).filter(|fresh| !fresh.is_empty()) else {
            return Err(io::Error::from(io::ErrorKind::UnexpectedEof).into());
        };
        bytes.extend_from_slice(fresh);
        // A handshake record of TLS 1.x: nothing else is given to the TLS library.
        if bytes[0] != 0x16 || bytes.get(1).is_some_and(|major| *major != 3) {
            return Err(BadHello::NotTls);
        }
        if bytes.len() > LONGEST_HELLO {
            return Err(BadHello::TooLong);
        }
        let mut rest = fresh;
        while !rest.is_empty() {
            acceptor.read_tls(&mut rest)?;
        }
        match acceptor.accept() {
            Ok(Some(accepted)) => return Ok(Hello { accepted, bytes }),
            Ok(None) => {}
            Err(_) => return Err(BadHello::NotTls),
        }
    }
}

/// The greeting must name the host that the decision was about. Clients name no address.
pub(crate) fn check_name(hello: &Hello, host: &Host) -> Result<(), BadHello> {
    match (hello.accepted.client_hello().server_name(), host) {
        (Some(name), host) if Host::parse(name).as_ref() == Ok(host) => Ok(()),
        (Some(name), _) => Err(BadHello::WrongName(crate::event::bounded(name))),
        (None, Host::Address(_)) => Ok(()),
        (None, Host::Name(_)) => Err(BadHello::NoName),
    }
}

/// Where TLS stays closed, the name must be there for all to see.
pub(crate) fn check_open(hello: &Hello) -> Result<(), BadHello> {
    match extensions(&handshake_bytes(&hello.bytes)) {
        Some(kinds) if !kinds.contains(&ENCRYPTED_CLIENT_HELLO) => Ok(()),
        _ => Err(BadHello::Hidden),
    }
}

/// The handshake bytes without the borders of records.
fn handshake_bytes(records: &[u8]) -> Vec<u8> {
    let mut rest = records;
    let mut message = Vec::new();
    while let [0x16, _, _, high, low, body @ ..] = rest {
        let length = usize::from(u16::from_be_bytes([*high, *low])).min(body.len());
        message.extend_from_slice(&body[..length]);
        rest = &body[length..];
    }
    message
}

/// The kinds of extensions of a client's greeting.
pub fn extensions(message: &[u8]) -> Option<Vec<u16>> {
    // Type and length of the message, version, random.
    let mut rest = message.get(4 + 2 + 32..)?;
    skip(&mut rest, 1)?; // session
    skip(&mut rest, 2)?; // cipher suites
    skip(&mut rest, 1)?; // compression
    let mut list = skip(&mut rest, 2)?;
    let mut kinds = Vec::new();
    while !list.is_empty() {
        let (kind, after) = list.split_first_chunk::<2>()?;
        list = after;
        kinds.push(u16::from_be_bytes(*kind));
        skip(&mut list, 2)?;
    }
    Some(kinds)
}

/// Takes a vector with a length of `width` bytes off the front.
fn skip<'a>(rest: &mut &'a [u8], width: usize) -> Option<&'a [u8]> {
    let (length, body) = rest.split_at_checked(width)?;
    let length = length.iter().fold(0, |sum, byte| sum << 8 | usize::from(*byte));
    let (taken, after) = body.split_at_checked(length)?;
    *rest = after;
    Some(taken)
}
