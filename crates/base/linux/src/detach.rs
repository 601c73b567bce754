//! Unmounting without waiting for it.
//!
//! After an unmount the kernel waits until no CPU can still see the mount, which takes from a tenth
//! of a millisecond to several. A helper does the waiting, while the ring's other steps go on.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicI32, Ordering};

use rustix::io::Errno;
use rustix::mount::UnmountFlags;

use crate::beside::Beside;

/// An unmount on its way. Must be finished before anything relies on the tree being gone.
#[derive(Debug)]
pub struct Detaching(Beside<Work>);

#[derive(Debug)]
struct Work {
    old_root: OwnedFd,
    /// Zero when the tree is gone.
    errno: AtomicI32,
}

impl Detaching {
    /// Unmounts what is mounted at `old_root`, and all below it.
    pub(crate) fn begin(old_root: OwnedFd) -> io::Result<Detaching> {
        let work = Work { old_root, errno: AtomicI32::new(Errno::INPROGRESS.raw_os_error()) };
        Ok(Detaching(Beside::start(libc::CLONE_FILES, work, unmount)?))
    }

    /// Waits until the old tree is gone for good.
    pub fn finish(self) -> io::Result<()> {
        match self.0.wait()?.errno.load(Ordering::SeqCst) {
            0 => Ok(()),
            errno => Err(io::Error::from_raw_os_error(errno)),
        }
    }
}

/// Changes only the helper's own working directory.
fn unmount(work: &Work) {
    let done = rustix::process::fchdir(&work.old_root)
        .and_then(|()| rustix::mount::unmount(c".", UnmountFlags::DETACH));
    work.errno.store(done.err().map_or(0, Errno::raw_os_error), Ordering::SeqCst);
}
