//! The engine's blocking side: calls that look like functions, over one shared connection.
//!
//! Invariant: no call outlives its deadline because of the warden. Calls without one end at the
//! latest when the warden is gone.

mod error;
mod exchange;
mod files;
mod inbox;
mod link;
mod relay;
mod tools;

use std::io::{self, Read, Write};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::time::{Duration, Instant};

use ringwall_spec::RingFacts;

use crate::error::{StreamError, Violation};
use crate::message::{Door, GuestUsage, RaisePlanned, RaiseRing, Reply, Request, StartProcess};
use crate::process::RemoteProcess;
use crate::tunnel::Tunnel;
pub use error::ClientError;
pub(crate) use exchange::{Exchange, Item, Outlet};
pub use files::{Parents, RemoveWhat};
use link::Link;
pub use tools::{Answer, CallStop};

/// A connection to one warden. Clones share it; it closes with the last of them and of what they
/// started.
#[derive(Debug, Clone)]
pub struct Client {
    link: Arc<Link>,
    deadline: Option<Instant>,
    stop: Option<CallStop>,
}

/// A guest rests. What others want of the connection meanwhile waits until this is dropped.
#[derive(Debug)]
pub struct Rest {
    link: Arc<Link>,
    /// Whether processes were stopped for it.
    pub frozen: bool,
}

/// A tunnel that was requested and has not been given yet.
#[derive(Debug)]
pub struct PendingTunnel {
    exchange: Exchange,
    deadline: Option<Instant>,
}

impl PendingTunnel {
    pub fn wait(self) -> Result<Tunnel, ClientError> {
        match self.exchange.reply(self.deadline)? {
            Reply::Raised => Ok(Tunnel::new(self.exchange)),
            _ => Err(unexpected_reply()),
        }
    }
}

impl Drop for Rest {
    fn drop(&mut self) {
        self.link.release();
    }
}

impl Client {
    /// Sends nothing yet: the greeting travels with the first request, and a peer that is no
    /// warden shows in its answer.
    pub fn connect(socket: UnixStream) -> io::Result<Client> {
        Ok(Client { link: Arc::new(Link::new(socket)?), deadline: None, stop: None })
    }

    /// Over any pair of byte streams, such as a [`Tunnel`]. Two threads carry the bytes; they end
    /// when the client and the streams do.
    pub fn over(
        reader: impl Read + Send + 'static,
        writer: impl Write + Send + 'static,
    ) -> io::Result<Client> {
        Client::connect(relay::to_socket(reader, writer)?)
    }

    /// The same connection, with a time by which every call made on it must have ended.
    #[must_use]
    pub fn until(&self, deadline: Instant) -> Client {
        Client { deadline: Some(deadline), ..self.clone() }
    }

    /// Shares the connection. Calls of tools on it end when they are told to stop.
    #[must_use]
    pub fn unless(&self, stop: &CallStop) -> Client {
        Client { stop: Some(stop.clone()), ..self.clone() }
    }

    pub fn facts(&self, timeout: Duration) -> Result<RingFacts, ClientError> {
        match self.within(timeout).ask(&Request::Facts)? {
            Reply::Facts(facts) => Ok(*facts),
            _ => Err(unexpected_reply()),
        }
    }

    /// Returns once the program runs, or could not be started.
    pub fn start(&self, process: &StartProcess) -> Result<RemoteProcess, ClientError> {
        let exchange = self.open(&Request::Start(process.clone()))?;
        match exchange.reply(self.deadline)? {
            Reply::Started { pid } => Ok(RemoteProcess::new(exchange, pid)),
            _ => Err(unexpected_reply()),
        }
    }

    /// Raises the next ring; the tunnel leads to its warden.
    pub fn raise(&self, steps: Vec<u8>) -> Result<Tunnel, ClientError> {
        self.tunnel(&Request::Raise(RaiseRing { steps }))
    }

    /// Raises the next ring in a guest, as it would be raised on a host.
    pub fn raise_planned(&self, plan: RaisePlanned) -> Result<Tunnel, ClientError> {
        self.tunnel(&Request::RaisePlanned(plan))
    }

    /// Waits for the next connection that a program inside makes to a door.
    pub fn accept(&self, door: Door) -> Result<Tunnel, ClientError> {
        self.begin_accept(door)?.wait()
    }

    /// Asks for the next connection to a door. The warden reads requests in order, so programs that are
    /// started after this find the door open.
    pub fn begin_accept(&self, door: Door) -> Result<PendingTunnel, ClientError> {
        let exchange = self.open(&Request::Accept { door })?;
        Ok(PendingTunnel { exchange, deadline: self.deadline })
    }

    /// What all jobs of a guest used.
    pub fn usage(&self, timeout: Duration) -> Result<GuestUsage, ClientError> {
        match self.within(timeout).ask(&Request::Usage)? {
            Reply::Usage(usage) => Ok(usage),
            _ => Err(unexpected_reply()),
        }
    }

    /// Lets a guest come to rest. It then waits to be adopted again, over the stream itself: this
    /// connection says and hears nothing before what is given back is dropped.
    pub fn checkpoint(&self, timeout: Duration) -> Result<Rest, ClientError> {
        let deadline = self.within(timeout).deadline;
        let exchange = Exchange::open_last(&self.link, &Request::Checkpoint, deadline)?;
        let mut rest = Rest { link: Arc::clone(&self.link), frozen: false };
        match exchange.reply(deadline)? {
            Reply::Resting { frozen } => {
                rest.frozen = frozen;
                Ok(rest)
            }
            _ => Err(unexpected_reply()),
        }
    }

    /// Has a keeper keep its sandbox with its memory.
    pub fn snapshot(
        &self,
        (id, name): (&str, Option<&str>),
        for_fork: bool,
        timeout: Duration,
    ) -> Result<(), ClientError> {
        let (id, name) = (id.to_owned(), name.map(str::to_owned));
        self.within(timeout).ask(&Request::Snapshot { id, name, for_fork }).map(drop)
    }

    /// Takes a sandbox that a keeper has kept ready, by this sealed permit.
    pub fn take(&self, permit: Vec<u8>, timeout: Duration) -> Result<(), ClientError> {
        self.within(timeout).ask(&Request::Take { permit }).map(drop)
    }

    /// Has a keeper change where jobs may write.
    pub fn change_rights(&self, change: Vec<u8>, timeout: Duration) -> Result<(), ClientError> {
        self.within(timeout).ask(&Request::ChangeRights { change }).map(drop)
    }

    /// Has the first process of a guest change what jobs see of the workspace.
    pub fn adjust(&self, steps: Vec<u8>) -> Result<(), ClientError> {
        self.ask(&Request::Adjust { steps }).map(drop)
    }

    fn tunnel(&self, request: &Request) -> Result<Tunnel, ClientError> {
        PendingTunnel { exchange: self.open(request)?, deadline: self.deadline }.wait()
    }

    /// Returns once the warden has agreed to end. That it has ended shows in its process.
    pub fn shutdown(&self, timeout: Duration) -> Result<(), ClientError> {
        self.within(timeout).ask(&Request::Shutdown).map(drop)
    }

    fn open(&self, request: &Request) -> Result<Exchange, ClientError> {
        Exchange::open(&self.link, request, self.deadline)
    }

    fn ask(&self, request: &Request) -> Result<Reply, ClientError> {
        self.open(request)?.reply(self.deadline)
    }

    /// The earlier of the two times counts.
    fn within(&self, timeout: Duration) -> Client {
        let deadline = [Instant::now().checked_add(timeout), self.deadline].into_iter().flatten();
        Client { deadline: deadline.min(), ..self.clone() }
    }
}

/// The connection lets only the replies of a request through; were that to change, fail closed.
pub(crate) fn unexpected_reply() -> ClientError {
    ClientError::Stream(StreamError::ByPeer(Violation::UnexpectedReply))
}
