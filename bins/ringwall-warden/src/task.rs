//! What one stream is busy with.

use std::os::fd::BorrowedFd;

use ringwall_spec::TerminalSize;
use ringwall_wire::{Channel, Connection, Reply, StreamId};
use rustix::event::PollFlags;

use crate::files::{Listing, Progress, Reader, Removal, Writer};
use crate::guest::{TakeWorkspace, Unpacking};
use crate::job::{Job, Port};
use crate::network::{Accepting, FIRST_BYTES};
use crate::raise::Tunnel;

#[derive(Debug)]
pub(crate) enum Task {
    Job(Job),
    Tunnel(Tunnel),
    Accept(Accepting),
    Read(Reader),
    Write(Writer),
    List(Listing),
    Remove(Removal),
    Unpack(Box<Unpacking>),
    Pack(TakeWorkspace),
}

impl Task {
    /// The descriptors to wait for, given how much may be sent on the stream.
    pub(crate) fn interests(&self, sendable: usize) -> Vec<(Port, BorrowedFd<'_>, PollFlags)> {
        match self {
            Task::Job(job) => job.interests(sendable).collect(),
            Task::Tunnel(tunnel) => tunnel.interests(sendable).collect(),
            Task::Accept(accepting) => accepting.interests().collect(),
            _ => Vec::new(),
        }
    }

    pub(crate) fn ready(
        &mut self,
        port: Port,
        connection: &mut Connection,
        stream: StreamId,
        buffer: &mut [u8],
    ) {
        match self {
            Task::Job(job) => job.ready(port, connection, stream, buffer),
            Task::Tunnel(tunnel) => tunnel.ready(port, connection, stream, buffer),
            Task::Accept(accepting) if port == Port::Output => accepting.answer_datagram(buffer),
            Task::Accept(accepting) => {
                // What goes first must go whole; else it is tried again. The stream's own credit counts
                // only once it has been raised, and is then all there.
                let room = connection.room() >= FIRST_BYTES;
                if let Some((accepted, first)) = room.then(|| accepting.take()).flatten() {
                    connection.reply(stream, &Reply::Raised);
                    connection.send(stream, Channel::Bytes, &first);
                    *self = Task::Tunnel(Tunnel::of_connection(accepted));
                }
            }
            _ => {}
        }
    }

    /// Does a little of what needs no waiting.
    pub(crate) fn step(
        &mut self,
        connection: &mut Connection,
        stream: StreamId,
        buffer: &mut [u8],
    ) -> Progress {
        match self {
            Task::Job(job) => match job.settle(connection, stream, buffer) {
                true => Progress::Finished(Ok(())),
                false => Progress::Waiting,
            },
            Task::Tunnel(tunnel) if tunnel.is_over() => Progress::Finished(Ok(())),
            Task::Tunnel(_) | Task::Accept(_) | Task::Write(_) | Task::Unpack(_) => {
                Progress::Waiting
            }
            Task::Pack(pack) => pack.step(connection, stream),
            Task::Read(reader) => reader.step(connection, stream, buffer),
            Task::List(listing) => listing.step(connection, stream),
            Task::Remove(removal) => removal.step(),
        }
    }

    /// Whether its end is told with `Done`; the others have told it already.
    pub(crate) fn ends_with_done(&self) -> bool {
        !matches!(self, Task::Job(_) | Task::Tunnel(_) | Task::Accept(_))
    }

    /// Bytes from the engine. False if the task is over.
    pub(crate) fn data(
        &mut self,
        bytes: Vec<u8>,
        connection: &mut Connection,
        stream: StreamId,
    ) -> bool {
        match self {
            Task::Job(job) => job.input(bytes, connection, stream),
            Task::Tunnel(tunnel) => tunnel.input(bytes, connection, stream),
            Task::Write(writer) => {
                if let Err(error) = writer.write(&bytes) {
                    connection.reply(stream, &Reply::Error(error));
                    return false;
                }
                connection.consumed(stream, bytes.len());
            }
            Task::Unpack(tree) => {
                if let Err(error) = tree.feed(&bytes) {
                    connection.reply(stream, &Reply::Error(error));
                    return false;
                }
                connection.consumed(stream, bytes.len());
            }
            // The protocol has no data for these.
            Task::Accept(_) | Task::Read(_) | Task::List(_) | Task::Remove(_) | Task::Pack(_) => {}
        }
        true
    }

    /// The engine sends no more. False if the task is over.
    pub(crate) fn end(&mut self, connection: &mut Connection, stream: StreamId) -> bool {
        match self {
            Task::Job(job) => job.end_input(connection, stream),
            Task::Tunnel(tunnel) => tunnel.end_input(connection, stream),
            Task::Write(_) => {
                connection.reply(stream, &Reply::Done);
                return false;
            }
            Task::Unpack(tree) => {
                match tree.finish() {
                    Ok(()) => connection.reply(stream, &Reply::Done),
                    Err(error) => connection.reply(stream, &Reply::Error(error)),
                }
                return false;
            }
            // Nobody wants the connection any more.
            Task::Accept(_) => return false,
            Task::Read(_) | Task::List(_) | Task::Remove(_) | Task::Pack(_) => {}
        }
        true
    }

    /// Whether it carries what programs say to the network, and can rest at any moment.
    pub(crate) fn is_of_network(&self) -> bool {
        match self {
            Task::Accept(_) => true,
            Task::Tunnel(tunnel) => tunnel.is_connection(),
            _ => false,
        }
    }

    pub(crate) fn signal(&self, signal: i32) {
        if let Task::Job(job) = self {
            job.signal(signal);
        }
    }

    pub(crate) fn resize(&self, size: TerminalSize) {
        if let Task::Job(job) = self {
            job.resize(size);
        }
    }

    /// The engine wants no more of it.
    pub(crate) fn cancel(self) {
        if let Task::Job(job) = self {
            job.kill();
        }
    }
}
