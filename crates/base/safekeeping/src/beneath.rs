//! Opens what lies below a directory, by the kernel's own rules.
//!
//! No symbolic link is followed on the way and the walk cannot leave the directory. The kernel refuses
//! both inside `openat2`, so there is no moment to race.

use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;

use rustix::fs::{CWD, Mode, OFlags, ResolveFlags};
use rustix::io::{Errno, Result};
use rustix::path::Arg;

/// The kernel says EAGAIN when a rename elsewhere raced with the lookup.
const LOOKUP_TRIES: usize = 16;

/// Whether the walk may enter a file system that is mounted below the directory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mounts {
    Entered,
    Refused,
}

/// Opens what is at `path` below `directory`.
pub fn open(
    directory: impl AsFd,
    path: impl Arg + Copy,
    flags: OFlags,
    mounts: Mounts,
) -> Result<OwnedFd> {
    let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
    let resolve = match mounts {
        Mounts::Entered => resolve,
        Mounts::Refused => resolve | ResolveFlags::NO_XDEV,
    };
    walk(directory, path, flags, resolve)
}

/// Opens a whole path of the host that has no symbolic link in any part. `ELOOP` if it has.
pub fn open_without_links(path: &Path, flags: OFlags) -> Result<OwnedFd> {
    walk(CWD, path, flags, ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS)
}

fn walk(
    directory: impl AsFd,
    path: impl Arg + Copy,
    flags: OFlags,
    resolve: ResolveFlags,
) -> Result<OwnedFd> {
    let flags = flags | OFlags::CLOEXEC;
    let mut tries = 1;
    loop {
        match rustix::fs::openat2(directory.as_fd(), path, flags, Mode::empty(), resolve) {
            Err(Errno::AGAIN | Errno::INTR) if tries < LOOKUP_TRIES => tries += 1,
            result => return result,
        }
    }
}
