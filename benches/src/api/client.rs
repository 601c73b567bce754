//! A daemon of the bench's own, and the least client that keeps its connection.

use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use serde_json::Value;

use crate::ground::Ground;

const PATIENCE: Duration = Duration::from_secs(60);

/// `ringwall serve`, until this is dropped.
pub(crate) struct Daemon {
    process: Child,
    socket: PathBuf,
}

impl Daemon {
    pub(crate) fn start(ground: &Ground, config: &Path) -> Result<Daemon> {
        let home = ground.home();
        let mut process = Command::new(ground.ringwall())
            .arg("serve")
            .env("RINGWALL_HOME", &home)
            .env("RINGWALL_PROGRAMS", &ground.programs)
            .env("XDG_CONFIG_HOME", config)
            .stdout(Stdio::piped())
            .spawn()
            .context("the daemon cannot be started")?;
        let mut line = String::new();
        let output = process.stdout.take().context("a pipe")?;
        BufReader::new(output).read_line(&mut line)?;
        let socket = home.join("api.sock");
        let daemon = Daemon { process, socket };
        ensure!(line.starts_with("serving on "), "the daemon said {line:?}");
        Ok(daemon)
    }

    pub(crate) fn connect(&self, token: Option<&str>) -> Result<Http> {
        let stream = UnixStream::connect(&self.socket)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        Ok(Http { stream: BufReader::new(stream), token: token.map(str::to_owned) })
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// One kept connection.
pub(crate) struct Http {
    stream: BufReader<UnixStream>,
    token: Option<String>,
}

impl Http {
    pub(crate) fn post(&mut self, path: &str, body: &Value, status: u16) -> Result<Value> {
        self.send(path, body)?;
        let (found, answer) = self.receive()?;
        ensure!(found == status, "{path}: {found} {}", String::from_utf8_lossy(&answer));
        Ok(serde_json::from_slice(&answer)?)
    }

    /// From the request to the last byte of an answer that says that all went well.
    pub(crate) fn timed(&mut self, path: &str, body: &Value) -> Result<Duration> {
        let begun = Instant::now();
        self.send(path, body)?;
        let (status, answer) = self.receive()?;
        let took = begun.elapsed();
        let words = String::from_utf8_lossy(&answer);
        ensure!(status == 200, "{path}: {status} {words}");
        let answer: Value = serde_json::from_slice(&answer)?;
        ensure!(answer["exit_code"] == 0, "{path}: {answer}");
        Ok(took)
    }

    fn send(&mut self, path: &str, body: &Value) -> Result<()> {
        let body = body.to_string();
        let mut text = format!("POST {path} HTTP/1.1\r\nhost: localhost\r\n");
        if let Some(token) = &self.token {
            text.push_str(&format!("authorization: Bearer {token}\r\n"));
        }
        text.push_str("content-type: application/json\r\n");
        text.push_str(&format!("content-length: {}\r\n\r\n{body}", body.len()));
        Ok(self.stream.get_mut().write_all(text.as_bytes())?)
    }

    fn receive(&mut self) -> Result<(u16, Vec<u8>)> {
        let mut line = String::new();
        self.stream.read_line(&mut line)?;
        let status = line.split(' ').nth(1).and_then(|text| text.parse().ok());
        let status = status.with_context(|| format!("no answer: {line:?}"))?;
        let mut length = None;
        loop {
            let mut line = String::new();
            if self.stream.read_line(&mut line)? == 0 {
                bail!("the answer broke off");
            }
            let Some((name, value)) = line.trim_end().split_once(": ") else { break };
            if name.eq_ignore_ascii_case("content-length") {
                length = Some(value.parse::<usize>()?);
            }
        }
        let mut body = vec![0; length.context("an answer without a length")?];
        self.stream.read_exact(&mut body)?;
        Ok((status, body))
    }
}
