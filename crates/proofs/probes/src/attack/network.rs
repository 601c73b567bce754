//! Connections to the host. It listens, and knows whom it hears.

use std::fs;
use std::io::{self, Write};
use std::net::{SocketAddr, TcpStream, UdpSocket};
use std::os::fd::AsRawFd;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr as UnixAddr, UnixDatagram, UnixStream};
use std::time::Duration;

use rustix::fs::{Mode, OFlags};

use super::{any_of, succeeded_if};
use crate::{Scene, Tried};

const PATIENCE: Duration = Duration::from_millis(500);

fn address(text: &str) -> io::Result<SocketAddr> {
    text.parse().map_err(io::Error::other)
}

pub(crate) fn tcp(scene: &Scene) -> Tried {
    any_of(&scene.tcp, |to| {
        let mut stream = TcpStream::connect_timeout(&address(to)?, PATIENCE)?;
        stream.write_all(scene.greeting.as_bytes())?;
        Ok(format!("{to} was reached"))
    })
}

/// By the address that reaches this machine without naming it.
pub(crate) fn tcp_to_nobody(scene: &Scene) -> Tried {
    let ports = scene.tcp.iter().filter_map(|to| to.rsplit_once(':'));
    let all = ports.flat_map(|(_, port)| [format!("0.0.0.0:{port}"), format!("[::]:{port}")]);
    any_of(all, |to| {
        let mut stream = TcpStream::connect_timeout(&address(&to)?, PATIENCE)?;
        stream.write_all(scene.greeting.as_bytes())?;
        Ok(format!("{to} was reached"))
    })
}

pub(crate) fn udp(scene: &Scene) -> Tried {
    any_of(&scene.udp, |to| {
        let to = address(to)?;
        let from = if to.is_ipv4() { "0.0.0.0:0" } else { "[::]:0" };
        UdpSocket::bind(from)?.send_to(scene.greeting.as_bytes(), to)?;
        Ok(format!("a packet was sent to {to}"))
    })
}

/// What docker, editors and desktops listen on (CVE-2020-15257).
pub(crate) fn abstract_socket(scene: &Scene) -> Tried {
    any_of([&scene.abstract_socket], |name| {
        let address = UnixAddr::from_abstract_name(name)?;
        UnixStream::connect_addr(&address)?.write_all(scene.greeting.as_bytes())?;
        Ok(format!("@{name} was reached"))
    })
}

pub(crate) fn named_socket(scene: &Scene) -> Tried {
    any_of(&scene.sockets, |path| {
        UnixStream::connect(path)?.write_all(scene.greeting.as_bytes())?;
        Ok(format!("{} was reached", path.display()))
    })
}

pub(crate) fn named_socket_by_own_root(scene: &Scene) -> Tried {
    any_of(&scene.sockets, |path| {
        let path = format!("/proc/self/root{}", path.display());
        UnixStream::connect(&path)?.write_all(scene.greeting.as_bytes())?;
        Ok(format!("{path} was reached"))
    })
}

pub(crate) fn named_socket_by_descriptor(scene: &Scene) -> Tried {
    any_of(&scene.sockets, |path| {
        let held = rustix::fs::open(path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty())?;
        let name = format!("/proc/self/fd/{}", held.as_raw_fd());
        UnixStream::connect(&name)?.write_all(scene.greeting.as_bytes())?;
        Ok(format!("{} was reached", path.display()))
    })
}

/// Services that give their user the machine.
pub(crate) fn service_sockets(_: &Scene) -> Tried {
    let services = [
        "/var/run/docker.sock",
        "/run/docker.sock",
        "/run/containerd/containerd.sock",
        "/run/podman/podman.sock",
        "/run/dbus/system_bus_socket",
        "/run/systemd/private",
        "/run/systemd/journal/stdout",
        "/run/snapd.socket",
        "/run/libvirt/libvirt-sock",
        "/dev/log",
    ];
    any_of(services, |path| {
        let reached = UnixStream::connect(path).map(drop);
        reached.or_else(|_| UnixDatagram::unbound()?.connect(path))?;
        Ok(format!("{path} was reached"))
    })
}

pub(crate) fn devices(_: &Scene) -> Tried {
    let Ok(list) = fs::read_to_string("/proc/net/dev") else {
        return Tried::Failed("there is no list of devices".to_owned());
    };
    let names = list.lines().filter_map(|line| line.split_once(':')).map(|(name, _)| name.trim());
    let others: Vec<_> = names.filter(|name| *name != "lo").collect();
    succeeded_if(!others.is_empty(), format!("there is {}", others.join(", ")), "loopback only")
}

/// Choosing a way sends nothing. The addresses are reserved for documentation.
pub(crate) fn routes(_: &Scene) -> Tried {
    any_of(["192.0.2.1:443", "[2001:db8::1]:443"], |to| {
        let to = address(to)?;
        let from = if to.is_ipv4() { "0.0.0.0:0" } else { "[::]:0" };
        UdpSocket::bind(from)?.connect(to)?;
        Ok(format!("there is a way to {to}"))
    })
}
