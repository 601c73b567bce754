//! What the gateway tells about each decision. No event holds a secret or a query.

use std::net::IpAddr;
use std::time::{SystemTime, UNIX_EPOCH};

use serde::{Deserialize, Serialize};

/// By which way a client came.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Door {
    Http,
    Connect,
    Socks,
    Dns,
    Inference,
    /// The gateway itself, at the server that makes tokens of a secret.
    Token,
    /// Straight to an address, by a program that knows no proxy.
    Direct,
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
