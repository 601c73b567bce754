//! From the kernel's first instruction of ours to an open channel.

use std::fs;
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use ringwall_linux::{guest, vsock};
use ringwall_wire::guest_paths;
use rustix::fs::{Mode, OFlags};
use rustix::mount::{MountFlags, mount};

/// The name under which the monitor offers the channel.
const PORT: &str = "ringwall";
const MODULES: &str = "/modules";
const MORE_MODULES: &str = "/modules/more";
/// Monitors whose guest comes by vsock may have their devices on PCI.
const PCI: &str = "virtio_pci";
/// Devices are found while we wait, in software emulation not very fast.
const PATIENCE: Duration = Duration::from_secs(30);
const LOOK_EVERY: Duration = Duration::from_millis(1);

/// Mounts what shows the kernel, loads drivers, and opens the channel to the engine.
pub(super) fn early() -> io::Result<OwnedFd> {
    let hardened = MountFlags::NOSUID | MountFlags::NOEXEC | MountFlags::NODEV;
    mount("devtmpfs", "/dev", "devtmpfs", MountFlags::NOSUID, c"mode=0755")?;
    mount("proc", "/proc", "proc", hardened, None)?;
    mount("sysfs", "/sys", "sysfs", hardened, None)?;
    for module in modules_in(MODULES)? {
        guest::load_module(&module)
            .map_err(|error| about(&format!("cannot load {}", module.display()), error))?;
    }
    open_channel()
}

/// The monitor offers one of two, and the command line says which.
fn open_channel() -> io::Result<OwnedFd> {
    let command_line = fs::read_to_string("/proc/cmdline")?;
    if command_line.split_whitespace().any(|word| word == guest_paths::BY_VSOCK) {
        for module in more_modules_of(PCI)? {
            guest::load_module(&module)
                .map_err(|error| about(&format!("cannot load {}", module.display()), error))?;
        }
        return wait_for("the channel to the engine", || {
            vsock::connect(vsock::HOST, guest_paths::VSOCK_PORT).ok()
        });
    }
    let path = wait_for("the channel to the engine", find_port)?;
    let flags = OFlags::RDWR | OFlags::CLOEXEC;
    let port = rustix::fs::open(&path, flags, Mode::empty())?;
    Ok(port)
}

/// Those that are not loaded for every monitor, of the kind that this one's devices need.
fn more_modules_of(kind: &str) -> io::Result<Vec<PathBuf>> {
    let mut modules = modules_in(MORE_MODULES)?;
    modules.retain(|path| path.file_name().is_some_and(|n| n.to_string_lossy().contains(kind)));
    Ok(modules)
}

/// In the order of their names.
fn modules_in(directory: &str) -> io::Result<Vec<PathBuf>> {
    let Ok(entries) = fs::read_dir(directory) else {
        return Ok(Vec::new());
    };
    let mut modules: Vec<PathBuf> =
        entries.flatten().map(|entry| entry.path()).filter(|path| is_module(path)).collect();
    modules.sort();
    Ok(modules)
}

fn is_module(path: &Path) -> bool {
    path.extension().is_some_and(|extension| extension == "ko")
}

fn find_port() -> Option<PathBuf> {
    let ports = fs::read_dir("/sys/class/virtio-ports").ok()?;
    ports.flatten().find_map(|port| {
        let name = fs::read_to_string(port.path().join("name")).ok()?;
        (name.trim() == PORT).then(|| Path::new("/dev").join(port.file_name()))
    })
}

/// Tries until there is something.
pub(super) fn wait_for<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> io::Result<T> {
    let give_up_at = Instant::now() + PATIENCE;
    loop {
        if let Some(found) = look() {
            return Ok(found);
        }
        if Instant::now() >= give_up_at {
            return Err(io::Error::new(io::ErrorKind::TimedOut, format!("{what} is missing")));
        }
        std::thread::sleep(LOOK_EVERY);
    }
}

pub(super) fn about(doing: &str, error: io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("{doing}: {error}"))
}
