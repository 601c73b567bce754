//! What the gateway tells about each decision, and to whom. No event holds a secret or a query.

use std::io::Write;
use std::net::IpAddr;
use std::sync::mpsc::{SyncSender, sync_channel};
use std::sync::{Mutex, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

use serde::{Deserialize, Serialize};
use thiserror::Error;

/// By which way a client came.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Door {
    Http,
    Connect,
    Socks,
    Dns,
    Inference,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    Allowed,
    Refused,
    /// Was allowed and went wrong on the way: not reachable, not to be trusted.
    Failed,
    /// An allowed stream came to its end, with the sizes.
    Ended,
    /// An allowed stream was cut: new rules, or a limit.
    Cut,
}

/// One decision, or the end of what it allowed (`stream` is the same then).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Event {
    pub task: String,
    /// Milliseconds since 1970.
    pub at: u64,
    pub stream: u64,
    pub door: Door,
    pub verdict: Verdict,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub host: String,
    #[serde(default, skip_serializing_if = "is_zero")]
    pub port: u16,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub method: Option<String>,
    /// Without the query; cut at 256 bytes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub path: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rule: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub address: Option<IpAddr>,
    /// The secret that was put in, by name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub secret: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub status: Option<u16>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    #[serde(default)]
    pub bytes_up: u64,
    #[serde(default)]
    pub bytes_down: u64,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde calls it with a reference")]
fn is_zero(port: &u16) -> bool {
    *port == 0
}

const LONGEST_TEXT: usize = 256;

impl Event {
    pub fn new(task: &str, stream: u64, door: Door, verdict: Verdict) -> Self {
        let at = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Self {
            task: task.to_owned(),
            at: u64::try_from(at.as_millis()).unwrap_or(u64::MAX),
            stream,
            door,
            verdict,
            host: String::new(),
            port: 0,
            method: None,
            path: None,
            rule: None,
            address: None,
            secret: None,
            status: None,
            reason: None,
            bytes_up: 0,
            bytes_down: 0,
        }
    }
}

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

/// One JSON line per event, written by a thread of its own, so that a slow reader stalls no stream.
#[derive(Debug)]
pub struct Lines {
    queue: SyncSender<Vec<u8>>,
}

const MOST_WAITING: usize = 4096;

impl Lines {
    pub fn to(mut writer: impl Write + Send + 'static) -> Self {
        let (queue, waiting) = sync_channel::<Vec<u8>>(MOST_WAITING);
        std::thread::spawn(move || {
            while let Ok(line) = waiting.recv() {
                if writer.write_all(&line).and_then(|()| writer.flush()).is_err() {
                    return;
                }
            }
        });
        Self { queue }
    }
}

impl Sink for Lines {
    fn record(&self, event: &Event) -> Result<(), NotRecorded> {
        let mut line = serde_json::to_vec(event).map_err(|_| NotRecorded)?;
        line.push(b'\n');
        self.queue.try_send(line).map_err(|_| NotRecorded)
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
