//! A process beside this one that shares its memory: cheap to make, for work that waits.
//!
//! Copying an address space takes longer than all that these helpers do. In return the helper may
//! make system calls and nothing else: it allocates nothing, takes no lock, does not panic, and
//! calls no function of the C library, whose `errno` would be ours. `rustix` speaks to the kernel
//! directly, so its functions fit.
//!
//! Invariant: the helper's stack and work outlive it, and it does not outlive this process.

use std::ffi::{c_int, c_void};
use std::io;
use std::os::fd::{AsFd, FromRawFd, OwnedFd, RawFd};
use std::ptr::NonNull;

use rustix::event::{PollFd, PollFlags};
use rustix::process::{Pid, Signal, WaitId, WaitIdOptions};

use crate::process;

/// Enough for a few nested calls in a debug build; touched lazily.
const STACK_BYTES: usize = 32 * 1024;

#[derive(Debug)]
pub(crate) struct Beside<W> {
    pid: Pid,
    helper: OwnedFd,
    shared: NonNull<Shared<W>>,
}

#[derive(Debug)]
struct Shared<W> {
    work: W,
    body: fn(&W),
    owner: Option<Pid>,
    stack: Vec<u128>,
}

impl<W: Sync> Beside<W> {
    /// Starts `body` in a process with these further clone flags.
    pub(crate) fn start(flags: c_int, work: W, body: fn(&W)) -> io::Result<Beside<W>> {
        let stack = vec![0u128; STACK_BYTES / size_of::<u128>()];
        let owner = Some(rustix::process::getpid());
        let mut shared = Box::new(Shared { work, body, owner, stack });
        let top = shared.stack.as_mut_ptr_range().end.cast::<c_void>();
        let shared = NonNull::from(Box::leak(shared));
        let mut helper: RawFd = -1;
        let flags = flags | libc::CLONE_VM | libc::CLONE_PIDFD | libc::SIGCHLD;
        // SAFETY: the helper runs `enter` on a stack of its own; that and all it is given stay
        // where they are until it has ended (`Drop`). `helper` outlives the call.
        let pid =
            unsafe { libc::clone(enter::<W>, top, flags, shared.as_ptr().cast(), &raw mut helper) };
        let Some(pid) = Pid::from_raw(pid.max(0)) else {
            let error = io::Error::last_os_error();
            // SAFETY: no helper exists, so this is the only pointer to what was leaked above.
            drop(unsafe { Box::from_raw(shared.as_ptr()) });
            return Err(error);
        };
        // SAFETY: the kernel just stored a new descriptor there, owned by nobody else.
        let helper = unsafe { OwnedFd::from_raw_fd(helper) };
        Ok(Beside { pid, helper, shared })
    }

    pub(crate) fn pid(&self) -> Pid {
        self.pid
    }

    /// Waits until the helper has ended, and gives what it worked on.
    pub(crate) fn wait(&self) -> io::Result<&W> {
        self.wait_for_end()?;
        // SAFETY: the pointer is valid until `Drop`, and nobody writes through it.
        Ok(unsafe { &(*self.shared.as_ptr()).work })
    }

    /// Ends a helper that waits for just that.
    pub(crate) fn kill(&self) {
        let _ = rustix::process::pidfd_send_signal(&self.helper, Signal::KILL);
    }
}

impl<W> Beside<W> {
    fn wait_for_end(&self) -> io::Result<()> {
        let mut polled = [PollFd::new(&self.helper, PollFlags::IN)];
        rustix::io::retry_on_intr(|| rustix::event::poll(&mut polled, None))?;
        // Where child exits are ignored the kernel has reaped it already.
        let _ = rustix::process::waitid(WaitId::PidFd(self.helper.as_fd()), WaitIdOptions::EXITED);
        Ok(())
    }
}

impl<W> Drop for Beside<W> {
    fn drop(&mut self) {
        if self.wait_for_end().is_ok() {
            // SAFETY: the helper has ended, so this is the only pointer to what `start` leaked.
            // Else it may still use its stack: better leak it than free it.
            drop(unsafe { Box::from_raw(self.shared.as_ptr()) });
        }
    }
}

/// A helper that is there to be killed.
pub(crate) fn wait_for_ever((): &()) {
    let _ = rustix::event::poll(&mut [], None);
}

/// The helper's whole life.
extern "C" fn enter<W>(shared: *mut c_void) -> c_int {
    // SAFETY: `start` passes a valid pointer, and the owner keeps it so until we have ended.
    let shared = unsafe { &*shared.cast::<Shared<W>>() };
    let tied = process::die_with_parent().is_ok();
    // An owner that ended before the tie was made has left us to somebody else.
    if tied && rustix::process::getppid() == shared.owner {
        (shared.body)(&shared.work);
    }
    0
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering};

    use super::*;

    #[test]
    fn what_the_helper_wrote_is_there_when_it_has_ended() {
        let write = |cell: &AtomicU32| cell.store(7, Ordering::SeqCst);
        let helper = Beside::start(0, AtomicU32::new(0), write).unwrap();
        assert_eq!(helper.wait().unwrap().load(Ordering::SeqCst), 7);
    }

    #[test]
    fn a_helper_that_waits_for_ever_ends_when_it_is_killed() {
        let helper = Beside::start(0, (), wait_for_ever).unwrap();
        helper.kill();
        helper.wait().unwrap();
        assert!(rustix::process::test_kill_process(helper.pid()).is_err());
    }
}
