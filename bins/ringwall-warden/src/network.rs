//! Doors to the network, in rings whose sockets cannot be handed out: connections to loopback, which
//! the engine takes one by one and carries to the gateway. We look at nothing.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::net::SocketAddrV4;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use ringwall_linux::network::{bring_up_loopback, listen, take_all_addresses};
use ringwall_wire::{Door, RemoteError};
use rustix::event::PollFlags;
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags, SocketFlags};

use crate::error::failed;
use crate::job::Port;
use crate::start::set_nonblocking;

/// In the header of DNS: what is an answer, an answer that did not fit, and one of somebody who asks others
/// (RFC 1035, 4.1.1). Without the last, glibc takes an empty answer for one of a server that is of no use.
const IS_ANSWER: u8 = 0x80;
const IS_CUT: u8 = 0x02;
const ASKS_OTHERS: u8 = 0x80;
const DNS_HEADER: usize = 12;
/// More than goes out before what a connection says: that it was taken, its address and its port.
pub(crate) const FIRST_BYTES: usize = 64;

/// The sockets, made when they are first wanted.
#[derive(Debug, Default)]
pub(crate) struct Doors {
    proxy: Option<OwnedFd>,
    /// For connections and for datagrams.
    dns: Option<(OwnedFd, OwnedFd)>,
    /// For connections to any address, by port.
    direct: BTreeMap<u16, OwnedFd>,
}

/// Waits for the next connection at one door.
#[derive(Debug)]
pub(crate) struct Accepting {
    listener: OwnedFd,
    datagrams: Option<OwnedFd>,
    /// Whoever takes the connection must know where it was made to.
    tells_address: bool,
}

impl Doors {
    /// For a ring inside a guest addresses were taken when it was raised: its warden has no power to.
    pub(crate) fn accept(
        &mut self,
        door: Door,
        first_of_guest: bool,
    ) -> Result<Accepting, RemoteError> {
        self.next(door, first_of_guest).map_err(|errno| failed("cannot listen on loopback", errno))
    }

    fn next(&mut self, door: Door, first_of_guest: bool) -> Result<Accepting, Errno> {
        let copy = |fd: &OwnedFd| rustix::io::fcntl_dupfd_cloexec(fd, 0);
        match door {
            Door::Proxy => {
                if self.proxy.is_none() {
                    self.proxy = Some(open(door, false)?);
                }
                let listener = self.proxy.as_ref().ok_or(Errno::BADF)?;
                Ok(Accepting { listener: copy(listener)?, datagrams: None, tells_address: false })
            }
            Door::Dns => {
                if self.dns.is_none() {
                    self.dns = Some((open(door, false)?, open(door, true)?));
                }
                let (listener, datagrams) = self.dns.as_ref().ok_or(Errno::BADF)?;
                let (listener, datagrams) = (copy(listener)?, Some(copy(datagrams)?));
                Ok(Accepting { listener, datagrams, tells_address: false })
            }
            Door::Direct(port) => {
                if self.direct.is_empty() && first_of_guest {
                    taken(take_all_addresses())?;
                }
                let listener = match self.direct.entry(port) {
                    Entry::Occupied(known) => known.into_mut(),
                    Entry::Vacant(new) => new.insert(open(door, false)?),
                };
                Ok(Accepting { listener: copy(listener)?, datagrams: None, tells_address: true })
            }
        }
    }
}

fn open(door: Door, datagrams: bool) -> Result<OwnedFd, Errno> {
    // A guest's is down until somebody wants it; a ring's is up, and not ours to change.
    let _ = bring_up_loopback();
    let socket = taken(listen(door.port(), datagrams, door != Door::Proxy))?;
    set_nonblocking(&socket)?;
    Ok(socket)
}

fn taken<T>(made: std::io::Result<T>) -> Result<T, Errno> {
    made.map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::IO))
}

impl Accepting {
    pub(crate) fn interests(&self) -> impl Iterator<Item = (Port, BorrowedFd<'_>, PollFlags)> {
        let datagrams = self.datagrams.as_ref().map(|fd| (Port::Output, fd.as_fd(), PollFlags::IN));
        [(Port::Input, self.listener.as_fd(), PollFlags::IN)].into_iter().chain(datagrams)
    }

    /// A connection, if one is still there: another who waits may have been quicker. With the bytes
    /// that go before what it says.
    pub(crate) fn take(&self) -> Option<(OwnedFd, Vec<u8>)> {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let connection = rustix::net::accept_with(&self.listener, flags).ok()?;
        if !self.tells_address {
            return Some((connection, Vec::new()));
        }
        let to = rustix::net::getsockname(&connection).ok()?;
        let to = SocketAddrV4::try_from(to).ok()?;
        let first = [&to.ip().octets()[..], &to.port().to_be_bytes()].concat();
        Some((connection, first))
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
        message[3] |= ASKS_OTHERS;
        // Whoever does not get it asks again.
        let _ = rustix::net::sendto(socket, message, SendFlags::DONTWAIT, &from);
    }
}
