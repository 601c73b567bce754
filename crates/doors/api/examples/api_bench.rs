//! Measures what the daemon adds: `api_bench`, with the built programs in `RINGWALL_PROGRAMS`.
//!
//! Commands in the same living sandbox and calls of the same tool, in turn: by the engine in this process
//! and over one kept-alive connection to a daemon on its unix socket. With `--assert` a promise that is
//! not kept is a failure.

#![allow(clippy::print_stdout, reason = "printing is what this program is for")]

use std::error::Error;
use std::ffi::OsString;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command as Process, ExitCode, Stdio};
use std::time::{Duration, Instant};

use ringwall_engine::{Engine, EngineConfig, Output, Programs, ToolCall};
use ringwall_spec::Command;

type Result<T> = std::result::Result<T, Box<dyn Error>>;

const EXECS: usize = 400;
const CALLS: usize = 3000;
const WARM_UP: usize = 50;
/// Of a command through the daemon, beyond the engine's own time.
const PROMISED_ADDED: Duration = Duration::from_millis(1);
/// Of a call of a tool over REST.
const PROMISED_CALL: Duration = Duration::from_millis(1);

fn main() -> Result<ExitCode> {
    let programs = std::env::var_os("RINGWALL_PROGRAMS").ok_or("set RINGWALL_PROGRAMS")?;
    let programs = PathBuf::from(programs);
    let home = tempfile::tempdir()?;
    let daemon = Daemon::start(&programs, home.path())?;
    let mut api = Client::connect(&home.path().join("api.sock"))?;
    let found = Programs {
        launcher: programs.join("ringwall-launcher"),
        warden: programs.join("ringwall-warden"),
    };
    let engine = Engine::open(EngineConfig { home: home.path().to_owned(), programs: found })?;
    let added = execs(&engine, &mut api)?;
    let called = calls(&engine, &mut api, &programs)?;
    drop(daemon);
    let what = "a command through the daemon adds, at the median";
    let mut kept = promise(what, added, PROMISED_ADDED);
    if let Some(called) = called {
        kept &= promise("a call of a tool over REST takes, at the median", called, PROMISED_CALL);
    }
    let assert = std::env::args().any(|argument| argument == "--assert");
    Ok(if kept || !assert { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn promise(what: &str, took: Duration, most: Duration) -> bool {
    let kept = took <= most;
    let word = if kept { "kept" } else { "NOT kept" };
    println!("{what} {took:.0?}; promised: at most {most:?}: {word}");
    kept
}

/// What the daemon adds to the median of a command.
fn execs(engine: &Engine, api: &mut Client) -> Result<Duration> {
    let made = api.post("/v1/sandboxes", r#"{"wall":"process"}"#)?;
    let made: serde_json::Value = serde_json::from_slice(&made)?;
    let id = made["id"].as_str().ok_or("no id")?;
    let record = engine.find(id)?;
    let attached = engine.attach(&record)?;
    let path = format!("/v1/sandboxes/{id}/exec");
    let command = Command { argv: vec![OsString::from("true")], ..Command::default() };
    let (mut embedded, mut served) = (Vec::new(), Vec::new());
    for round in 0..EXECS + WARM_UP {
        let begun = Instant::now();
        attached.start(&command, Duration::from_secs(10))?.wait(&mut Silent)?;
        let own = begun.elapsed();
        let begun = Instant::now();
        api.post(&path, r#"{"argv":["true"]}"#)?;
        let through = begun.elapsed();
        if round >= WARM_UP {
            embedded.push(own);
            served.push(through);
        }
    }
    api.send("DELETE", &format!("/v1/sandboxes/{id}"), "")?;
    let own = show("exec in a living sandbox, embedded engine", &mut embedded);
    let through = show("exec in a living sandbox, daemon over REST", &mut served);
    Ok(through.saturating_sub(own))
}

/// The median of a tool's call over REST; none if the tool is not there.
fn calls(engine: &Engine, api: &mut Client, programs: &Path) -> Result<Option<Duration>> {
    let Ok(wasm) = std::fs::read(programs.join("tools/echo.wasm")) else {
        println!(
            "calls of tools: not measured, as there is no tools/echo.wasm (`make quick-tools`)"
        );
        return Ok(None);
    };
    let input = r#"{"text":"hello"}"#;
    let host = engine.tools(&ringwall_desk::tools_permit)?;
    let call = ToolCall::component(host.compile(&wasm)?.digest, input.to_owned());
    let body = format!("{{\"input\":{input}}}");
    let (mut embedded, mut served) = (Vec::new(), Vec::new());
    for round in 0..CALLS + WARM_UP {
        let begun = Instant::now();
        host.call(&call)?;
        let own = begun.elapsed();
        let begun = Instant::now();
        api.post("/v1/tools/echo/call", &body)?;
        let through = begun.elapsed();
        if round >= WARM_UP {
            embedded.push(own);
            served.push(through);
        }
    }
    show("call of a WASM tool, embedded engine (no policy, no log)", &mut embedded);
    Ok(Some(show("call of a WASM tool, daemon over REST", &mut served)))
}

/// Prints the figures, and gives the median.
fn show(what: &str, times: &mut [Duration]) -> Duration {
    times.sort_unstable();
    let at = |share: usize| times.get(times.len() * share / 1000).copied().unwrap_or_default();
    let median = at(500);
    let [min, p50, p95, p99] = [at(0), median, at(950), at(990)].map(|time| time.as_micros());
    let count = times.len();
    println!("{what}: min {min} µs, p50 {p50} µs, p95 {p95} µs, p99 {p99} µs ({count} times)");
    median
}

struct Silent;

impl Output for Silent {
    fn stdout(&mut self, _: &[u8]) -> io::Result<()> {
        Ok(())
    }

    fn stderr(&mut self, _: &[u8]) -> io::Result<()> {
        Ok(())
    }
}

struct Daemon(Child);

impl Daemon {
    fn start(programs: &Path, home: &Path) -> Result<Daemon> {
        let mut process = Process::new(programs.join("ringwall"))
            .arg("serve")
            .env("RINGWALL_HOME", home)
            .env("RINGWALL_PROGRAMS", programs)
            .env("HOME", home)
            .env_remove("XDG_CONFIG_HOME")
            .stdout(Stdio::piped())
            .spawn()?;
        let output = process.stdout.take().ok_or("no output")?;
        let daemon = Daemon(process);
        let mut line = String::new();
        BufReader::new(output).read_line(&mut line)?;
        if line.starts_with("serving on ") { Ok(daemon) } else { Err("it does not serve".into()) }
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// One connection that is kept.
struct Client(BufReader<UnixStream>);

impl Client {
    fn connect(socket: &Path) -> Result<Client> {
        Ok(Client(BufReader::new(UnixStream::connect(socket)?)))
    }

    fn post(&mut self, path: &str, body: &str) -> Result<Vec<u8>> {
        self.send("POST", path, body)
    }

    fn send(&mut self, method: &str, path: &str, body: &str) -> Result<Vec<u8>> {
        let head = format!(
            "{method} {path} HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n\
             content-length: {}\r\n\r\n{body}",
            body.len()
        );
        self.0.get_mut().write_all(head.as_bytes())?;
        let mut line = String::new();
        self.0.read_line(&mut line)?;
        let good = line.split(' ').nth(1).is_some_and(|status| status.starts_with('2'));
        let mut length = 0;
        loop {
            line.clear();
            self.0.read_line(&mut line)?;
            let Some((name, value)) = line.trim_end().split_once(": ") else { break };
            if name.eq_ignore_ascii_case("content-length") {
                length = value.parse()?;
            }
        }
        let mut answer = vec![0; length];
        self.0.read_exact(&mut answer)?;
        if good { Ok(answer) } else { Err(String::from_utf8_lossy(&answer).into()) }
    }
}
