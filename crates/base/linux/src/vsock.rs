//! Streams between a guest and its monitor, as numbers instead of paths (AF_VSOCK).

use std::io;
use std::os::fd::{AsRawFd, OwnedFd};

use rustix::net::{AddressFamily, SocketFlags, SocketType};

/// The machine's monitor, as its guest numbers it.
pub const HOST: u32 = 2;

/// Connects to a port of a machine.
pub fn connect(machine: u32, port: u32) -> io::Result<OwnedFd> {
    let (family, kind) = (AddressFamily::VSOCK, SocketType::STREAM);
    let socket = rustix::net::socket_with(family, kind, SocketFlags::CLOEXEC, None)?;
    let family = libc::sa_family_t::try_from(libc::AF_VSOCK).map_err(io::Error::other)?;
    let address = libc::sockaddr_vm {
        svm_family: family,
        svm_reserved1: 0,
        svm_port: port,
        svm_cid: machine,
        svm_zero: [0; 4],
    };
    let length = libc::socklen_t::try_from(size_of_val(&address)).map_err(io::Error::other)?;
    // SAFETY: the address is whole, of the length that is given, and outlives the call; the kernel
    // only reads it.
    let connected = unsafe {
        libc::connect(socket.as_raw_fd(), (&raw const address).cast::<libc::sockaddr>(), length)
    };
    if connected == 0 { Ok(socket) } else { Err(io::Error::last_os_error()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The kernel's answer differs: no such family, no such machine, nobody listening.
    #[test]
    fn nobody_at_the_other_end_is_an_error() {
        assert!(connect(1, 4_000_000_000).is_err());
    }
}
