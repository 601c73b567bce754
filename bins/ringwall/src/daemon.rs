//! The daemon, where one runs for this home: asked over its socket, for what it does quicker.
//!
//! What it refuses is not done, so whoever asks goes on without it and tells the same as without one.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

use ringwall_engine::EngineConfig;
use serde_json::Value;

const SOCKET: &str = "api.sock";
/// The longest answer that is read.
const MOST_ANSWER: u64 = 64 << 20;
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

/// A connection, if a daemon answers there.
pub(crate) fn connect(home: &Path) -> Option<UnixStream> {
    let stream = UnixStream::connect(default_socket(home)).ok()?;
    stream.set_read_timeout(Some(PATIENCE)).ok()?;
    Some(stream)
}

/// Sends one request, and gives the status and the body of its answer.
pub(crate) fn post(stream: UnixStream, path: &str, body: &Value) -> io::Result<(u16, Vec<u8>)> {
    let body = body.to_string();
    let head = format!(
        "POST {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\
         content-type: application/json\r\ncontent-length: {}\r\n\r\n",
        body.len()
    );
    (&stream).write_all(&[head.as_bytes(), body.as_bytes()].concat())?;
    let wrong = || io::Error::new(io::ErrorKind::InvalidData, "the daemon's answer makes no sense");
    let mut answer = BufReader::new(stream.take(MOST_ANSWER));
    let mut line = String::new();
    answer.read_line(&mut line)?;
    let status = line.split(' ').nth(1).and_then(|text| text.parse().ok()).ok_or_else(wrong)?;
    let mut length = 0;
    loop {
        let mut line = String::new();
        answer.read_line(&mut line)?;
        match line.trim_end().split_once(':') {
            Some((name, value)) if name.eq_ignore_ascii_case("content-length") => {
                length = value.trim().parse().map_err(|_| wrong())?;
            }
            Some(_) => {}
            None => break,
        }
    }
    let mut body = Vec::new();
    answer.take(length).read_to_end(&mut body)?;
    if body.len() as u64 == length { Ok((status, body)) } else { Err(wrong()) }
}
