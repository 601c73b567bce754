//! Signals as something to read, not something that interrupts.
//!
//! A [`SignalWatch`] blocks its signals for the thread that makes it and for every thread and
//! process started afterwards, so make it first; nothing is lost between two reads. Programs
//! started by `spawn` begin with a clear mask.

use std::io;
use std::mem::{MaybeUninit, size_of};
use std::os::fd::{AsFd, BorrowedFd, FromRawFd, OwnedFd};

use rustix::process::Signal;

/// Receives the signals it was made for, one at a time.
#[derive(Debug)]
pub struct SignalWatch {
    descriptor: OwnedFd,
}

impl SignalWatch {
    /// A hang-up that was ignored already, as by `nohup`, stays ignored: a blocked signal would be
    /// read all the same.
    pub fn new(signals: &[Signal]) -> io::Result<SignalWatch> {
        let mut watched = signals.to_vec();
        if is_ignored(Signal::HUP)? {
            watched.retain(|signal| *signal != Signal::HUP);
        }
        let set = signal_set(&watched)?;
        change_mask(libc::SIG_BLOCK, &set)?;
        // SAFETY: `set` is a live, initialised signal set; -1 asks for a new descriptor.
        let raw = unsafe { libc::signalfd(-1, &raw const set, libc::SFD_CLOEXEC) };
        if raw < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: signalfd has just returned this descriptor and nothing else knows of it.
        let descriptor = unsafe { OwnedFd::from_raw_fd(raw) };
        Ok(SignalWatch { descriptor })
    }

    /// Blocks until one of the signals arrives and gives its number.
    pub fn wait(&self) -> io::Result<i32> {
        const RECORD: usize = size_of::<libc::signalfd_siginfo>();
        let mut record = [0u8; RECORD];
        loop {
            match rustix::io::read(&self.descriptor, &mut record) {
                Ok(RECORD) => break,
                Ok(_) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Err(rustix::io::Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
        // `ssi_signo` is the first field of the record, in the machine's byte order.
        let [a, b, c, d, ..] = record;
        i32::try_from(u32::from_ne_bytes([a, b, c, d]))
            .map_err(|_| io::ErrorKind::InvalidData.into())
    }

    /// Lets a signal that was received do what it does when nobody watches. Returns only if that is
    /// nothing, or if the process was stopped and goes on now.
    pub fn let_through(&self, signal: i32) -> io::Result<()> {
        let signal = Signal::from_named_raw(signal)
            .ok_or_else(|| io::Error::from(io::ErrorKind::InvalidInput))?;
        let set = signal_set(&[signal])?;
        change_mask(libc::SIG_UNBLOCK, &set)?;
        // SAFETY: raise sends a signal to this thread; the default actions need nothing of ours.
        let raised = check(unsafe { libc::raise(signal.as_raw()) });
        change_mask(libc::SIG_BLOCK, &set)?;
        raised
    }
}

impl AsFd for SignalWatch {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.descriptor.as_fd()
    }
}

fn signal_set(signals: &[Signal]) -> io::Result<libc::sigset_t> {
    let mut set = MaybeUninit::<libc::sigset_t>::uninit();
    // SAFETY: sigemptyset only writes to the set it is given, which may be uninitialised.
    check(unsafe { libc::sigemptyset(set.as_mut_ptr()) })?;
    // SAFETY: sigemptyset has just initialised the whole set.
    let mut set = unsafe { set.assume_init() };
    for signal in signals {
        // SAFETY: `set` is an initialised set; a number out of range is answered with EINVAL.
        check(unsafe { libc::sigaddset(&raw mut set, signal.as_raw()) })?;
    }
    Ok(set)
}

fn is_ignored(signal: Signal) -> io::Result<bool> {
    let mut action = MaybeUninit::<libc::sigaction>::uninit();
    // SAFETY: nothing is changed; the present action is written to the structure, which is ours.
    check(unsafe { libc::sigaction(signal.as_raw(), std::ptr::null(), action.as_mut_ptr()) })?;
    // SAFETY: the call has just filled it.
    let action = unsafe { action.assume_init() };
    Ok(action.sa_sigaction == libc::SIG_IGN)
}

fn change_mask(how: libc::c_int, set: &libc::sigset_t) -> io::Result<()> {
    let set = std::ptr::from_ref(set);
    // SAFETY: `set` points to an initialised set; the old mask is not asked for.
    match unsafe { libc::pthread_sigmask(how, set, std::ptr::null_mut()) } {
        0 => Ok(()),
        error => Err(io::Error::from_raw_os_error(error)),
    }
}

fn check(result: libc::c_int) -> io::Result<()> {
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Masks belong to threads: each test changes that of a thread of its own.
    fn on_own_thread(test: impl FnOnce() + Send + 'static) {
        std::thread::spawn(test).join().unwrap();
    }

    fn blocked_signals() -> u64 {
        let status = std::fs::read_to_string("/proc/thread-self/status").unwrap();
        let mask = status.lines().find_map(|line| line.strip_prefix("SigBlk:")).unwrap();
        u64::from_str_radix(mask.trim(), 16).unwrap()
    }

    #[test]
    fn a_signal_that_came_before_the_read_is_not_lost() {
        on_own_thread(|| {
            let watch = SignalWatch::new(&[Signal::USR1, Signal::WINCH]).unwrap();
            let thread = rustix::thread::gettid().as_raw_nonzero().get();
            // SAFETY: a thread signals itself with a signal that it has blocked.
            let sent = unsafe { libc::syscall(libc::SYS_tkill, thread, Signal::USR1.as_raw()) };
            assert_eq!(sent, 0);
            assert_eq!(watch.wait().unwrap(), Signal::USR1.as_raw());
        });
    }

    #[test]
    fn only_the_watched_signals_are_blocked() {
        on_own_thread(|| {
            let before = blocked_signals();
            let _watch = SignalWatch::new(&[Signal::TERM, Signal::INT]).unwrap();
            assert_eq!(blocked_signals(), before | 1 << 14 | 1 << 1);
        });
    }
}
