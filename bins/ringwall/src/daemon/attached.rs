//! A command that the daemon runs, and the caller's streams, terminal and signals.

use std::io;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{self, Receiver};

use anyhow::Context;
use ringwall_engine::Output;
use ringwall_linux::signals::SignalWatch;
use ringwall_spec::{Command, Ending, Limits, Outcome};
use rustix::process::Signal;
use serde::Deserialize;
use serde_json::{Value, json};

use super::socket::{self, Message, Opened, Reading, Writing};
use crate::args::JobArgs;
use crate::exit;
use crate::job::{HeldSignals, STOPPED, Stop, each_input, start_thread};
use crate::terminal::{self, RawMode};

/// The daemon said no.
#[derive(Debug, Deserialize)]
pub(crate) struct Refused {
    code: String,
    detail: String,
    exit_code: Option<u8>,
}

impl std::fmt::Display for Refused {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.detail)
    }
}

impl std::error::Error for Refused {}

impl Refused {
    pub(crate) fn exit_code(&self) -> u8 {
        self.exit_code.unwrap_or(exit::OWN_ERROR)
    }

    /// Nothing was done, and the engine in this process may know more: an older daemon's API, an id that is
    /// only the beginning of one, or who has the name that is taken.
    fn may_be_known_here(&self) -> bool {
        let unknown = ["bad-request", "no-such-route", "method-not-allowed"];
        let here = ["not-found", "not-running", "name-taken"];
        unknown.iter().chain(&here).any(|code| *code == self.code)
    }
}

/// What an answer that is no success means: an error, or that the caller goes on without the daemon.
pub(crate) fn failed(status: u16, body: &[u8]) -> anyhow::Result<()> {
    let Ok(refused) = serde_json::from_slice::<Refused>(body) else {
        anyhow::bail!("the daemon answered with status {status}");
    };
    if refused.may_be_known_here() { Ok(()) } else { Err(refused.into()) }
}

/// A command that was asked for.
pub(crate) struct Attachment {
    reading: Reading,
    writing: Writing,
}

pub(crate) enum Driven {
    Ended(Box<Ended>),
    /// It was not done, and is to be done without the daemon.
    NotHere,
}

/// How it ended.
#[derive(Deserialize)]
pub(crate) struct Ended {
    pub(crate) ending: Ending,
    pub(crate) limits: Limits,
    /// The outcome, if it was a run.
    pub(crate) outcome: Option<Outcome>,
}

#[derive(Deserialize)]
#[serde(rename_all = "snake_case")]
enum Told {
    Started(Started),
    Taken,
    Ended(Box<Ended>),
    Failed(Refused),
}

#[derive(Deserialize)]
struct Started {
    warning: Option<String>,
}

impl Attachment {
    /// Asks for a command, if the daemon has such a route and thing.
    pub(crate) fn open(
        stream: UnixStream,
        path: &str,
        ask: &Value,
        command: &Command,
    ) -> anyhow::Result<Option<Attachment>> {
        // A command may be silent for as long as it likes.
        stream.set_read_timeout(None)?;
        let (reading, writing) = match socket::open(stream, path)? {
            Opened::Socket(reading, writing) => (reading, writing),
            Opened::Refused(status, body) => return failed(status, &body).map(|()| None),
        };
        let terminal = command.terminal.map(|it| json!({ "rows": it.rows, "columns": it.columns }));
        let opening = json!({ "ask": ask, "stdin": command.stdin, "terminal": terminal });
        writing.text(&opening.to_string())?;
        Ok(Some(Attachment { reading, writing }))
    }

    /// Ends the command, and all that was raised for it.
    pub(crate) fn stop(&self) -> Stop {
        let writing = self.writing.clone();
        // Where the daemon is gone, so is the command.
        Arc::new(move || drop(writing.text("\"stop\"")))
    }

    /// Until it has ended.
    pub(crate) fn drive(
        mut self,
        args: &JobArgs,
        signals: HeldSignals,
        output: &mut dyn Output,
        started: &dyn Fn(Option<&str>),
    ) -> anyhow::Result<Driven> {
        let (taken, next) = mpsc::sync_channel(1);
        let mut own = Some((signals, next));
        let mut raw = None;
        loop {
            let lost = "the daemon has gone, and what came of the command is not known";
            match self.reading.next().context(lost)? {
                Message::Bytes(bytes) => write(&bytes, output)?,
                Message::Text(text) => match serde_json::from_slice(&text).context(lost)? {
                    Told::Started(told) => {
                        started(told.warning.as_deref());
                        raw = self.connect(args, own.take())?.or(raw);
                    }
                    Told::Taken => drop(taken.try_send(())),
                    Told::Ended(ended) => {
                        drop(raw);
                        return Ok(Driven::Ended(ended));
                    }
                    Told::Failed(refused) if own.is_some() && refused.may_be_known_here() => {
                        return Ok(Driven::NotHere);
                    }
                    Told::Failed(refused) => {
                        drop(raw);
                        return Err(refused.into());
                    }
                },
                Message::Closed => anyhow::bail!(lost),
            }
        }
    }

    /// Input and signals have a thread each, which end with the process.
    fn connect(
        &self,
        args: &JobArgs,
        own: Option<(HeldSignals, Receiver<()>)>,
    ) -> anyhow::Result<Option<RawMode>> {
        let Some((signals, taken)) = own else { return Ok(None) };
        let signals = signals.taken()?;
        let raw = match args.tty && args.interactive {
            true => RawMode::enter().context("the terminal cannot be set to raw mode")?,
            false => None,
        };
        if args.interactive {
            let writing = self.writing.clone();
            start_thread("stdin", move || pass_input(&writing, &taken))?;
        }
        let (writing, stop) = (self.writing.clone(), self.stop());
        start_thread("signals", move || pass_signals(&signals, &writing, &stop))?;
        Ok(raw)
    }
}

/// The first byte says which stream the others are of.
fn write(bytes: &[u8], output: &mut dyn Output) -> io::Result<()> {
    match bytes.split_first() {
        Some((1, bytes)) => output.stdout(bytes),
        Some((2, bytes)) => output.stderr(bytes),
        _ => Err(socket::no_sense()),
    }
}

/// Each piece when the one before was taken; nothing at all is the end.
fn pass_input(writing: &Writing, taken: &Receiver<()>) {
    each_input(|piece| writing.bytes(piece).is_ok() && taken.recv().is_ok());
    let _ = writing.bytes(&[]);
}

/// As for a command that this process has started itself.
fn pass_signals(signals: &SignalWatch, writing: &Writing, stop: &Stop) {
    let mut asked_before = false;
    while let Ok(signal) = signals.wait() {
        if signal == Signal::WINCH.as_raw() {
            let size = terminal::size();
            let size = json!({ "resize": { "rows": size.rows, "columns": size.columns } });
            let _ = writing.text(&size.to_string());
            continue;
        }
        if asked_before || signal == Signal::TERM.as_raw() {
            STOPPED.store(true, Ordering::SeqCst);
            stop();
        } else {
            let _ = writing.text(&json!({ "signal": signal }).to_string());
        }
        asked_before = true;
    }
}
