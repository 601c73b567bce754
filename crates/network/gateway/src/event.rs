//! To whom the gateway tells about each decision.

use std::fs::File;
use std::io::{self, Write};
use std::sync::{Mutex, PoisonError};

pub use ringwall_egress::{Door, Event, Verdict};
use rustix::fs::OFlags;
use thiserror::Error;

const LONGEST_TEXT: usize = 256;

/// Text of a client for an event: bounded and printable.
pub(crate) fn bounded(text: &str) -> String {
    text.chars().take(LONGEST_TEXT).map(|c| if c.is_control() { '?' } else { c }).collect()
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[error("decisions cannot be recorded at the moment, so none is made")]
pub struct NotRecorded;

/// Takes events. What cannot be recorded is not allowed.
pub trait Sink: Send + Sync {
    fn record(&self, event: &Event) -> Result<(), NotRecorded>;
}

/// One JSON line per event. It is in the reader's pipe before anything happens that it tells of, so
/// that nothing is lost with this process.
#[derive(Debug)]
pub struct Lines(File);

/// What a pipe takes whole or not at all (`PIPE_BUF`, pipe(7)).
const LONGEST_LINE: usize = 4096;

impl Lines {
    /// A reader that does not keep up must not stall streams: what cannot be written at once is not
    /// recorded.
    pub fn to(writer: File) -> io::Result<Self> {
        let flags = rustix::fs::fcntl_getfl(&writer)?;
        rustix::fs::fcntl_setfl(&writer, flags | OFlags::NONBLOCK)?;
        Ok(Self(writer))
    }
}

impl Sink for Lines {
    fn record(&self, event: &Event) -> Result<(), NotRecorded> {
        let mut line = serde_json::to_vec(event).map_err(|_| NotRecorded)?;
        line.push(b'\n');
        if line.len() > LONGEST_LINE {
            return Err(NotRecorded);
        }
        match (&self.0).write(&line) {
            Ok(written) if written == line.len() => Ok(()),
            _ => Err(NotRecorded),
        }
    }
}

/// Keeps events in memory, for whoever has the gateway in its own process.
#[derive(Debug, Default)]
pub struct Memory(Mutex<Vec<Event>>);

impl Memory {
    pub fn events(&self) -> Vec<Event> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl Sink for Memory {
    fn record(&self, event: &Event) -> Result<(), NotRecorded> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(event.clone());
        Ok(())
    }
}
