//! The lines that host and agent send each other, each one JSON value.

use serde::{Deserialize, Serialize};

/// The name of the serial port, on both sides.
pub const PORT_NAME: &str = "ringwall-lab";

#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ToAgent {
    Run(Order),
    End,
}

#[derive(Debug, Serialize, Deserialize)]
pub struct Order {
    pub user: String,
    pub script: String,
    pub seconds: u64,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FromAgent {
    /// The first line: the machine is up.
    Ready {
        release: String,
    },
    Done(JobReport),
}

/// What the agent saw of one job.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct JobReport {
    /// `None` if a signal ended the job.
    pub code: Option<i32>,
    pub timed_out: bool,
    /// Both streams, the end of them if they are long.
    pub output: String,
    pub millis: u64,
}
