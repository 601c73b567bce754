//! The gateway as a process: orders and replies over one socket, with the sockets of tasks beside.
//!
//! Each message is one JSON value. The first order is `start`, with the descriptor for events; `add`
//! comes with the task's listening sockets: the proxy, then, if the task has DNS, UDP and TCP.

use std::fs::File;
use std::io;
use std::net::{TcpListener, UdpSocket};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use ringwall_linux::fdpass;
use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::event::Lines;
use crate::gateway::{Gateway, Settings, TaskInfo, TaskSpec};
use crate::listen::Listeners;
use crate::meter::Usage;
use crate::rules::RuleSet;

#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Order {
    Start(Box<Settings>),
    Add(Box<TaskSpec>),
    /// New rules; open streams that they forbid are closed.
    Reload {
        id: String,
        rules: Box<RuleSet>,
    },
    Remove {
        id: String,
    },
    Usage {
        id: String,
    },
}

#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Reply {
    Done,
    Added(TaskInfo),
    Usage(Usage),
    Failed(String),
}

#[derive(Debug, Error)]
pub enum ControlError {
    #[error("the conversation with the gateway broke off: {0}")]
    Io(#[from] io::Error),
    #[error("a message of the gateway's conversation is broken: {0}")]
    Message(#[from] serde_json::Error),
    #[error("the gateway is gone")]
    Gone,
    #[error("the gateway refuses: {0}")]
    Refused(String),
    #[error("the gateway answered something else than it was asked")]
    Unexpected,
}

/// Serves orders until the socket ends; then all tasks end with it.
pub fn serve(control: &OwnedFd) -> Result<(), ControlError> {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let _within = runtime.enter();
    let mut gateway = None;
    let mut buffer = vec![0; fdpass::MAX_MESSAGE];
    while let Some((size, descriptors)) = fdpass::receive(control.as_fd(), &mut buffer)? {
        let reply = obey(&mut gateway, &buffer[..size], descriptors).unwrap_or_else(Reply::Failed);
        fdpass::send(control.as_fd(), &serde_json::to_vec(&reply)?, &[])?;
    }
    drop(gateway);
    // Streams that wait for a peer are not waited for.
    runtime.shutdown_background();
    Ok(())
}

fn obey(
    gateway: &mut Option<Gateway>,
    message: &[u8],
    descriptors: Vec<OwnedFd>,
) -> Result<Reply, String> {
    let order: Order = serde_json::from_slice(message).map_err(|error| error.to_string())?;
    let told = |error: &dyn std::error::Error| error.to_string();
    match (order, gateway) {
        (Order::Start(settings), slot @ None) => {
            let [events] = <[OwnedFd; 1]>::try_from(descriptors)
                .map_err(|_| "start comes with one descriptor, for events")?;
            let sink = Arc::new(Lines::to(File::from(events)));
            *slot = Some(Gateway::new(&settings, sink).map_err(|error| told(&error))?);
            Ok(Reply::Done)
        }
        (Order::Start(_), Some(_)) => Err("it was started already".into()),
        (_, None) => Err("it was not started".into()),
        (Order::Add(spec), Some(gateway)) => {
            let listeners = listeners(descriptors)?;
            gateway.add(&spec, listeners).map(Reply::Added).map_err(|error| told(&error))
        }
        (Order::Reload { id, rules }, Some(gateway)) => {
            gateway.reload(&id, &rules).map(|()| Reply::Done).map_err(|error| told(&error))
        }
        (Order::Remove { id }, Some(gateway)) => {
            gateway.remove(&id).map(Reply::Usage).map_err(|error| told(&error))
        }
        (Order::Usage { id }, Some(gateway)) => {
            gateway.usage(&id).map(Reply::Usage).map_err(|error| told(&error))
        }
    }
}

fn listeners(descriptors: Vec<OwnedFd>) -> Result<Listeners, String> {
    let mut descriptors = descriptors.into_iter();
    let sockets = (descriptors.next(), descriptors.next(), descriptors.next(), descriptors.next());
    let taken = match sockets {
        (Some(proxy), None, ..) => Listeners::new(TcpListener::from(proxy), None, None),
        (Some(proxy), Some(udp), Some(tcp), None) => Listeners::new(
            TcpListener::from(proxy),
            Some(UdpSocket::from(udp)),
            Some(TcpListener::from(tcp)),
        ),
        _ => return Err("a task comes with one listening socket or three".into()),
    };
    taken.map_err(|error| error.to_string())
}

/// The other end: whoever started the gateway's process.
#[derive(Debug)]
pub struct Control(OwnedFd);

impl Control {
    /// Takes the socket, and starts the gateway, which writes its events to `events`.
    pub fn start(
        socket: OwnedFd,
        settings: Settings,
        events: BorrowedFd<'_>,
    ) -> Result<Self, ControlError> {
        let control = Self(socket);
        match control.say(&Order::Start(Box::new(settings)), &[events])? {
            Reply::Done => Ok(control),
            _ => Err(ControlError::Unexpected),
        }
    }

    /// The proxy's listening socket, and those of DNS (UDP, TCP) if the task has it.
    pub fn add(
        &self,
        spec: TaskSpec,
        proxy: BorrowedFd<'_>,
        dns: Option<(BorrowedFd<'_>, BorrowedFd<'_>)>,
    ) -> Result<TaskInfo, ControlError> {
        let mut descriptors = vec![proxy];
        descriptors.extend(dns.into_iter().flat_map(|(udp, tcp)| [udp, tcp]));
        match self.say(&Order::Add(Box::new(spec)), &descriptors)? {
            Reply::Added(info) => Ok(info),
            _ => Err(ControlError::Unexpected),
        }
    }

    pub fn reload(&self, id: &str, rules: RuleSet) -> Result<(), ControlError> {
        match self.say(&Order::Reload { id: id.into(), rules: Box::new(rules) }, &[])? {
            Reply::Done => Ok(()),
            _ => Err(ControlError::Unexpected),
        }
    }

    pub fn remove(&self, id: &str) -> Result<Usage, ControlError> {
        self.usage_after(&Order::Remove { id: id.into() })
    }

    pub fn usage(&self, id: &str) -> Result<Usage, ControlError> {
        self.usage_after(&Order::Usage { id: id.into() })
    }

    fn usage_after(&self, order: &Order) -> Result<Usage, ControlError> {
        match self.say(order, &[])? {
            Reply::Usage(usage) => Ok(usage),
            _ => Err(ControlError::Unexpected),
        }
    }

    fn say(&self, order: &Order, beside: &[BorrowedFd<'_>]) -> Result<Reply, ControlError> {
        fdpass::send(self.0.as_fd(), &serde_json::to_vec(order)?, beside)?;
        let mut buffer = vec![0; fdpass::MAX_MESSAGE];
        let received = fdpass::receive(self.0.as_fd(), &mut buffer)?;
        let (size, _) = received.ok_or(ControlError::Gone)?;
        match serde_json::from_slice(&buffer[..size])? {
            Reply::Failed(reason) => Err(ControlError::Refused(reason)),
            reply => Ok(reply),
        }
    }
}
