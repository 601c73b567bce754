//! The one network device of a ring.

use std::io;

use rustix::net::{AddressFamily, SocketType};

/// Brings up the loopback device of the current network namespace.
pub fn loopback_up() -> io::Result<()> {
    use std::os::fd::AsRawFd;

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
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}
