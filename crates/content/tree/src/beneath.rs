//! Opening below a directory descriptor, by the kernel's own rules.

use std::os::fd::{AsFd, OwnedFd};

use rustix::fs::{Mode, OFlags, ResolveFlags};
use rustix::io::{Errno, Result};

/// The kernel says EAGAIN when a rename elsewhere raced with the lookup.
const LOOKUP_TRIES: usize = 16;

/// Opens what is at `path` below `dir`; the empty path is `dir` itself. No link is followed and no
/// mount entered: what is mounted into a workspace was not searched for secrets.
pub(crate) fn open(dir: impl AsFd, path: &[u8], flags: OFlags) -> Result<OwnedFd> {
    let resolve = ResolveFlags::BENEATH
        | ResolveFlags::NO_SYMLINKS
        | ResolveFlags::NO_MAGICLINKS
        | ResolveFlags::NO_XDEV;
    let path = if path.is_empty() { b"." } else { path };
    let flags = flags | OFlags::CLOEXEC | OFlags::NOFOLLOW;
    let mut tries = 1;
    loop {
        match rustix::fs::openat2(dir.as_fd(), path, flags, Mode::empty(), resolve) {
            Err(Errno::AGAIN | Errno::INTR) if tries < LOOKUP_TRIES => tries += 1,
            result => return result,
        }
    }
}

/// A directory that can be listed, filled and given attributes.
pub(crate) fn open_dir(dir: impl AsFd, path: &[u8]) -> Result<OwnedFd> {
    open(dir, path, OFlags::RDONLY | OFlags::DIRECTORY)
}
