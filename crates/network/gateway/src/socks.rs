//! The SOCKS5 door: names only. Who sends an address has resolved a name past the gateway.

use std::sync::Arc;
use std::time::Duration;

use ringwall_spec::{BadHost, Host};
use thiserror::Error;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

use crate::early::Early;
use crate::event::{Door, Verdict};
use crate::exchange::Visit;
use crate::forward::decide_and_record;
use crate::tunnel;

const VERSION: u8 = 5;
const PATIENCE: Duration = Duration::from_secs(15);
/// A greeting has at most 257 bytes, a request with a name 262.
const LONGEST: usize = 512;

#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum BadSocks {
    #[error("not SOCKS version 5")]
    Version,
    #[error("the client offers no way in without a password")]
    Method,
    #[error("only the CONNECT command is served")]
    Command,
    #[error("an address instead of a name; let the proxy resolve (socks5h)")]
    Address,
    #[error(transparent)]
    Host(#[from] BadHost),
    #[error("the request broke off")]
    Broken,
}

impl BadSocks {
    /// The reply code of RFC 1928.
    fn code(&self) -> u8 {
        match self {
            Self::Command => 7,
            Self::Address => 8,
            Self::Host(_) => 2,
            Self::Version | Self::Method | Self::Broken => 1,
        }
    }
}

/// Reads the greeting; says how long it was, or that more is needed.
pub fn parse_greeting(bytes: &[u8]) -> Result<Option<usize>, BadSocks> {
    let [version, rest @ ..] = bytes else {
        return Ok(None);
    };
    if *version != VERSION {
        return Err(BadSocks::Version);
    }
    let [count, rest @ ..] = rest else {
        return Ok(None);
    };
    let count = usize::from(*count);
    match rest.get(..count) {
        None => Ok(None),
        Some(methods) if methods.contains(&0) => Ok(Some(2 + count)),
        Some(_) => Err(BadSocks::Method),
    }
}

/// Reads the request; gives host, port and length, or says that more is needed.
pub fn parse_request(bytes: &[u8]) -> Result<Option<(Host, u16, usize)>, BadSocks> {
    let [version, command, _reserved, kind, rest @ ..] = bytes else {
        return Ok(None);
    };
    if *version != VERSION {
        return Err(BadSocks::Version);
    }
    if *command != 1 {
        return Err(BadSocks::Command);
    }
    if *kind != 3 {
        return Err(BadSocks::Address);
    }
    let [length, rest @ ..] = rest else {
        return Ok(None);
    };
    let length = usize::from(*length);
    let Some((name, rest)) = rest.split_at_checked(length) else {
        return Ok(None);
    };
    let [high, low, ..] = rest else {
        return Ok(None);
    };
    let name = std::str::from_utf8(name).map_err(|_| BadHost::Byte)?;
    // An address written as a name is an address still.
    let Host::Name(name) = Host::parse(name)? else {
        return Err(BadSocks::Address);
    };
    let port = u16::from_be_bytes([*high, *low]);
    if port == 0 {
        return Err(BadHost::Authority.into());
    }
    Ok(Some((Host::Name(name), port, 7 + length)))
}

/// Serves one connection of which nothing has been read yet.
pub(crate) async fn serve<S>(visit: Arc<Visit>, mut io: S)
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let asked = tokio::time::timeout(PATIENCE, converse(&mut io)).await;
    let mut stream = visit.task.stream(Door::Socks);
    let (host, port, early) = match asked.unwrap_or(Err(BadSocks::Broken)) {
        Ok(asked) => asked,
        Err(reason) => {
            stream.note(Verdict::Refused, &reason);
            return answer(&mut io, reason.code()).await;
        }
    };
    stream = stream.to(&host, port);
    match decide_and_record(&visit, &host, port, &mut stream).await {
        Ok((way, held)) => {
            answer(&mut io, 0).await;
            let io = Early { front: early, io };
            tunnel::serve(visit, way, held, stream, io).await;
        }
        Err(problem) => {
            stream.note(problem.verdict(), &problem);
            let code = if problem.verdict() == Verdict::Failed { 4 } else { 2 };
            answer(&mut io, code).await;
        }
    }
}

/// Greeting and request; also what the client sent after them in good hope.
async fn converse<S>(io: &mut S) -> Result<(Host, u16, Vec<u8>), BadSocks>
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let mut bytes = Vec::new();
    let length = loop {
        if let Some(length) = parse_greeting(&bytes)? {
            break length;
        }
        read_more(io, &mut bytes).await?;
    };
    bytes.drain(..length);
    io.write_all(&[VERSION, 0]).await.map_err(|_| BadSocks::Broken)?;
    loop {
        if let Some((host, port, length)) = parse_request(&bytes)? {
            bytes.drain(..length);
            return Ok((host, port, bytes));
        }
        read_more(io, &mut bytes).await?;
    }
}

async fn read_more(io: &mut (impl AsyncRead + Unpin), bytes: &mut Vec<u8>) -> Result<(), BadSocks> {
    let mut buffer = [0; 256];
    let room = LONGEST.saturating_sub(bytes.len()).min(buffer.len());
    let count = io.read(&mut buffer[..room]).await.map_err(|_| BadSocks::Broken)?;
    if count == 0 {
        return Err(BadSocks::Broken);
    }
    bytes.extend_from_slice(&buffer[..count]);
    Ok(())
}

async fn answer(io: &mut (impl AsyncWrite + Unpin), code: u8) {
    // The client may be gone; then there is nobody to tell.
    let _ = io.write_all(&[VERSION, code, 0, 1, 0, 0, 0, 0, 0, 0]).await;
    let _ = io.flush().await;
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(name: &[u8], port: u16) -> Vec<u8> {
        let mut bytes = vec![5, 1, 0, 3, u8::try_from(name.len()).unwrap()];
        bytes.extend_from_slice(name);
        bytes.extend_from_slice(&port.to_be_bytes());
        bytes
    }

    #[test]
    fn names_are_taken_and_nothing_else() {
        let whole = request(b"Example.com", 443);
        let host = Host::Name("example.com".into());
        assert_eq!(parse_request(&whole), Ok(Some((host, 443, whole.len()))));
        for cut in 0..whole.len() {
            assert_eq!(parse_request(&whole[..cut]), Ok(None), "{cut}");
        }
        assert_eq!(parse_request(&[5, 1, 0, 1, 127, 0, 0, 1, 0, 80]), Err(BadSocks::Address));
        assert_eq!(parse_request(&[5, 1, 0, 4, 0]), Err(BadSocks::Address));
        assert_eq!(parse_request(&request(b"127.0.0.1", 80)), Err(BadSocks::Address));
        assert_eq!(parse_request(&request(b"[::1]", 80)), Err(BadSocks::Address));
        assert_eq!(parse_request(&[5, 2, 0, 3, 1]), Err(BadSocks::Command));
        assert_eq!(parse_request(&[4, 1, 0, 3, 1]), Err(BadSocks::Version));
        for name in [&b"a.example\0.evil.net"[..], b"a\nb", b"\xff", b"", b"2130706433", b"a b"] {
            assert!(
                matches!(parse_request(&request(name, 80)), Err(BadSocks::Host(_))),
                "{name:?}"
            );
        }
        assert!(parse_request(&request(b"a.example", 0)).is_err());
    }

    #[test]
    fn a_client_must_come_without_a_password() {
        assert_eq!(parse_greeting(&[5, 2, 2, 0]), Ok(Some(4)));
        assert_eq!(parse_greeting(&[5, 1, 2]), Err(BadSocks::Method));
        assert_eq!(parse_greeting(&[5, 0]), Err(BadSocks::Method));
        assert_eq!(parse_greeting(&[5, 2, 0]), Ok(None));
        assert_eq!(parse_greeting(&[4]), Err(BadSocks::Version));
    }
}
