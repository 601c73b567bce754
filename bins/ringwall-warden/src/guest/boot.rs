//! From the kernel's first instruction of ours to an open channel.

use std::fs;
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use ringwall_linux::guest;
use rustix::fs::{Mode, OFlags};
use rustix::mount::{MountFlags, mount};

/// The name under which the monitor offers the channel.
const PORT: &str = "ringwall";
const MODULES: &str = "/modules";
/// Devices are found while we wait, in software emulation not very fast.
const PATIENCE: Duration = Duration::from_secs(30);
const LOOK_EVERY: Duration = Duration::from_millis(1);

/// Mounts what shows the kernel, loads drivers, and opens the channel to the engine.
pub(super) fn early() -> io::Result<OwnedFd> {
    let hardened = MountFlags::NOSUID | MountFlags::NOEXEC | MountFlags::NODEV;
    mount("devtmpfs", "/dev", "devtmpfs", MountFlags::NOSUID, c"mode=0755")?;
    mount("proc", "/proc", "proc", hardened, None)?;
    mount("sysfs", "/sys", "sysfs", hardened, None)?;
    for module in modules()? {
        guest::load_module(&module)
            .map_err(|error| about(&format!("cannot load {}", module.display()), error))?;
    }
    let path = wait_for("the channel to the engine", find_port)?;
    let flags = OFlags::RDWR | OFlags::CLOEXEC;
    let port = rustix::fs::open(&path, flags, Mode::empty())?;
    Ok(port)
}

/// In the order of their names.
fn modules() -> io::Result<Vec<PathBuf>> {
    let Ok(entries) = fs::read_dir(MODULES) else {
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
