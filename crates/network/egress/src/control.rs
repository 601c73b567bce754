//! Orders to the gateway's process and its replies, over one socket, with descriptors beside them.
//!
//! Each message is one JSON value. The first order is `start`, with the descriptor for events. `add`
//! comes with the descriptors from which its secrets are read, and `listen` with the task's listening
//! sockets: the proxy, then, if the task has DNS, UDP and TCP, then those for connections to any address.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use ringwall_linux::fdpass;
use ringwall_spec::{RuleSet, Scheme};
use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::task::{Settings, TaskInfo, TaskSpec, Usage};

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Order {
    Start(Box<Settings>),
    Add(Box<TaskSpec>),
    /// Serve the task on the sockets that are beside.
    Listen {
        id: String,
    },
    /// Serve one connection of the task, which is beside.
    Connect {
        id: String,
        to: Entrance,
    },
    /// New rules, every one of which must allow; open streams that they forbid are closed.
    Reload {
        id: String,
        rules: Vec<RuleSet>,
    },
    Remove {
        id: String,
    },
    Usage {
        id: String,
    },
    /// What would be decided, without doing anything. Needs no start.
    Explain(Box<Question>),
}

/// Where a connection was made to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Entrance {
    Proxy,
    Dns,
    /// Some address; the connection begins with it and the port, in six bytes.
    Direct,
}

/// A request that somebody thinks of, and the rules to judge it by.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Question {
    pub rules: Vec<RuleSet>,
    pub host: String,
    pub scheme: Scheme,
    pub port: Option<u16>,
    /// Method and path; without them the question is about the connection.
    pub request: Option<(String, String)>,
}

/// The answer, with the rule or the reason.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Answer {
    Allowed { rule: String, secret: Option<String> },
    Refused { reason: String },
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Reply {
    Done,
    Added(TaskInfo),
    Usage(Usage),
    Explained(Answer),
    Failed(String),
}

#[derive(Debug, Error)]
pub enum ControlError {
    #[error("the conversation with the gateway broke off")]
    Io(#[from] io::Error),
    #[error("a message of the gateway's conversation is broken")]
    Message(#[from] serde_json::Error),
    #[error("the gateway is gone")]
    Gone,
    #[error(
        "the gateway does not answer and may be held up in the kernel; `dmesg` may say why, and \
         `ringwall gc` removes what is left"
    )]
    Stuck,
    #[error("the gateway refuses: {0}")]
    Refused(String),
    #[error("the gateway answered something else than it was asked")]
    Unexpected,
}

/// The end of the socket that gives orders.
#[derive(Debug)]
pub struct Control(OwnedFd);

impl Control {
    pub fn new(socket: OwnedFd) -> Self {
        Self(socket)
    }

    /// Starts the gateway, which writes its events to `events`.
    pub fn start(&self, settings: Settings, events: BorrowedFd<'_>) -> Result<(), ControlError> {
        self.done(&Order::Start(Box::new(settings)), &[events])
    }

    /// Makes a task known. `secrets` are what its specs of secrets call `beside`.
    pub fn add(
        &self,
        spec: TaskSpec,
        secrets: &[BorrowedFd<'_>],
    ) -> Result<TaskInfo, ControlError> {
        match self.say(&Order::Add(Box::new(spec)), secrets)? {
            Reply::Added(info) => Ok(info),
            _ => Err(ControlError::Unexpected),
        }
    }

    /// The proxy's listening socket, those of DNS (UDP, TCP) if the task has it, and behind them those
    /// for connections to any address.
    pub fn listen(&self, id: &str, sockets: &[BorrowedFd<'_>]) -> Result<(), ControlError> {
        self.done(&Order::Listen { id: id.into() }, sockets)
    }

    /// One connection, for a sandbox whose sockets cannot be handed out.
    pub fn connect(
        &self,
        id: &str,
        to: Entrance,
        stream: BorrowedFd<'_>,
    ) -> Result<(), ControlError> {
        self.done(&Order::Connect { id: id.into(), to }, &[stream])
    }

    pub fn reload(&self, id: &str, rules: Vec<RuleSet>) -> Result<(), ControlError> {
        self.done(&Order::Reload { id: id.into(), rules }, &[])
    }

    pub fn remove(&self, id: &str) -> Result<Usage, ControlError> {
        self.usage_after(&Order::Remove { id: id.into() })
    }

    pub fn usage(&self, id: &str) -> Result<Usage, ControlError> {
        self.usage_after(&Order::Usage { id: id.into() })
    }

    pub fn explain(&self, question: Question) -> Result<Answer, ControlError> {
        match self.say(&Order::Explain(Box::new(question)), &[])? {
            Reply::Explained(answer) => Ok(answer),
            _ => Err(ControlError::Unexpected),
        }
    }

    fn done(&self, order: &Order, beside: &[BorrowedFd<'_>]) -> Result<(), ControlError> {
        match self.say(order, beside)? {
            Reply::Done => Ok(()),
            _ => Err(ControlError::Unexpected),
        }
    }

    fn usage_after(&self, order: &Order) -> Result<Usage, ControlError> {
        match self.say(order, &[])? {
            Reply::Usage(usage) => Ok(usage),
            _ => Err(ControlError::Unexpected),
        }
    }

    fn say(&self, order: &Order, beside: &[BorrowedFd<'_>]) -> Result<Reply, ControlError> {
        fdpass::send(self.0.as_fd(), &serde_json::to_vec(order)?, beside).map_err(no_answer)?;
        let mut buffer = vec![0; fdpass::MAX_MESSAGE];
        let received = fdpass::receive(self.0.as_fd(), &mut buffer).map_err(no_answer)?;
        let (size, _) = received.ok_or(ControlError::Gone)?;
        match serde_json::from_slice(buffer.get(..size).unwrap_or_default())? {
            Reply::Failed(reason) => Err(ControlError::Refused(reason)),
            reply => Ok(reply),
        }
    }
}

/// The time that the owner of the socket has set for it is over.
fn no_answer(error: io::Error) -> ControlError {
    match error.kind() {
        io::ErrorKind::WouldBlock => ControlError::Stuck,
        _ => ControlError::Io(error),
    }
}
