//! The borders of HTTP/1 messages, read strictly before the server sees a byte: what two parsers
//! could cut at two places is refused.
//!
//! hyper mends some of it (a length beside chunks, equal lengths twice, chunk extensions). Mending
//! is safe only while every later reader mends in the same way, so nothing of it passes here.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use thiserror::Error;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use crate::linger::Linger;

const LONGEST_HEAD: usize = 64 * 1024;
const LONGEST_CHUNK_LINE: usize = 16;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum BadFraming {
    #[error("the request's head is longer than {LONGEST_HEAD} bytes")]
    HeadTooLong,
    #[error("the request's head holds a control byte or a line that does not end in CR LF")]
    Control,
    #[error("a header is folded over two lines")]
    Folded,
    #[error("a header has no name, or a space before its colon")]
    HeaderName,
    #[error("more than one Content-Length, or one that is not a plain number")]
    Length,
    #[error("both Content-Length and Transfer-Encoding")]
    LengthAndEncoding,
    #[error("a Transfer-Encoding other than one `chunked`")]
    Encoding,
    #[error("a chunk with an extension, a trailer or a bad delimiter")]
    Chunk,
}

#[derive(Debug)]
enum State {
    Head(Vec<u8>),
    Body(u64),
    ChunkSize(Vec<u8>),
    ChunkData(u64),
    /// CR LF after a chunk; the bytes that are still missing.
    ChunkEnd(&'static [u8]),
    /// After CONNECT or an upgrade the bytes are not HTTP any more.
    Opaque,
    Broken(BadFraming),
}

/// Follows the messages of one connection.
#[derive(Debug)]
pub struct Framing {
    state: State,
}

impl Default for Framing {
    fn default() -> Self {
        Self { state: State::Head(Vec::new()) }
    }
}

impl Framing {
    /// Follows the next bytes; after an error nothing more is to be read.
    pub fn feed(&mut self, mut bytes: &[u8]) -> Result<(), BadFraming> {
        while !bytes.is_empty() {
            let state = std::mem::replace(&mut self.state, State::Opaque);
            match advance(state, &mut bytes) {
                Ok(state) => self.state = state,
                Err(reason) => {
                    self.state = State::Broken(reason);
                    return Err(reason);
                }
            }
            if matches!(self.state, State::Opaque) {
                return Ok(());
            }
        }
        Ok(())
    }

    /// Whether the body of a request has not ended yet.
    fn is_in_body(&self) -> bool {
        !matches!(self.state, State::Head(_) | State::Opaque | State::Broken(_))
    }

    /// Whether what follows is not HTTP any more.
    pub fn is_opaque(&self) -> bool {
        matches!(self.state, State::Opaque)
    }
}

fn advance(state: State, bytes: &mut &[u8]) -> Result<State, BadFraming> {
    match state {
        State::Head(head) => in_head(head, bytes),
        State::Body(left) => {
            let left = take(bytes, left);
            Ok(if left == 0 { State::Head(Vec::new()) } else { State::Body(left) })
        }
        State::ChunkSize(line) => in_chunk_size(line, bytes),
        State::ChunkData(left) => {
            let left = take(bytes, left);
            Ok(if left == 0 { State::ChunkEnd(b"\r\n") } else { State::ChunkData(left) })
        }
        State::ChunkEnd(expected) => match (expected, *bytes) {
            ([want, rest @ ..], [byte, more @ ..]) if want == byte => {
                *bytes = more;
                let over = rest.is_empty();
                Ok(if over { State::ChunkSize(Vec::new()) } else { State::ChunkEnd(rest) })
            }
            _ => Err(BadFraming::Chunk),
        },
        State::Opaque => Ok(State::Opaque),
        State::Broken(reason) => Err(reason),
    }
}

/// Skips up to `left` bytes; says how many are still missing.
fn take(bytes: &mut &[u8], left: u64) -> u64 {
    let here = usize::try_from(left).unwrap_or(usize::MAX).min(bytes.len());
    *bytes = &bytes[here..];
    left - here as u64
}

fn in_head(mut head: Vec<u8>, bytes: &mut &[u8]) -> Result<State, BadFraming> {
    // The end may begin in what came before.
    let from = head.len().saturating_sub(3);
    let known = head.len();
    let room = LONGEST_HEAD.saturating_sub(known) + 1;
    head.extend_from_slice(&bytes[..bytes.len().min(room)]);
    let end = memchr::memmem::find(&head[from..], b"\r\n\r\n").map(|at| from + at + 4);
    // A line end of one byte would end the head for others, before it ends here.
    let new = known..end.unwrap_or(head.len());
    let bare = |at: usize| at == 0 || head[at - 1] != b'\r';
    if memchr::memchr_iter(b'\n', &head[new.clone()]).any(|at| bare(new.start + at)) {
        return Err(BadFraming::Control);
    }
    let Some(end) = end else {
        if head.len() > LONGEST_HEAD {
            return Err(BadFraming::HeadTooLong);
        }
        *bytes = &[];
        return Ok(State::Head(head));
    };
    head.truncate(end);
    *bytes = &bytes[end - known..];
    after_head(&head[..end - 4])
}

/// Reads a whole head, without the empty line at its end, and says what follows it.
fn after_head(head: &[u8]) -> Result<State, BadFraming> {
    let mut lines = Lines { rest: head };
    let Some(request_line) = lines.next().transpose()? else {
        return Err(BadFraming::Control);
    };
    let mut length: Option<u64> = None;
    let mut chunked = false;
    let mut upgrade = request_line.starts_with(b"CONNECT ");
    for line in lines {
        let line = line?;
        if line.first().is_some_and(|byte| matches!(byte, b' ' | b'\t')) {
            return Err(BadFraming::Folded);
        }
        let colon = memchr::memchr(b':', line).ok_or(BadFraming::HeaderName)?;
        let (name, value) = (&line[..colon], line[colon + 1..].trim_ascii());
        if name.is_empty() || name.iter().any(|byte| *byte <= b' ' || *byte >= 0x7f) {
            return Err(BadFraming::HeaderName);
        }
        if name.eq_ignore_ascii_case(b"content-length") {
            if length.is_some() {
                return Err(BadFraming::Length);
            }
            length = Some(number(value).ok_or(BadFraming::Length)?);
        } else if name.eq_ignore_ascii_case(b"transfer-encoding") {
            if chunked || !value.eq_ignore_ascii_case(b"chunked") {
                return Err(BadFraming::Encoding);
            }
            chunked = true;
        } else if name.eq_ignore_ascii_case(b"upgrade") {
            upgrade = true;
        }
    }
    match (length, chunked) {
        (Some(_), true) => Err(BadFraming::LengthAndEncoding),
        // A body before the switch would leave its border to be guessed.
        (Some(1..), _) | (_, true) if upgrade => Err(BadFraming::Length),
        _ if upgrade => Ok(State::Opaque),
        (Some(0) | None, false) => Ok(State::Head(Vec::new())),
        (Some(length), false) => Ok(State::Body(length)),
        (None, true) => Ok(State::ChunkSize(Vec::new())),
    }
}

/// Lines that end in CR LF, the last one without; any other control byte is an error.
struct Lines<'a> {
    rest: &'a [u8],
}

impl<'a> Iterator for Lines<'a> {
    type Item = Result<&'a [u8], BadFraming>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.rest.is_empty() {
            return None;
        }
        let end = memchr::memmem::find(self.rest, b"\r\n");
        let line = &self.rest[..end.unwrap_or(self.rest.len())];
        self.rest = &self.rest[end.map_or(self.rest.len(), |end| end + 2)..];
        let control = |byte: &u8| (*byte < b' ' && *byte != b'\t') || *byte == 0x7f;
        let odd = line.is_empty() || line.iter().any(control);
        Some(if odd { Err(BadFraming::Control) } else { Ok(line) })
    }
}

fn number(text: &[u8]) -> Option<u64> {
    let digits = !text.is_empty() && text.iter().all(u8::is_ascii_digit);
    digits.then(|| std::str::from_utf8(text).ok()?.parse().ok()).flatten()
}

fn in_chunk_size(mut line: Vec<u8>, bytes: &mut &[u8]) -> Result<State, BadFraming> {
    while let [byte, rest @ ..] = *bytes {
        *bytes = rest;
        line.push(*byte);
        if line.len() > LONGEST_CHUNK_LINE + 2 {
            return Err(BadFraming::Chunk);
        }
        if *byte != b'\n' {
            continue;
        }
        let digits = line.strip_suffix(b"\r\n").ok_or(BadFraming::Chunk)?;
        // The last chunk is `0`, then an empty line: trailers are refused.
        if digits.is_empty() {
            return Err(BadFraming::Chunk);
        }
        if digits == b"0\r\n" {
            return Ok(State::Head(Vec::new()));
        }
        if digits == b"0" {
            continue;
        }
        let hexadecimal = digits.iter().all(u8::is_ascii_hexdigit);
        let size =
            std::str::from_utf8(digits).ok().and_then(|text| u64::from_str_radix(text, 16).ok());
        return match size {
            Some(size) if hexadecimal && size > 0 => Ok(State::ChunkData(size)),
            _ => Err(BadFraming::Chunk),
        };
    }
    Ok(State::ChunkSize(line))
}

/// A client's byte stream under [`Framing`]. At the first bad byte the server behind it reads bytes
/// that are no HTTP at all, answers 400 and closes.
#[derive(Debug)]
pub struct Framed<S> {
    stream: S,
    framing: Framing,
    poisoned: bool,
    linger: Option<Linger>,
}

/// What no parser takes for a part of a message.
const POISON: &[u8] = b"\0\r\n\r\n";

impl<S> Framed<S> {
    pub fn new(stream: S) -> Self {
        Self { stream, framing: Framing::default(), poisoned: false, linger: None }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Framed<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if self.poisoned {
            return Poll::Ready(Ok(()));
        }
        let before = buffer.filled().len();
        ready!(Pin::new(&mut self.stream).poll_read(context, buffer))?;
        if self.framing.is_opaque() {
            return Poll::Ready(Ok(()));
        }
        let Self { framing, poisoned, .. } = &mut *self;
        if framing.feed(&buffer.filled()[before..]).is_err() {
            *poisoned = true;
            buffer.set_filled(before);
            let fits = POISON.len().min(buffer.remaining());
            buffer.put_slice(&POISON[..fits]);
        }
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncWrite for Framed<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let Self { stream, framing, linger, .. } = &mut *self;
        if linger.is_none() {
            ready!(Pin::new(&mut *stream).poll_shutdown(context))?;
            if !framing.is_in_body() {
                return Poll::Ready(Ok(()));
            }
        }
        linger.get_or_insert_with(Linger::begin).poll(stream, context)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(context, slices)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn feed(text: &str) -> Result<(), BadFraming> {
        Framing::default().feed(text.as_bytes())
    }

    #[test]
    fn plain_messages_pass_one_after_the_other() {
        let text = "GET / HTTP/1.1\r\nHost: a\r\n\r\n\
            POST / HTTP/1.1\r\nContent-Length: 3\r\n\r\nabc\
            POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\nA\r\n0123456789\r\n0\r\n\r\n\
            GET / HTTP/1.1\r\n\r\n";
        assert_eq!(feed(text), Ok(()));
        let mut framing = Framing::default();
        for byte in text.bytes() {
            assert_eq!(framing.feed(&[byte]), Ok(()));
        }
        assert!(!framing.is_opaque());
    }

    #[test]
    fn messages_with_two_readings_are_refused() {
        use BadFraming as Bad;
        for (headers, reason) in [
            ("Content-Length: 3\r\nContent-Length: 3", Bad::Length),
            ("Content-Length: 3\r\nContent-Length: 4", Bad::Length),
            ("Content-Length: 3, 3", Bad::Length),
            ("Content-Length: +3", Bad::Length),
            ("Content-Length: 99999999999999999999", Bad::Length),
            ("Content-Length: 3\r\nTransfer-Encoding: chunked", Bad::LengthAndEncoding),
            ("Transfer-Encoding: chunked\r\nContent-Length: 3", Bad::LengthAndEncoding),
            ("Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked", Bad::Encoding),
            ("Transfer-Encoding: gzip, chunked", Bad::Encoding),
            ("Transfer-Encoding: xchunked", Bad::Encoding),
            ("Transfer-Encoding: \x0bchunked", Bad::Control),
            ("Transfer-Encoding : chunked", Bad::HeaderName),
            ("A: b\r\n c", Bad::Folded),
            ("A: b\nC: d", Bad::Control),
            ("A: b\rC: d", Bad::Control),
            ("A: b\n", Bad::Control),
            ("A: b\n\nGET /second HTTP/1.1", Bad::Control),
            ("A: b\0", Bad::Control),
            ("A", Bad::HeaderName),
            (": b", Bad::HeaderName),
            ("Upgrade: websocket\r\nContent-Length: 3", Bad::Length),
        ] {
            let text = format!("POST / HTTP/1.1\r\n{headers}\r\n\r\nabc");
            assert_eq!(feed(&text), Err(reason), "{headers:?}");
        }
        for chunks in [
            "3;x=y\r\nabc\r\n",
            "3\nabc\r\n",
            "3\r\nabcd\r\n",
            "0\r\nTrailer: x\r\n\r\n",
            "0x3\r\n",
            "\r\n",
            "+3\r\n",
            "00\r\n\r\n",
        ] {
            let text = format!("POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n{chunks}");
            assert_eq!(feed(&text), Err(Bad::Chunk), "{chunks:?}");
        }
        assert_eq!(feed(&"a".repeat(LONGEST_HEAD + 1)), Err(Bad::HeadTooLong));
        assert_eq!(feed("\r\n\r\n"), Err(Bad::Control));
        // Before anybody could take the head for complete.
        for bare in ["GET / HTTP/1.1\nHost: a\n\n", "GET / HTTP/1.1\n", "\nGET / HTTP/1.1\r\n"] {
            assert_eq!(feed(bare), Err(Bad::Control), "{bare:?}");
        }
    }

    #[test]
    fn after_connect_and_upgrades_bytes_are_not_http() {
        for text in [
            "CONNECT a:1 HTTP/1.1\r\n\r\n\x16\x03",
            "GET / HTTP/1.1\r\nUpgrade: websocket\r\n\r\n\x01\x00",
        ] {
            let mut framing = Framing::default();
            assert_eq!(framing.feed(text.as_bytes()), Ok(()));
            assert!(framing.is_opaque());
        }
    }

    proptest! {
        #[test]
        fn the_verdict_does_not_depend_on_how_bytes_are_cut(
            bytes in proptest::collection::vec(prop_oneof![
                Just(b"GET / HTTP/1.1\r\n".to_vec()), Just(b"\r\n".to_vec()), Just(b"Content-Length: 2\r\n".to_vec()),
                Just(b"Transfer-Encoding: chunked\r\n".to_vec()), Just(b"0\r\n\r\n".to_vec()), Just(b"2\r\nab\r\n".to_vec()),
                proptest::collection::vec(any::<u8>(), 0..4),
            ], 0..12).prop_map(|parts| parts.concat()),
            cut in 1usize..9,
        ) {
            let at_once = Framing::default().feed(&bytes);
            let mut framing = Framing::default();
            let piecewise = bytes.chunks(cut).try_for_each(|piece| framing.feed(piece));
            prop_assert_eq!(at_once, piecewise);
        }
    }
}
