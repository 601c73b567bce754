//! A program that runs inside a ring, seen from outside.

use std::time::Instant;

use ringwall_spec::TerminalSize;

use crate::client::{ClientError, Exchange, Item, Outlet, unexpected_reply};
use crate::connection::Channel;
use crate::limits::MAX_DATA_BYTES;
use crate::message::{ExitReport, Reply};

/// Dropping it cancels the program.
#[derive(Debug)]
pub struct RemoteProcess {
    exchange: Exchange,
    pid: u32,
    exited: Option<ExitReport>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ProcessEvent {
    Stdout(Vec<u8>),
    Stderr(Vec<u8>),
    /// The last event, after all output.
    Exited(ExitReport),
}

/// The way in. May be used from other threads than the one that reads the output.
#[derive(Debug, Clone)]
pub struct ProcessInput {
    outlet: Outlet,
}

impl RemoteProcess {
    pub(crate) fn new(exchange: Exchange, pid: u32) -> Self {
        RemoteProcess { exchange, pid, exited: None }
    }

    /// As the ring counts processes.
    pub fn pid(&self) -> u32 {
        self.pid
    }

    /// Blocks until there is output or the program has exited. Only what is taken here is made
    /// room for, so a program that floods is held back by a caller that does not ask.
    pub fn next(&mut self, deadline: Option<Instant>) -> Result<ProcessEvent, ClientError> {
        if let Some(report) = self.exited {
            return Ok(ProcessEvent::Exited(report));
        }
        match self.exchange.next(MAX_DATA_BYTES, deadline)? {
            Item::Data(Channel::Stderr, bytes) => Ok(ProcessEvent::Stderr(bytes)),
            Item::Data(_, bytes) => Ok(ProcessEvent::Stdout(bytes)),
            Item::Reply(Reply::Exited(report)) => {
                self.exited = Some(report);
                Ok(ProcessEvent::Exited(report))
            }
            Item::Reply(_) => Err(unexpected_reply()),
        }
    }

    pub fn input(&self) -> ProcessInput {
        ProcessInput { outlet: self.exchange.outlet() }
    }
}

impl ProcessInput {
    /// Writes to the program's standard input, as fast as it takes it. Fails with
    /// [`ClientError::InputClosed`] once the program has exited or its input was closed.
    pub fn write_all(&self, bytes: &[u8]) -> Result<(), ClientError> {
        self.outlet.send_all(bytes, None)
    }

    /// The program sees the end of its input. Never blocks, like all that follow.
    pub fn close(&self) {
        self.outlet.end();
    }

    pub fn signal(&self, signal: i32) {
        let stream = self.outlet.stream();
        self.outlet.tell(|state| state.connection.signal(stream, signal));
    }

    pub fn resize(&self, size: TerminalSize) {
        let stream = self.outlet.stream();
        self.outlet.tell(|state| state.connection.resize(stream, size));
    }
}
