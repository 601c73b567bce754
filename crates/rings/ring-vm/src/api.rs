//! Requests to a monitor on a unix socket: as much of HTTP as two programs need that know each other.
//!
//! The monitor is not trusted: a guest may have taken it over. Its socket is found without following
//! a link, must be the monitor's own, and answers are bounded and waited for no longer than agreed.

use std::io::{self, Read, Write};
use std::os::fd::{AsRawFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::fs::FileType;
use serde_json::Value;

use crate::driver::{API_NAME, Request};
use crate::monitor::MonitorError;

/// Longest head of an answer.
const MAX_HEAD: usize = 16 << 10;
/// Longest body. What monitors say of a success is nothing, of a failure a sentence.
const MAX_BODY: usize = 64 << 10;
const HEAD_END: &[u8] = b"\r\n\r\n";
const LOOK_EVERY: Duration = Duration::from_millis(1);
/// The longest part of a VMM's answer that is repeated.
const LONGEST_REASON: usize = 300;

/// A connection to a monitor that takes requests.
#[derive(Debug)]
pub struct Api {
    socket: UnixStream,
    unread: Vec<u8>,
    deadline: Instant,
}

impl Api {
    /// Waits until process `monitor` listens in the directory `run`. `lifeline` is a socket whose
    /// other end the monitor holds as long as it lives.
    pub fn open(
        run: BorrowedFd<'_>,
        monitor: u32,
        lifeline: &UnixStream,
        patience: Duration,
    ) -> Result<Api, MonitorError> {
        let deadline = Instant::now() + patience;
        loop {
            match connect(run) {
                Ok(socket) => {
                    check_peer(&socket, monitor)?;
                    return Ok(Api { socket, unread: Vec::new(), deadline });
                }
                Err(error) if !is_not_yet(&error) => return Err(MonitorError::Gone(error)),
                Err(error) if has_ended(lifeline) => return Err(MonitorError::Gone(error)),
                Err(_) if Instant::now() >= deadline => return Err(MonitorError::TimedOut),
                Err(_) => std::thread::sleep(LOOK_EVERY),
            }
        }
    }

    /// Asks one after the other, each when the one before was granted.
    pub fn ask(&mut self, requests: &[Request], patience: Duration) -> Result<(), MonitorError> {
        self.deadline = Instant::now() + patience;
        for request in requests {
            self.send(request)?;
            let (status, body) = self.answer()?;
            if !(200..300).contains(&status) {
                let command = format!("{} {}", request.method, request.path);
                let reason = format!("{status} {}", reason(&body)).trim_end().to_owned();
                return Err(MonitorError::Refused { command, reason });
            }
        }
        Ok(())
    }

    fn send(&mut self, request: &Request) -> Result<(), MonitorError> {
        let Request { method, path, body } = request;
        let mut text = format!("{method} {path} HTTP/1.1\r\nHost: localhost\r\n");
        match body {
            Some(body) => {
                let body = body.to_string();
                let length = body.len();
                text.push_str("Accept: application/json\r\nContent-Type: application/json\r\n");
                text.push_str(&format!("Content-Length: {length}\r\n\r\n{body}"));
            }
            None => text.push_str("Content-Length: 0\r\n\r\n"),
        }
        let left = self.left()?;
        self.socket.set_write_timeout(Some(left)).map_err(MonitorError::Gone)?;
        self.socket.write_all(text.as_bytes()).map_err(too_late)
    }

    /// The status and the body.
    fn answer(&mut self) -> Result<(u16, Vec<u8>), MonitorError> {
        let end = loop {
            let found = self.unread.windows(HEAD_END.len()).position(|bytes| bytes == HEAD_END);
            if let Some(at) = found {
                break at;
            }
            if self.unread.len() > MAX_HEAD {
                return Err(MonitorError::Confused);
            }
            self.read_more()?;
        };
        let rest = self.unread.split_off(end + HEAD_END.len());
        let head = std::mem::replace(&mut self.unread, rest);
        let head = std::str::from_utf8(&head).map_err(|_| MonitorError::Confused)?;
        let (status, length) = read_head(head).ok_or(MonitorError::Confused)?;
        while self.unread.len() < length {
            self.read_more()?;
        }
        let rest = self.unread.split_off(length);
        Ok((status, std::mem::replace(&mut self.unread, rest)))
    }

    fn read_more(&mut self) -> Result<(), MonitorError> {
        let left = self.left()?;
        self.socket.set_read_timeout(Some(left)).map_err(MonitorError::Gone)?;
        let mut piece = [0; 4096];
        match self.socket.read(&mut piece) {
            Ok(0) => Err(MonitorError::Gone(io::ErrorKind::UnexpectedEof.into())),
            Ok(count) => {
                self.unread.extend_from_slice(piece.get(..count).unwrap_or_default());
                Ok(())
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => Ok(()),
            Err(error) => Err(too_late(error)),
        }
    }

    fn left(&self) -> Result<Duration, MonitorError> {
        let left = self.deadline.saturating_duration_since(Instant::now());
        if left.is_zero() { Err(MonitorError::TimedOut) } else { Ok(left) }
    }
}

/// Whether the process with the other end is gone.
pub fn has_ended(lifeline: &UnixStream) -> bool {
    let mut polled = [PollFd::new(lifeline, PollFlags::RDHUP)];
    let ended = rustix::event::poll(&mut polled, Some(&Timespec::default()));
    ended.is_ok_and(|ready| ready > 0)
}

fn connect(run: BorrowedFd<'_>) -> io::Result<UnixStream> {
    // The monitor can write to this directory: what it puts there must not lead us elsewhere.
    let place = ringwall_linux::mount::open_place(run, Path::new(API_NAME))?;
    let kind = FileType::from_raw_mode(rustix::fs::fstat(&place)?.st_mode);
    if kind != FileType::Socket {
        return Err(io::Error::new(io::ErrorKind::InvalidData, "not a socket"));
    }
    UnixStream::connect(format!("/proc/self/fd/{}", place.as_raw_fd()))
}

/// Not made yet, or made and not listened at.
fn is_not_yet(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused)
}

fn check_peer(socket: &UnixStream, monitor: u32) -> Result<(), MonitorError> {
    let peer = rustix::net::sockopt::socket_peercred(socket)
        .map_err(|errno| MonitorError::Gone(errno.into()))?;
    let is_monitor = u32::try_from(peer.pid.as_raw_nonzero().get()) == Ok(monitor);
    if is_monitor { Ok(()) } else { Err(MonitorError::Confused) }
}

fn too_late(error: io::Error) -> MonitorError {
    match error.kind() {
        io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => MonitorError::TimedOut,
        _ => MonitorError::Gone(error),
    }
}

/// The status, and the length of the body. Nothing where it is said in another way than these
/// monitors say it.
fn read_head(head: &str) -> Option<(u16, usize)> {
    let mut lines = head.split("\r\n");
    let mut words = lines.next()?.split(' ');
    let version = words.next()?;
    if !matches!(version, "HTTP/1.0" | "HTTP/1.1") {
        return None;
    }
    let status = words.next().filter(|status| status.len() == 3)?.parse().ok()?;
    // What comes before the answer proper was not asked for.
    if !(200..600).contains(&status) {
        return None;
    }
    let mut length = None;
    for line in lines.filter(|line| !line.is_empty()) {
        let (name, value) = line.split_once(':')?;
        if name.eq_ignore_ascii_case("transfer-encoding") {
            return None;
        }
        if name.eq_ignore_ascii_case("content-length") {
            let value = value.trim();
            let digits = !value.is_empty() && value.bytes().all(|byte| byte.is_ascii_digit());
            if length.is_some() || !digits {
                return None;
            }
            length = Some(value.parse().ok().filter(|length| *length <= MAX_BODY)?);
        }
    }
    Some((status, length.unwrap_or(0)))
}

/// What a monitor says of its refusal: a sentence, alone or in JSON.
fn reason(body: &[u8]) -> String {
    let text = String::from_utf8_lossy(body);
    let said = match serde_json::from_slice(body) {
        Ok(Value::Object(fields)) => {
            fields.get("fault_message").and_then(Value::as_str).map(str::to_owned)
        }
        Ok(Value::Array(all)) => {
            let all: Vec<&str> = all.iter().filter_map(Value::as_str).collect();
            Some(all.join(": "))
        }
        _ => None,
    };
    let said = said.unwrap_or_else(|| text.into_owned());
    said.chars().filter(|c| !c.is_control()).take(LONGEST_REASON).collect()
}

#[cfg(test)]
#[path = "api/tests.rs"]
mod tests;
