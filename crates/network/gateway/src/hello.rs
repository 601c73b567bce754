//! The first bytes of a tunnel: a TLS greeting with the right name in it, or nothing goes on.

use std::io;

use ringwall_spec::Host;
use rustls::server::{Accepted, Acceptor};
use thiserror::Error;
use tokio::io::{AsyncRead, AsyncReadExt};

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
    if shows_its_name(&hello.bytes) { Ok(()) } else { Err(BadHello::Hidden) }
}

fn shows_its_name(records: &[u8]) -> bool {
    extensions(&handshake_bytes(records))
        .is_some_and(|kinds| !kinds.contains(&ENCRYPTED_CLIENT_HELLO))
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

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;

    fn greeting(name: &'static str) -> Vec<u8> {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = rustls::ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_root_certificates(rustls::RootCertStore::empty())
            .with_no_client_auth();
        let name = rustls::pki_types::ServerName::try_from(name).unwrap();
        let mut client = rustls::ClientConnection::new(Arc::new(config), name).unwrap();
        let mut bytes = Vec::new();
        client.write_tls(&mut bytes).unwrap();
        bytes
    }

    /// The same greeting with one more extension, all lengths mended.
    fn with_extension(bytes: &[u8], kind: u16) -> Vec<u8> {
        let mut message = handshake_bytes(bytes);
        let extra = [&kind.to_be_bytes()[..], &[0, 1, 0]].concat();
        let session = 4 + 2 + 32;
        let suites = session + 1 + usize::from(message[session]);
        let length = |at: usize, m: &[u8]| usize::from(u16::from_be_bytes([m[at], m[at + 1]]));
        let compression = suites + 2 + length(suites, &message);
        let list = compression + 1 + usize::from(message[compression]);
        let longer = u16::try_from(length(list, &message) + extra.len()).unwrap();
        message[list..list + 2].copy_from_slice(&longer.to_be_bytes());
        message.extend_from_slice(&extra);
        let size = u32::try_from(message.len() - 4).unwrap().to_be_bytes();
        message[1..4].copy_from_slice(&size[1..]);
        let size = u16::try_from(message.len()).unwrap().to_be_bytes();
        [&bytes[..3], &size[..], &message].concat()
    }

    #[tokio::test]
    async fn a_greeting_is_read_in_pieces_and_its_name_checked() {
        let host = Host::parse("api.example.com").unwrap();
        let bytes = greeting("api.example.com");
        let (mut ours, mut theirs) = tokio::io::duplex(7);
        let sent = bytes.clone();
        tokio::spawn(async move { tokio::io::AsyncWriteExt::write_all(&mut ours, &sent).await });
        let hello = read_hello(&mut theirs).await.ok().unwrap();
        assert_eq!(hello.bytes, bytes);
        assert!(check_name(&hello, &host).is_ok() && check_open(&hello).is_ok());
        let other = Host::parse("other.example.com").unwrap();
        assert!(matches!(check_name(&hello, &other), Err(BadHello::WrongName(_))));
        let nameless = read_hello(&mut greeting("127.0.0.1").as_slice()).await.ok().unwrap();
        assert!(matches!(check_name(&nameless, &host), Err(BadHello::NoName)));
    }

    #[test]
    fn a_hidden_name_is_seen() {
        let open = greeting("api.example.com");
        assert!(shows_its_name(&open));
        assert!(shows_its_name(&with_extension(&open, 0x3a3a)));
        let hidden = with_extension(&open, ENCRYPTED_CLIENT_HELLO);
        assert!(!shows_its_name(&hidden));
        let message = handshake_bytes(&hidden);
        for cut in 0..message.len() {
            assert_eq!(extensions(&message[..cut]), None, "{cut}");
        }
    }
}
