//! The network of a ring: a namespace with nothing but loopback.
//!
//! Making one takes longer than all mounts of a ring together, so a launcher lets a process beside
//! it do that ahead of time.

use std::ffi::c_void;
use std::io;
use std::net::{Ipv4Addr, SocketAddrV4};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::path::Path;

use rustix::ioctl::{Ioctl, IoctlOutput, Opcode, Setter};
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType};
use rustix::thread::{LinkNameSpaceType, UnshareFlags};

use crate::beside::Beside;
use crate::process::write_setting;
use crate::{fdpass, mount, process};

/// Connections that wait until somebody takes them.
const WAITING_CONNECTIONS: i32 = 1024;

/// A network namespace on its way: the descriptor arrives on the socket.
#[derive(Debug)]
pub struct Prepared {
    socket: OwnedFd,
    /// Makes the namespace, hands it over and ends.
    _helper: Beside<RawFd>,
}

/// Starts to make a network namespace, beside this process.
pub fn prepare() -> io::Result<Prepared> {
    let (ours, theirs) = fdpass::pair()?;
    // The helper has a copy of our descriptors; that ours closes here does not touch its own.
    let helper = Beside::start(0, theirs.as_raw_fd(), |socket| {
        // SAFETY: the helper was made while this descriptor was open, and never closes it.
        let socket = unsafe { BorrowedFd::borrow_raw(*socket) };
        if let Ok(namespace) = make().and_then(|inside| namespace_of(&inside)) {
            // Without an answer the ring makes its own.
            let _ = fdpass::send(socket, &[0], &[namespace.as_fd()]);
        }
    })?;
    Ok(Prepared { socket: ours, _helper: helper })
}

/// Enters the prepared namespace. If that did not work out, makes one here.
pub fn enter(prepared: Option<Prepared>) -> io::Result<()> {
    let received = prepared.and_then(|prepared| {
        let message = fdpass::receive(prepared.socket.as_fd(), &mut [0]).ok()??;
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

/// Caps what TCP keeps in memory in the network namespace that this process is in. The kernel shows
/// each process the settings of its own one.
pub fn limit_connections(proc: BorrowedFd<'_>, buffer_bytes: u32, closed: u32) -> io::Result<()> {
    let settings = [
        // The least, the first and the most that one buffer has.
        ("tcp_rmem", format!("4096 {buffer_bytes} {buffer_bytes}")),
        ("tcp_wmem", format!("4096 16384 {buffer_bytes}")),
        ("tcp_max_tw_buckets", closed.to_string()),
    ];
    let directory = settings_of_ipv4(proc)?;
    settings.iter().try_for_each(|(name, value)| write_setting(&directory, name, value))
}

/// Lets whoever is in the network namespace that this process is in listen from this port on.
pub fn free_ports(proc: BorrowedFd<'_>, from: u16) -> io::Result<()> {
    write_setting(&settings_of_ipv4(proc)?, "ip_unprivileged_port_start", &from.to_string())
}

fn settings_of_ipv4(proc: BorrowedFd<'_>) -> io::Result<OwnedFd> {
    mount::open_place(proc, Path::new("sys/net/ipv4"))
}

/// A socket in this process's network namespace, on loopback or for all addresses. Ports below 1024
/// need power over it.
pub fn listen(port: u16, datagrams: bool, all_addresses: bool) -> io::Result<OwnedFd> {
    let kind = if datagrams { SocketType::DGRAM } else { SocketType::STREAM };
    let family = AddressFamily::INET;
    let socket = rustix::net::socket_with(family, kind, SocketFlags::CLOEXEC, None)?;
    let address = if all_addresses { Ipv4Addr::UNSPECIFIED } else { Ipv4Addr::LOCALHOST };
    rustix::net::bind(&socket, &SocketAddrV4::new(address, port))?;
    if !datagrams {
        rustix::net::listen(&socket, WAITING_CONNECTIONS)?;
    }
    Ok(socket)
}

/// Makes every IPv4 address one of this network namespace's own, at its loopback device: what is
/// connected to arrives at whoever listens there, and never leaves. Needs power over it.
pub fn take_all_addresses() -> io::Result<()> {
    // rtnetlink(7): one route of the table `local`, for all addresses, to the device `lo`, which is
    // the first of every namespace.
    const LOOPBACK: u32 = 1;
    let flags = u16::try_from(libc::NLM_F_REQUEST | libc::NLM_F_ACK | libc::NLM_F_CREATE)
        .map_err(io::Error::other)?;
    let family = u8::try_from(libc::AF_INET).map_err(io::Error::other)?;
    let route = [
        family,
        0,
        0,
        0,
        libc::RT_TABLE_LOCAL,
        libc::RTPROT_BOOT,
        libc::RT_SCOPE_HOST,
        libc::RTN_LOCAL,
    ];
    let mut message = Vec::new();
    message.extend(36u32.to_ne_bytes());
    message.extend(libc::RTM_NEWROUTE.to_ne_bytes());
    message.extend(flags.to_ne_bytes());
    message.extend([0; 8]);
    message.extend(route);
    message.extend([0; 4]);
    message.extend(8u16.to_ne_bytes());
    message.extend(libc::RTA_OIF.to_ne_bytes());
    message.extend(LOOPBACK.to_ne_bytes());
    let (family, kind) = (AddressFamily::NETLINK, SocketType::RAW);
    let socket = rustix::net::socket_with(family, kind, SocketFlags::CLOEXEC, None)?;
    rustix::net::send(&socket, &message, SendFlags::empty())?;
    let mut answer = [0; 256];
    let (size, _) = rustix::net::recv(&socket, &mut answer[..], RecvFlags::empty())?;
    // A header, and the number of an error below zero; zero is the acknowledgement.
    let told = answer
        .get(..size)
        .and_then(|answer| answer.get(16..20))
        .ok_or(io::ErrorKind::InvalidData)?;
    match <[u8; 4]>::try_from(told).map(i32::from_ne_bytes) {
        Ok(0) => Ok(()),
        Ok(error) => Err(io::Error::from_raw_os_error(-error)),
        Err(_) => Err(io::ErrorKind::InvalidData.into()),
    }
}

/// Moves this process to a new network namespace; gives a socket in it.
fn make() -> io::Result<OwnedFd> {
    process::unshare(UnshareFlags::NEWNET)?;
    loopback_up()
}

/// The network namespace of a socket. Not by way of /proc: a parked launcher has none any more.
fn namespace_of(socket: &OwnedFd) -> io::Result<OwnedFd> {
    // SAFETY: `NamespaceOfSocket` describes the call as the kernel has it.
    Ok(unsafe { rustix::ioctl::ioctl(socket, NamespaceOfSocket) }?)
}

/// `SIOCGSKNS`: takes nothing and gives a new descriptor.
struct NamespaceOfSocket;

// SAFETY: the opcode is that of a call that neither reads nor writes memory of ours.
unsafe impl Ioctl for NamespaceOfSocket {
    type Output = OwnedFd;
    const IS_MUTATING: bool = false;

    fn opcode(&self) -> Opcode {
        libc::SIOCGSKNS as Opcode
    }

    fn as_ptr(&mut self) -> *mut c_void {
        std::ptr::null_mut()
    }

    unsafe fn output_from_ptr(fd: IoctlOutput, _: *mut c_void) -> rustix::io::Result<OwnedFd> {
        // SAFETY: the kernel just made this descriptor, and nobody else owns it.
        Ok(unsafe { OwnedFd::from_raw_fd(fd) })
    }
}

/// Brings up the loopback device of the current network namespace. Needs power over it.
pub fn bring_up_loopback() -> io::Result<()> {
    loopback_up().map(drop)
}

/// Brings up the loopback device of the current network namespace; gives the socket that was
/// needed for it.
fn loopback_up() -> io::Result<OwnedFd> {
    const SET_FLAGS: Opcode = libc::SIOCSIFFLAGS as Opcode;
    let socket = rustix::net::socket(AddressFamily::INET, SocketType::DGRAM, None)?;
    // SAFETY: an all-zero ifreq is a valid value of this plain C struct.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    for (to, from) in request.ifr_name.iter_mut().zip(b"lo") {
        *to = from.cast_signed();
    }
    let flags = libc::IFF_UP | libc::IFF_RUNNING;
    request.ifr_ifru.ifru_flags = i16::try_from(flags).map_err(io::Error::other)?;
    // SAFETY: this call reads an ifreq.
    let set = unsafe { Setter::<SET_FLAGS, libc::ifreq>::new(request) };
    // SAFETY: as above; the request lives as long as the call.
    unsafe { rustix::ioctl::ioctl(&socket, set) }?;
    Ok(socket)
}
