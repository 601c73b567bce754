//! Small calls that a warden needs inside its ring and that have no safe wrapper elsewhere.
//!
//! The attempts at forbidden calls are made so that they change nothing even where they succeed.

use std::mem::MaybeUninit;
use std::os::fd::{FromRawFd, OwnedFd, RawFd};
use std::sync::atomic::{AtomicU64, Ordering};

use rustix::io::{Errno, FdFlags};
use rustix::process::Pid;

/// A descriptor that our parent left open for us under an agreed number, now closed on exec.
/// Each number is given out once, so that it has one owner.
pub fn inherited(number: RawFd) -> Option<OwnedFd> {
    static TAKEN: AtomicU64 = AtomicU64::new(0);
    let bit = 1u64.checked_shl(u32::try_from(number).ok()?)?;
    if number <= 2 || TAKEN.fetch_or(bit, Ordering::Relaxed) & bit != 0 {
        return None;
    }
    // SAFETY: F_GETFD reads a flag and fails cleanly where nothing is open.
    if unsafe { libc::fcntl(number, libc::F_GETFD) } < 0 {
        return None;
    }
    // SAFETY: it is open, and the bit set above makes this its only owner.
    let fd = unsafe { OwnedFd::from_raw_fd(number) };
    rustix::io::fcntl_setfd(&fd, FdFlags::CLOEXEC).ok()?;
    Some(fd)
}

/// Makes a write to a closed pipe an error, and ended children wait to be reaped: an inherited
/// "ignore" of `SIGCHLD` would make the kernel throw their exit statuses away.
pub fn settle_signals() -> Result<(), Errno> {
    set_disposition(libc::SIGPIPE, libc::SIG_IGN)?;
    set_disposition(libc::SIGCHLD, libc::SIG_DFL)
}

fn set_disposition(signal: i32, action: libc::sighandler_t) -> Result<(), Errno> {
    // SAFETY: the action is SIG_IGN or SIG_DFL, so no code of ours is registered.
    let before = unsafe { libc::signal(signal, action) };
    if before == libc::SIG_ERR { Err(last_errno()) } else { Ok(()) }
}

/// A child that ended and is now gone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Reaped {
    pub pid: Pid,
    pub how: Ended,
    /// User and system time of the process and the children it waited for.
    pub cpu_micros: u64,
    pub peak_rss_bytes: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ended {
    Code(u8),
    Signal(u8),
}

/// Takes one ended child, any of them: in a pid namespace's first process that includes orphans.
pub fn reap() -> Option<Reaped> {
    loop {
        let mut status = 0;
        let mut usage = MaybeUninit::<libc::rusage>::zeroed();
        // SAFETY: both pointers lead to memory of the right size; WNOHANG never blocks.
        let pid = unsafe { libc::wait4(-1, &raw mut status, libc::WNOHANG, usage.as_mut_ptr()) };
        if pid < 0 && last_errno() == Errno::INTR {
            continue;
        }
        let pid = Pid::from_raw(pid.max(0))?;
        // SAFETY: all of rusage is integers; it was zeroed and the kernel filled it in.
        let usage = unsafe { usage.assume_init() };
        let how = if libc::WIFSIGNALED(status) {
            Ended::Signal(u8::try_from(libc::WTERMSIG(status)).unwrap_or(u8::MAX))
        } else {
            Ended::Code(u8::try_from(libc::WEXITSTATUS(status)).unwrap_or(u8::MAX))
        };
        let cpu_micros = micros(usage.ru_utime).saturating_add(micros(usage.ru_stime));
        // The kernel counts in KiB.
        let peak_rss_bytes = u64::try_from(usage.ru_maxrss).unwrap_or(0).saturating_mul(1024);
        return Some(Reaped { pid, how, cpu_micros, peak_rss_bytes });
    }
}

fn micros(time: libc::timeval) -> u64 {
    let seconds = u64::try_from(time.tv_sec).unwrap_or(0);
    let rest = u64::try_from(time.tv_usec).unwrap_or(0);
    seconds.saturating_mul(1_000_000).saturating_add(rest)
}

/// Whether `io_uring_setup` is refused. A kernel that lets it through finds no parameters and says
/// `EFAULT`, so no ring is ever made.
pub fn refuses_io_uring() -> bool {
    // SAFETY: the kernel reads through the null pointer only with a checked copy, which fails.
    let done = unsafe {
        libc::syscall(libc::SYS_io_uring_setup, 1u32, std::ptr::null_mut::<libc::c_void>())
    };
    done < 0 && is_refusal(last_errno())
}

/// Whether `unshare(CLONE_NEWUSER)` is refused. The second flag is one that `unshare` never takes
/// (unshare(2): `EINVAL`), so no namespace is made where no filter stops the call before.
pub fn refuses_user_namespace() -> bool {
    // SAFETY: takes one integer; with this flag the kernel changes nothing.
    let done = unsafe { libc::unshare(libc::CLONE_NEWUSER | libc::CLONE_PARENT_SETTID) };
    done < 0 && is_refusal(last_errno())
}

/// `EINVAL` or `EFAULT` would mean that the kernel itself looked at the arguments.
fn is_refusal(errno: Errno) -> bool {
    matches!(errno, Errno::PERM | Errno::ACCESS | Errno::NOSYS)
}

/// The version of Landlock that the kernel speaks; 0 when it has none. Where a filter refuses the
/// question, 1: it is known only that there is one.
pub fn landlock_abi() -> u32 {
    const VERSION: u32 = 1;
    const NO_RULESET: i32 = -1;
    // SAFETY: with this flag the call takes no pointer and no size, and only returns a number.
    let abi = unsafe {
        libc::syscall(
            libc::SYS_landlock_create_ruleset,
            std::ptr::null::<libc::c_void>(),
            0usize,
            VERSION,
        )
    };
    if let Ok(abi) = u32::try_from(abi) {
        return abi;
    }
    // SAFETY: takes two integers, of which the first is no descriptor, so nothing can come of it.
    let none = unsafe { libc::syscall(libc::SYS_landlock_restrict_self, NO_RULESET, 0) };
    // A kernel that has Landlock looks for the ruleset; one without has no such call, or it is off.
    u32::from(none < 0 && last_errno() == Errno::BADF)
}

fn last_errno() -> Errno {
    Errno::from_io_error(&std::io::Error::last_os_error()).unwrap_or(Errno::INVAL)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_standard_streams_are_never_given_away() {
        for number in [-1, 0, 1, 2, 64, i32::MAX] {
            assert!(inherited(number).is_none(), "{number}");
        }
    }

    #[test]
    fn trying_forbidden_calls_changes_nothing() {
        let namespace = || std::fs::read_link("/proc/self/ns/user").unwrap();
        let before = namespace();
        refuses_user_namespace();
        refuses_io_uring();
        assert_eq!(namespace(), before);
    }
}
