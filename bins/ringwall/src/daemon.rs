//! The daemon, where one runs for this home: asked over its socket, for what it does quicker.
//!
//! It does nothing that it does not know, so the caller continues without it and tells the same.

mod ask;
mod attached;
mod socket;

use std::io::{self, BufReader, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

use ringwall_engine::EngineConfig;
use serde_json::Value;

pub(crate) use ask::{sandbox_asked, words_of};
pub(crate) use attached::{Attachment, Driven, Refused, failed};
use socket::{no_sense, read_head};

const SOCKET: &str = "api.sock";
/// The longest answer that is read.
const MOST_ANSWER: u64 = 64 << 20;
/// `off`: no daemon is asked.
const SWITCH: &str = "RINGWALL_DAEMON";
/// Longer than any tool may take.
const PATIENCE: Duration = Duration::from_secs(3600);

/// Where the daemon of this home listens unless told otherwise: where no ring can see it.
pub(crate) fn default_socket(home: &Path) -> PathBuf {
    home.join(SOCKET)
}

/// The daemon's program, which is next to this one.
pub(crate) fn program(config: &EngineConfig) -> anyhow::Result<PathBuf> {
    let program = config.programs.launcher.with_file_name("ringwall-daemon");
    anyhow::ensure!(
        program.is_file(),
        "the program {} is missing next to ringwall; install all of Ringwall's programs in one directory",
        program.display()
    );
    Ok(program)
}

/// A connection, if a daemon answers there and the switch is not off.
pub(crate) fn connect(home: &Path) -> Option<UnixStream> {
    if std::env::var_os(SWITCH).is_some_and(|value| value == "off") {
        return None;
    }
    reach(home)
}

/// A connection for a request that starts a sandbox. The daemon has an environment of its own and would not
/// see which VMM this caller named, so such a caller starts the sandbox itself.
pub(crate) fn connect_to_start(home: &Path) -> Option<UnixStream> {
    let names_vmm = std::env::var_os(ringwall_ring_vm::WANTED).is_some_and(|name| !name.is_empty());
    if names_vmm { None } else { connect(home) }
}

fn reach(home: &Path) -> Option<UnixStream> {
    let stream = UnixStream::connect(default_socket(home)).ok()?;
    stream.set_read_timeout(Some(PATIENCE)).ok()?;
    Some(stream)
}

/// Sends one request, and gives the status and the body of its answer.
pub(crate) fn post(stream: UnixStream, path: &str, body: &Value) -> io::Result<(u16, Vec<u8>)> {
    request(stream, "POST", path, &body.to_string())
}

/// What came of asking for a sandbox to be ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Asked {
    Ended,
    /// The daemon does not know it, or there is none.
    Unknown,
    /// The daemon's own process holds it and cannot end it yet: it is being raised.
    NotYet,
}

/// Ends a sandbox that `owner` holds. The daemon is asked whatever the switch says: only the daemon
/// can end a sandbox in its own process.
pub(crate) fn end(
    home: &Path,
    (id, owner): (&str, u32),
    grace: Duration,
    keep: bool,
) -> io::Result<Asked> {
    let Some(stream) = reach(home) else { return Ok(Asked::Unknown) };
    let daemon = rustix::net::sockopt::socket_peercred(&stream)?.pid;
    let own = u32::try_from(daemon.as_raw_nonzero().get()).is_ok_and(|pid| pid == owner);
    let path = format!("/v1/sandboxes/{id}?grace_ms={}&keep={keep}", grace.as_millis());
    Ok(match request(stream, "DELETE", &path, "")?.0 {
        204 => Asked::Ended,
        _ if own => Asked::NotYet,
        _ => Asked::Unknown,
    })
}

fn request(stream: UnixStream, method: &str, path: &str, body: &str) -> io::Result<(u16, Vec<u8>)> {
    let head = format!(
        "{method} {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\
         content-type: application/json\r\ncontent-length: {}\r\n\r\n",
        body.len()
    );
    (&stream).write_all(&[head.as_bytes(), body.as_bytes()].concat())?;
    let mut answer = BufReader::new(stream.take(MOST_ANSWER));
    let (status, length) = read_head(&mut answer)?;
    let mut body = Vec::new();
    answer.take(length).read_to_end(&mut body)?;
    if body.len() as u64 == length { Ok((status, body)) } else { Err(no_sense()) }
}
