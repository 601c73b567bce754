//! Unmounting without waiting for it.
//!
//! After an unmount the kernel waits until no CPU can still see the mount, which takes from a tenth
//! of a millisecond to several. A helper that shares our memory does the waiting, while the ring's
//! other steps go on.

use std::ffi::c_void;
use std::io;
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd, RawFd};

use rustix::event::{PollFd, PollFlags};
use rustix::process::{WaitId, WaitIdOptions};

/// Enough for one system call and its caller.
const STACK_BYTES: usize = 16 * 1024;

/// An unmount on its way. Must be finished before anything relies on the tree being gone.
#[derive(Debug)]
pub struct Detaching {
    helper: OwnedFd,
    /// In use by the helper until it has ended.
    work: Box<Work>,
}

#[derive(Debug)]
struct Work {
    old_root: OwnedFd,
    result: libc::c_long,
    stack: Vec<u128>,
}

impl Detaching {
    /// Unmounts what is mounted at `old_root`, and all below it.
    pub(crate) fn begin(old_root: OwnedFd) -> io::Result<Detaching> {
        let stack = vec![0u128; STACK_BYTES / size_of::<u128>()];
        let mut work = Box::new(Work { old_root, result: -1, stack });
        let mut helper: RawFd = -1;
        let top = work.stack.as_mut_ptr_range().end.cast::<c_void>();
        let argument = (&raw mut *work).cast::<c_void>();
        let flags = libc::CLONE_VM | libc::CLONE_FILES | libc::CLONE_PIDFD | libc::SIGCHLD;
        // SAFETY: the helper runs `unmount_old_root` on a stack of its own that lives in the box,
        // as does everything it touches; the box is not moved out of, read or freed before the
        // helper has ended (`finish`, also on drop). `helper` outlives the call.
        let pid = unsafe { libc::clone(unmount_old_root, top, flags, argument, &raw mut helper) };
        if pid < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the kernel just stored a new descriptor there, owned by nobody else.
        let helper = unsafe { OwnedFd::from_raw_fd(helper) };
        Ok(Detaching { helper, work })
    }

    /// Waits until the old tree is gone for good.
    pub fn finish(self) -> io::Result<()> {
        self.wait()?;
        match self.work.result {
            0 => Ok(()),
            errno => {
                let errno = i32::try_from(-errno).unwrap_or(libc::EIO);
                Err(io::Error::from_raw_os_error(errno))
            }
        }
    }

    fn wait(&self) -> io::Result<()> {
        let mut polled = [PollFd::new(&self.helper, PollFlags::IN)];
        rustix::io::retry_on_intr(|| rustix::event::poll(&mut polled, None))?;
        // Where child exits are ignored the kernel has reaped it already.
        let _ = rustix::process::waitid(WaitId::PidFd(self.helper.as_fd()), WaitIdOptions::EXITED);
        Ok(())
    }
}

impl Drop for Detaching {
    fn drop(&mut self) {
        if self.wait().is_err() {
            // The helper may still use its stack: better leak it than free it.
            std::mem::forget(std::mem::take(&mut self.work.stack));
        }
    }
}

/// The helper. It shares our memory, so it makes system calls and nothing else: no allocation, no
/// library function that keeps state.
extern "C" fn unmount_old_root(argument: *mut c_void) -> libc::c_int {
    let work = argument.cast::<Work>();
    // SAFETY: `begin` passes a valid pointer, and the owner keeps the box until we have ended.
    let fd = unsafe { (*work).old_root.as_raw_fd() };
    // SAFETY: a descriptor of a directory; changes only the helper's own working directory.
    let mut result = unsafe { raw_call(libc::SYS_fchdir, fd.cast_unsigned() as usize, 0) };
    if result == 0 {
        let here = c".".as_ptr().addr();
        let detach = libc::MNT_DETACH.cast_unsigned() as usize;
        // SAFETY: the path is a valid C string for the whole call.
        result = unsafe { raw_call(libc::SYS_umount2, here, detach) };
    }
    // SAFETY: as above; the owner reads it only after we have ended.
    unsafe { (*work).result = result };
    0
}

/// A system call that leaves errno alone: with shared memory it would be the owner's.
///
/// # Safety
/// The arguments must be valid for the call.
unsafe fn raw_call(number: libc::c_long, first: usize, second: usize) -> libc::c_long {
    let result: libc::c_long;
    // SAFETY: the x86_64 convention for system calls; rcx and r11 are the only registers changed
    // besides the result. Validity of the arguments is the caller's promise.
    unsafe {
        std::arch::asm!(
            "syscall",
            inlateout("rax") number => result,
            in("rdi") first,
            in("rsi") second,
            lateout("rcx") _,
            lateout("r11") _,
            options(nostack),
        );
    }
    result
}
