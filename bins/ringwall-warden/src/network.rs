//! Doors to the network, in rings whose sockets cannot be handed out: connections to loopback, which
//! the engine takes one by one and carries to the gateway. We look at nothing.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use ringwall_linux::network::{bring_up_loopback, listen};
use ringwall_wire::{Door, RemoteError};
use rustix::event::PollFlags;
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags, SocketFlags};

use crate::error::failed;
use crate::job::Port;
use crate::start::set_nonblocking;

/// In the header of DNS: what is an answer, and an answer that did not fit (RFC 1035, 4.1.1).
const IS_ANSWER: u8 = 0x80;
const IS_CUT: u8 = 0x02;
const DNS_HEADER: usize = 12;

/// The sockets, made when they are first wanted.
#[derive(Debug, Default)]
pub(crate) struct Doors {
    proxy: Option<OwnedFd>,
    /// For connections and for datagrams.
    dns: Option<(OwnedFd, OwnedFd)>,
}

/// Waits for the next connection at one door.
#[derive(Debug)]
pub(crate) struct Accepting {
    listener: OwnedFd,
    datagrams: Option<OwnedFd>,
}

impl Doors {
    pub(crate) fn accept(&mut self, door: Door) -> Result<Accepting, RemoteError> {
        self.next(door).map_err(|errno| failed("cannot listen on loopback", errno))
    }

    fn next(&mut self, door: Door) -> Result<Accepting, Errno> {
        let copy = |fd: &OwnedFd| rustix::io::fcntl_dupfd_cloexec(fd, 0);
        match door {
            Door::Proxy => {
                if self.proxy.is_none() {
                    self.proxy = Some(open(door, false)?);
                }
                let listener = self.proxy.as_ref().ok_or(Errno::BADF)?;
                Ok(Accepting { listener: copy(listener)?, datagrams: None })
            }
            Door::Dns => {
                if self.dns.is_none() {
                    self.dns = Some((open(door, false)?, open(door, true)?));
                }
                let (listener, datagrams) = self.dns.as_ref().ok_or(Errno::BADF)?;
                Ok(Accepting { listener: copy(listener)?, datagrams: Some(copy(datagrams)?) })
            }
        }
    }
}

fn open(door: Door, datagrams: bool) -> Result<OwnedFd, Errno> {
    // A guest's is down until somebody wants it; a ring's is up, and not ours to change.
    let _ = bring_up_loopback();
    let made = listen(door.port(), datagrams);
    let socket = made.map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::IO))?;
    set_nonblocking(&socket)?;
    Ok(socket)
}

impl Accepting {
    pub(crate) fn interests(&self) -> impl Iterator<Item = (Port, BorrowedFd<'_>, PollFlags)> {
        let datagrams = self.datagrams.as_ref().map(|fd| (Port::Output, fd.as_fd(), PollFlags::IN));
        [(Port::Input, self.listener.as_fd(), PollFlags::IN)].into_iter().chain(datagrams)
    }

    /// A connection, if one is still there: another who waits may have been quicker.
    pub(crate) fn take(&self) -> Option<OwnedFd> {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        rustix::net::accept_with(&self.listener, flags).ok()
    }

    /// Datagrams are not carried. Each is answered as one whose answer did not fit, so that whoever
    /// asked asks again over a connection.
    pub(crate) fn answer_datagram(&self, buffer: &mut [u8]) {
        let Some(socket) = &self.datagrams else { return };
        let received = rustix::net::recvfrom(socket, &mut *buffer, RecvFlags::DONTWAIT);
        let Ok((size, _, Some(from))) = received else { return };
        let Some(message) = buffer.get_mut(..size).filter(|message| message.len() >= DNS_HEADER)
        else {
            return;
        };
        message[2] |= IS_ANSWER | IS_CUT;
        // Whoever does not get it asks again.
        let _ = rustix::net::sendto(socket, message, SendFlags::DONTWAIT, &from);
    }
}
