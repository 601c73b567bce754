//! The next ring: raised from in here, and spoken to through us.
//!
//! We carry the bytes and do not look at them. When our side of the tunnel is dropped, the inner
//! ring is killed.

use std::error::Error;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::path::Path;

use ringwall_linux::launch::{self, EncodedPlan, InnerRing, LaunchError, Spawner};
use ringwall_wire::{
    Channel, Connection, ErrorCode, RaisePlanned, RemoteError, StreamId, guest_paths,
};
use rustix::event::PollFlags;
use rustix::net::Shutdown;
use rustix::process::{Pid, Signal, pidfd_send_signal};

use crate::error::{failed, refused};
use crate::job::Port;
use crate::pump::{Flushed, Forwarded, Outbox, forward};
use crate::start::set_nonblocking;
use crate::tree;

/// A few short lines.
const FDINFO_MAX: usize = 1024;

#[derive(Debug)]
pub(crate) struct Tunnel {
    inner: OwnedFd,
    /// Of a ring that we raised; a connection has none.
    ring: Option<Ring>,
    outbox: Outbox,
    /// The engine sends no more.
    engine_ended: bool,
    /// The inner warden takes no more.
    inner_deaf: bool,
    /// The inner warden sends no more.
    inner_ended: bool,
}

#[derive(Debug)]
struct Ring {
    first_process: OwnedFd,
    /// The mount of its workspace, its user namespace and its mounts, from before its first job.
    workspace: Option<[OwnedFd; 3]>,
    /// Ends with the ring.
    _launcher: Option<Spawner>,
}

pub(crate) fn raise(steps: &[u8]) -> Result<Tunnel, RemoteError> {
    Tunnel::new(launch::raise_inner(steps).map_err(not_raised)?)
}

/// Raises a ring in a guest, in the control group that `join` leads to.
pub(crate) fn raise_planned(plan: &RaisePlanned, join: &OwnedFd) -> Result<Tunnel, RemoteError> {
    let encoded = EncodedPlan { template: &plan.template, ahead: &plan.ahead, last: &plan.last };
    let launcher = Path::new(guest_paths::LAUNCHER);
    let mut ring = launch::raise_planned(launcher, encoded, join).map_err(not_raised)?;
    let workspace = match plan.reports_workspace && !ring.reported.is_empty() {
        true => Some(with_namespaces(ring.reported.remove(0), &ring.pidfd)?),
        false => None,
    };
    let mut tunnel = Tunnel::new(ring)?;
    if let Some(ring) = &mut tunnel.ring {
        ring.workspace = workspace;
    }
    Ok(tunnel)
}

fn with_namespaces(mount: OwnedFd, process: &OwnedFd) -> Result<[OwnedFd; 3], RemoteError> {
    let gone = || refused(ErrorCode::System, "the inner ring ended too early");
    let pid = pid_of(process).ok_or_else(gone)?;
    let open = |kind: &str| {
        let path = format!("/proc/{}/ns/{kind}", pid.as_raw_nonzero());
        std::fs::File::open(path).map(OwnedFd::from).map_err(|_| gone())
    };
    Ok([mount, open("user")?, open("mnt")?])
}

/// Has a launcher change what jobs see, by encoded steps. These descriptors are its passed slots.
pub(crate) fn adjust(steps: &[u8], held: &[BorrowedFd<'_>]) -> Result<(), RemoteError> {
    let launcher = Path::new(guest_paths::LAUNCHER);
    launch::adjust(launcher, steps, held).map_err(|error| RemoteError {
        code: ErrorCode::System,
        errno: match &error {
            LaunchError::Step(failure) => failure.errno,
            _ => None,
        },
        message: with_causes(&error),
    })
}

fn not_raised(error: LaunchError) -> RemoteError {
    let message = format!("the inner ring could not be raised: {}", with_causes(&error));
    refused(ErrorCode::System, &message)
}

/// The engine gets text only, so the causes go into it.
fn with_causes(error: &dyn Error) -> String {
    let causes = std::iter::successors(error.source(), |cause: &&dyn Error| (*cause).source());
    causes.fold(error.to_string(), |text, cause| format!("{text}: {cause}"))
}

impl Tunnel {
    fn new(ring: InnerRing) -> Result<Tunnel, RemoteError> {
        set_nonblocking(&ring.stream)
            .map_err(|errno| failed("cannot prepare the inner ring's stream", errno))?;
        let of_ring = Ring { first_process: ring.pidfd, workspace: None, _launcher: ring.launcher };
        Ok(Tunnel { ring: Some(of_ring), ..Tunnel::of_connection(ring.stream) })
    }

    /// A connection, which does not block, instead of a ring's stream.
    pub(crate) fn of_connection(inner: OwnedFd) -> Tunnel {
        Tunnel {
            inner,
            ring: None,
            outbox: Outbox::default(),
            engine_ended: false,
            inner_deaf: false,
            inner_ended: false,
        }
    }

    pub(crate) fn interests(
        &self,
        sendable: usize,
    ) -> impl Iterator<Item = (Port, BorrowedFd<'_>, PollFlags)> {
        let writing = !self.outbox.is_empty() && !self.inner_deaf;
        let reading = sendable > 0 && !self.inner_ended;
        let fd = self.inner.as_fd();
        [
            writing.then_some((Port::Input, fd, PollFlags::OUT)),
            reading.then_some((Port::Output, fd, PollFlags::IN)),
        ]
        .into_iter()
        .flatten()
    }

    pub(crate) fn ready(
        &mut self,
        port: Port,
        connection: &mut Connection,
        stream: StreamId,
        buffer: &mut [u8],
    ) {
        if port == Port::Input {
            self.feed(connection, stream);
        } else if forward(connection, stream, Channel::Bytes, &self.inner, buffer)
            == Forwarded::Closed
        {
            self.inner_ended = true;
            connection.end(stream);
        }
    }

    pub(crate) fn input(&mut self, bytes: Vec<u8>, connection: &mut Connection, stream: StreamId) {
        self.outbox.push(bytes);
        self.feed(connection, stream);
    }

    pub(crate) fn end_input(&mut self, connection: &mut Connection, stream: StreamId) {
        self.engine_ended = true;
        self.feed(connection, stream);
    }

    fn feed(&mut self, connection: &mut Connection, stream: StreamId) {
        if !self.inner_deaf {
            let (written, flushed) = self.outbox.flush(self.inner.as_fd());
            connection.consumed(stream, written);
            self.inner_deaf = flushed == Flushed::Closed;
            if flushed == Flushed::Everything && self.engine_ended {
                let _ = rustix::net::shutdown(&self.inner, Shutdown::Write);
            }
        }
        if self.inner_deaf {
            connection.consumed(stream, self.outbox.discard());
        }
    }

    /// What a change of rights in this ring needs, if it has the workspace.
    pub(crate) fn workspace(&self) -> Option<Vec<BorrowedFd<'_>>> {
        let held = self.ring.as_ref()?.workspace.as_ref()?;
        Some(held.iter().map(AsFd::as_fd).collect())
    }

    pub(crate) fn is_connection(&self) -> bool {
        self.ring.is_none()
    }

    pub(crate) fn is_over(&self) -> bool {
        self.inner_ended && self.engine_ended
    }
}

impl Drop for Ring {
    fn drop(&mut self) {
        // Not only the first process: without a pid namespace of its own, what it started would
        // fall to us and live on. It holds its orphans, so the whole ring is below it.
        match pid_of(&self.first_process) {
            Some(first) => tree::kill(first),
            None => {
                let _ = pidfd_send_signal(&self.first_process, Signal::KILL);
            }
        }
    }
}

/// Our name for the process, unless it has ended: only then could the number be someone else's.
fn pid_of(process: &OwnedFd) -> Option<Pid> {
    let path = format!("/proc/self/fdinfo/{}", process.as_raw_fd());
    let info = ringwall_facts::read_start(&path, FDINFO_MAX)?;
    let number = info.lines().find_map(|line| line.strip_prefix("Pid:"))?;
    number.trim().parse().ok().filter(|pid| *pid > 0).and_then(Pid::from_raw)
}
