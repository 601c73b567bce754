//! The network of a ring: a namespace with nothing but loopback.
//!
//! Making one takes longer than all mounts of a ring together, so a launcher lets a process beside
//! it do that ahead of time.

use std::io;
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};

use rustix::net::{AddressFamily, SocketType};
use rustix::thread::{LinkNameSpaceType, UnshareFlags};

use crate::fdpass;
use crate::process::{self, Cloned};

/// A network namespace on its way: the descriptor arrives on this socket.
#[derive(Debug)]
pub struct Prepared(OwnedFd);

/// Starts a process that makes a network namespace, hands it over and ends.
pub fn prepare() -> io::Result<Prepared> {
    let (ours, theirs) = fdpass::pair()?;
    match process::clone_into(0)? {
        Cloned::Child => {
            drop(ours);
            let sent = make()
                .and_then(|socket| namespace_of(&socket))
                .and_then(|namespace| fdpass::send(theirs.as_fd(), &[0], &[namespace.as_fd()]));
            process::exit_now(i32::from(sent.is_err()))
        }
        Cloned::Parent { .. } => Ok(Prepared(ours)),
    }
}

/// Enters the prepared namespace. If that did not work out, makes one here.
pub fn enter(prepared: Option<Prepared>) -> io::Result<()> {
    let received = prepared.and_then(|Prepared(socket)| {
        let message = fdpass::receive(socket.as_fd(), &mut [0]).ok()??;
        message.1.into_iter().next()
    });
    match received {
        Some(namespace) => {
            let kind = Some(LinkNameSpaceType::Network);
            Ok(rustix::thread::move_into_link_name_space(namespace.as_fd(), kind)?)
        }
        None => make().map(drop),
    }
}

/// Moves this process to a new network namespace; gives a socket in it.
fn make() -> io::Result<OwnedFd> {
    process::unshare(UnshareFlags::NEWNET)?;
    loopback_up()
}

/// The network namespace of a socket. Not by way of /proc: a parked launcher has none any more.
fn namespace_of(socket: &OwnedFd) -> io::Result<OwnedFd> {
    // SAFETY: SIOCGSKNS takes no argument and returns a new descriptor or an error.
    let raw = unsafe { libc::ioctl(socket.as_raw_fd(), libc::SIOCGSKNS as _) };
    if raw < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the kernel just made this descriptor, and nobody else owns it.
    Ok(unsafe { OwnedFd::from_raw_fd(raw) })
}

/// Brings up the loopback device of the current network namespace; gives the socket that was
/// needed for it.
fn loopback_up() -> io::Result<OwnedFd> {
    let socket = rustix::net::socket(AddressFamily::INET, SocketType::DGRAM, None)?;
    // SAFETY: an all-zero ifreq is a valid value of this plain C struct.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    for (to, from) in request.ifr_name.iter_mut().zip(b"lo") {
        *to = from.cast_signed();
    }
    let flags = libc::IFF_UP | libc::IFF_RUNNING;
    request.ifr_ifru.ifru_flags = i16::try_from(flags).map_err(io::Error::other)?;
    // SAFETY: SIOCSIFFLAGS reads an ifreq, which is valid for the call.
    let result =
        unsafe { libc::ioctl(socket.as_raw_fd(), libc::SIOCSIFFLAGS as _, &raw const request) };
    if result == 0 { Ok(socket) } else { Err(io::Error::last_os_error()) }
}
