//! As little of a WebSocket (RFC 6455) as a client on this machine needs: whole messages, no extensions.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::unix::net::UnixStream;
use std::sync::{Arc, Mutex, PoisonError};

/// The longest message that is read; the daemon's are far shorter.
const MOST_MESSAGE: u64 = 64 << 20;
const LONGEST_LINE: u64 = 64 << 10;

/// What comes from the daemon.
pub(super) enum Message {
    Text(Vec<u8>),
    Bytes(Vec<u8>),
    Closed,
}

/// The reading half.
pub(super) struct Reading(BufReader<UnixStream>);

/// The writing half, for as many threads as there are.
#[derive(Clone)]
pub(super) struct Writing(Arc<Mutex<UnixStream>>);

/// What came of asking for a WebSocket.
pub(super) enum Opened {
    Socket(Reading, Writing),
    /// The status and the body of another answer.
    Refused(u16, Vec<u8>),
}

pub(super) fn open(stream: UnixStream, path: &str) -> io::Result<Opened> {
    // The key is there against servers that know no WebSockets; ours is known to.
    let head = format!(
        "GET {path} HTTP/1.1\r\nhost: localhost\r\nconnection: upgrade\r\nupgrade: websocket\r\n\
         sec-websocket-version: 13\r\nsec-websocket-key: cmluZ3dhbGwgY29tbWFuZA==\r\n\r\n"
    );
    (&stream).write_all(head.as_bytes())?;
    let writing = Writing(Arc::new(Mutex::new(stream.try_clone()?)));
    let mut reading = BufReader::new(stream);
    let (status, length) = read_head(&mut reading)?;
    if status == 101 {
        return Ok(Opened::Socket(Reading(reading), writing));
    }
    let mut body = Vec::new();
    reading.take(length.min(MOST_MESSAGE)).read_to_end(&mut body)?;
    Ok(Opened::Refused(status, body))
}

/// The status of an answer and the length of its body.
pub(super) fn read_head(answer: &mut impl BufRead) -> io::Result<(u16, u64)> {
    let mut line = String::new();
    answer.by_ref().take(LONGEST_LINE).read_line(&mut line)?;
    let status = line.split(' ').nth(1).and_then(|text| text.parse().ok());
    let status = status.ok_or_else(no_sense)?;
    let mut length = 0;
    loop {
        line.clear();
        answer.by_ref().take(LONGEST_LINE).read_line(&mut line)?;
        match line.trim_end().split_once(':') {
            Some((name, value)) if name.eq_ignore_ascii_case("content-length") => {
                length = value.trim().parse().map_err(|_| no_sense())?;
            }
            Some(_) => {}
            None => return Ok((status, length)),
        }
    }
}

pub(super) fn no_sense() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, "the daemon sent an invalid answer")
}

const TEXT: u8 = 1;
const BYTES: u8 = 2;
const CLOSE: u8 = 8;
const PING: u8 = 9;
const PONG: u8 = 10;
/// This is the last frame of its message.
const WHOLE: u8 = 0x80;
const MASKED: u8 = 0x80;

impl Reading {
    pub(super) fn next(&mut self) -> io::Result<Message> {
        let mut message = Vec::new();
        let mut kind = None;
        loop {
            let mut head = [0; 2];
            self.0.read_exact(&mut head)?;
            let [first, second] = head;
            let length = self.length(second)?;
            let most = MOST_MESSAGE.saturating_sub(message.len() as u64);
            if length > most || second & MASKED != 0 {
                return Err(no_sense());
            }
            let before = message.len();
            let read = (&mut self.0).take(length).read_to_end(&mut message)?;
            if read as u64 != length {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            match first & 0x0f {
                PING | PONG => {
                    message.truncate(before);
                    continue;
                }
                CLOSE => return Ok(Message::Closed),
                0 => {}
                opcode => kind = Some(opcode),
            }
            if first & WHOLE != 0 {
                return match kind {
                    Some(TEXT) => Ok(Message::Text(message)),
                    Some(BYTES) => Ok(Message::Bytes(message)),
                    _ => Err(no_sense()),
                };
            }
        }
    }

    fn length(&mut self, second: u8) -> io::Result<u64> {
        match second & 0x7f {
            126 => {
                let mut length = [0; 2];
                self.0.read_exact(&mut length)?;
                Ok(u16::from_be_bytes(length).into())
            }
            127 => {
                let mut length = [0; 8];
                self.0.read_exact(&mut length)?;
                Ok(u64::from_be_bytes(length))
            }
            length => Ok(length.into()),
        }
    }
}

impl Writing {
    pub(super) fn text(&self, text: &str) -> io::Result<()> {
        self.send(TEXT, text.as_bytes())
    }

    pub(super) fn bytes(&self, bytes: &[u8]) -> io::Result<()> {
        self.send(BYTES, bytes)
    }

    fn send(&self, opcode: u8, content: &[u8]) -> io::Result<()> {
        let mut frame = vec![WHOLE | opcode];
        match u16::try_from(content.len()) {
            Ok(length @ 0..126) => frame.push(MASKED | u8::try_from(length).unwrap_or(0)),
            Ok(length) => {
                frame.push(MASKED | 126);
                frame.extend(length.to_be_bytes());
            }
            Err(_) => {
                frame.push(MASKED | 127);
                frame.extend((content.len() as u64).to_be_bytes());
            }
        }
        // Clients must mask what they send, for the sake of proxies. A mask of zeros changes nothing.
        frame.extend([0; 4]);
        frame.extend(content);
        self.0.lock().unwrap_or_else(PoisonError::into_inner).write_all(&frame)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reading(bytes: &[u8]) -> Reading {
        let (ours, theirs) = UnixStream::pair().unwrap();
        (&theirs).write_all(bytes).unwrap();
        Reading(BufReader::new(ours))
    }

    #[test]
    fn messages_are_read_whole_whatever_their_frames() {
        let mut both = reading(b"\x82\x02hi\x89\x01p\x01\x01a\x80\x01b\x88\x00");
        assert!(matches!(both.next(), Ok(Message::Bytes(bytes)) if bytes == b"hi"));
        assert!(matches!(both.next(), Ok(Message::Text(text)) if text == b"ab"));
        assert!(matches!(both.next(), Ok(Message::Closed)));
        assert!(both.next().is_err());
    }

    #[test]
    fn what_is_too_long_is_not_read() {
        let mut long = reading(b"\x82\x7f\xff\xff\xff\xff\xff\xff\xff\xff");
        assert!(long.next().is_err());
    }

    #[test]
    fn every_length_can_be_sent() {
        let (ours, mut theirs) = UnixStream::pair().unwrap();
        let writing = Writing(Arc::new(Mutex::new(ours)));
        for (length, head) in [(0, 6), (125, 6), (126, 8), (65_535, 8), (65_536, 14)] {
            let sent = std::thread::spawn({
                let writing = writing.clone();
                move || writing.bytes(&vec![7; length])
            });
            let mut frame = vec![0; length + head];
            theirs.read_exact(&mut frame).unwrap();
            sent.join().unwrap().unwrap();
            assert!(frame[head..].iter().all(|byte| *byte == 7));
        }
    }
}
