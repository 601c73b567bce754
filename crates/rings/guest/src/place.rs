//! Where kernels and what is made for them are kept on this machine.

use std::io;
use std::path::PathBuf;

/// `RINGWALL_KERNELS`, else below the data directory. `scripts/guest-kernel.sh` puts them there too.
pub(crate) fn kernels() -> io::Result<PathBuf> {
    match set("RINGWALL_KERNELS") {
        Some(directory) => Ok(directory),
        None => Ok(data()?.join("kernels")),
    }
}

pub(crate) fn initramfs() -> io::Result<PathBuf> {
    Ok(data()?.join("initramfs"))
}

/// Packages, sources and builds: what may be thrown away.
pub(crate) fn cache() -> io::Result<PathBuf> {
    match set("RINGWALL_CACHE") {
        Some(cache) => Ok(cache.join("kernels")),
        None => Ok(home()?.join(".cache/ringwall/kernels")),
    }
}

/// Not `RINGWALL_HOME`: kernels belong to the machine, not to one engine's state.
fn data() -> io::Result<PathBuf> {
    if rustix::process::geteuid().is_root() {
        return Ok(PathBuf::from("/var/lib/ringwall"));
    }
    match set("XDG_DATA_HOME") {
        Some(data) => Ok(data.join("ringwall")),
        None => Ok(home()?.join(".local/share/ringwall")),
    }
}

fn home() -> io::Result<PathBuf> {
    set("HOME").ok_or_else(|| io::Error::new(io::ErrorKind::NotFound, "HOME is not set"))
}

fn set(name: &str) -> Option<PathBuf> {
    std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from)
}
