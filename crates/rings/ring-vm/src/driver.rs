//! What monitors have in common, and what each says in its own words.

use serde_json::Value;

use crate::machine::Machine;

/// Where the jail shows the machine's files, the same for every monitor.
pub(crate) mod inside {
    pub(crate) const KERNEL: &str = "/vm/kernel";
    pub(crate) const INITRAMFS: &str = "/vm/initramfs";
    pub(crate) const ROOT_IMAGE: &str = "/vm/root";
    /// The one directory that a monitor may write to, if it makes its sockets itself.
    pub(crate) const RUN: &str = "/vm/run";
    /// The socket for requests. Its name in that directory is [`super::API_NAME`].
    pub(crate) const API: &str = "/vm/run/api";
    /// The socket of the vsock device. A guest that connects to a port reaches the socket at this path
    /// with the port's number behind it.
    pub(crate) const VSOCK: &str = "/vm/run/vsock";
    /// Where the host's devices are that the monitor may open.
    pub(crate) const DEVICES: &str = "/vm/dev";
    pub(crate) const KVM: &str = "/vm/dev/kvm";
}

pub(crate) const API_NAME: &str = "api";

/// Descriptors of a monitor, in this order.
pub(crate) mod descriptor {
    /// The channel to the guest's warden; where that comes by vsock, it only shows that the monitor
    /// is alive.
    pub(crate) const CHANNEL: u32 = 3;
    /// The monitor's own control socket.
    pub(crate) const CONTROL: u32 = 4;
    /// The engine's socket that a guest connects to by vsock, as a path descriptor.
    pub(crate) const DOOR: u32 = 4;
    /// The guest's memory, if that is passed.
    pub(crate) const MEMORY: u32 = 5;
}

/// The guest's own number. Every machine has a vsock device to itself, so all are the same.
pub(crate) const GUEST_CID: u32 = 3;

/// How a monitor is told what to do, and how its guest is reached.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Control {
    /// By its arguments and by QMP on a socket that it inherits. The guest's channel is a virtio
    /// serial port on another. Such a machine can go on from a template.
    Inherited,
    /// By requests on a socket that it makes in its jail. The guest connects by vsock.
    Requests,
}

/// What a monitor that takes requests can be asked for. Directories are those of the jail.
#[derive(Debug, Clone, Copy)]
pub enum Wish<'a> {
    Start(&'a Machine),
    Pause,
    Resume,
    /// Keeps memory and devices of a paused machine.
    Save {
        directory: &'a str,
    },
    /// Resumes a saved guest. Vsock connections of then are gone.
    Load {
        directory: &'a str,
    },
}

/// One request of HTTP.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Request {
    pub method: &'static str,
    pub path: &'static str,
    pub body: Option<Value>,
}

impl Request {
    pub(crate) fn put(path: &'static str, body: Value) -> Request {
        Request { method: "PUT", path, body: Some(body) }
    }
}

/// One kind of monitor. Everything but its own words is shared.
pub trait Driver: std::fmt::Debug + Send + Sync {
    fn name(&self) -> &'static str;
    /// The program to look for.
    fn program(&self) -> &'static str;
    /// Directories of the host that the program reads, besides its libraries.
    fn data(&self) -> &'static [&'static str];
    /// Versions with known holes, and the first that is good: `(first bad, first good, why)`.
    fn holes(&self) -> &'static [(&'static str, &'static str, &'static str)];
    /// Whether it runs guests by KVM only.
    fn needs_kvm(&self) -> bool;
    fn control(&self) -> Control;
    /// The words after the program's name.
    fn arguments(&self, machine: &Machine) -> Vec<String>;
    /// What to ask for a wish, in this order. Nothing, for one that takes no requests.
    fn requests(&self, wish: Wish<'_>) -> Vec<Request>;
}

/// How every one of them is asked for its version.
pub(crate) const VERSION_ARGUMENT: &str = "--version";

#[cfg(test)]
#[path = "driver/tests.rs"]
mod tests;
