//! Starts one program as a child in its own session: what a warden does for every job.
//!
//! The child shares the parent's memory until it executes (`CLONE_VM | CLONE_VFORK`), so no page
//! tables are copied and a failure is handed back through a plain field. For the same reason the
//! child makes only system calls: it allocates nothing, takes no lock and runs no signal handler.
//!
//! Invariant: after an error no child is left, not even one to wait for.

use std::ffi::{CStr, CString, c_char, c_int};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd};

use rustix::fs::Mode;
use rustix::io::Errno;
use rustix::process::{Pid, Resource, Rlimit};

use crate::process::{self, Sharing};
use crate::seccomp;

/// Linux has signals 1 to 64.
const LAST_SIGNAL: c_int = 64;

/// What to run. Everything is prepared before the child exists.
#[derive(Debug)]
pub struct Program {
    /// Paths tried in order, as a shell walks `PATH`.
    pub candidates: Vec<CString>,
    pub argv: Vec<CString>,
    pub env: Vec<CString>,
    pub cwd: CString,
    pub limits: Vec<(Resource, Rlimit)>,
    /// Whether the ring's own filter leaves out what jobs must not do, so that it has to be added.
    pub sealed: bool,
}

/// Where the standard streams lead. Descriptors must not be 0, 1 or 2 themselves.
#[derive(Debug, Clone, Copy)]
pub enum Streams<'fd> {
    /// Without an input pipe the child keeps the parent's standard input.
    Pipes { stdin: Option<BorrowedFd<'fd>>, stdout: BorrowedFd<'fd>, stderr: BorrowedFd<'fd> },
    /// All three are this terminal, which becomes the controlling one.
    Terminal(BorrowedFd<'fd>),
}

/// How far the child came.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SpawnStep {
    Session,
    Group,
    Streams,
    Limits,
    WorkingDirectory,
    Filter,
    Execute,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum SpawnError {
    #[error("no new process could be made")]
    NoProcess(#[source] Errno),
    #[error("the new process failed before it ran the program, at {step:?}")]
    Child { step: SpawnStep, errno: Errno },
}

/// Starts the program and returns once it runs, or once it is known that it cannot.
/// With `join`, the program runs in the control group whose join file that is.
pub fn spawn(
    program: &Program,
    streams: Streams<'_>,
    join: Option<BorrowedFd<'_>>,
) -> Result<Pid, SpawnError> {
    let argv = null_terminated(&program.argv);
    let env = null_terminated(&program.env);
    let child = Child { program, streams, join, argv: &argv, env: &env };
    let mut failure = None;
    // A handler of ours must not run in a child that shares our memory. The child unblocks.
    let blocked = block_signals();
    let cloned = process::clone_sharing(0, Sharing::CallsOnly, || failure = Some(child.run()));
    restore_signals(&blocked);

    let (pid, _) = cloned.map_err(|error| {
        SpawnError::NoProcess(Errno::from_io_error(&error).unwrap_or(Errno::AGAIN))
    })?;
    match failure {
        None => Ok(pid),
        Some((step, errno)) => {
            // It only has to be waited for; how it ended is known.
            let _ = rustix::process::waitpid(Some(pid), rustix::process::WaitOptions::empty());
            Err(SpawnError::Child { step, errno })
        }
    }
}

/// Sends a signal, by number because real-time signals have no name, to a whole process group.
pub fn signal_group(leader: Pid, signal: i32) -> Result<(), Errno> {
    // SAFETY: kill takes integers only; a negative id means the group.
    let done = unsafe { libc::kill(-leader.as_raw_nonzero().get(), signal) };
    if done == 0 { Ok(()) } else { Err(last_errno()) }
}

#[derive(Clone, Copy)]
struct Child<'a> {
    program: &'a Program,
    streams: Streams<'a>,
    join: Option<BorrowedFd<'a>>,
    argv: &'a [*const c_char],
    env: &'a [*const c_char],
}

impl Child<'_> {
    /// The child's whole life. Comes back only if it could not become the program.
    fn run(&self) -> (SpawnStep, Errno) {
        match self.prepare() {
            Ok(()) => (SpawnStep::Execute, self.execute()),
            Err(failure) => failure,
        }
    }

    fn prepare(&self) -> Result<(), (SpawnStep, Errno)> {
        let at = |step: SpawnStep| move |errno: Errno| (step, errno);
        rustix::process::setsid().map_err(at(SpawnStep::Session))?;
        if let Some(join) = self.join {
            rustix::io::write(join, b"0").map_err(at(SpawnStep::Group))?;
        }
        self.connect_streams().map_err(at(SpawnStep::Streams))?;
        close_on_exec_above_stderr().map_err(at(SpawnStep::Streams))?;
        rustix::process::umask(Mode::from_raw_mode(0o022));
        rustix::process::chdir(self.program.cwd.as_c_str())
            .map_err(at(SpawnStep::WorkingDirectory))?;
        for (resource, limit) in &self.program.limits {
            rustix::process::setrlimit(*resource, *limit).map_err(at(SpawnStep::Limits))?;
        }
        default_signals();
        if self.program.sealed {
            seccomp::install_sealed_filter()
                .map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::PERM))
                .map_err(at(SpawnStep::Filter))?;
        }
        Ok(())
    }

    fn connect_streams(&self) -> Result<(), Errno> {
        let (stdin, stdout, stderr) = match self.streams {
            Streams::Pipes { stdin, stdout, stderr } => (stdin, stdout, stderr),
            Streams::Terminal(terminal) => {
                rustix::process::ioctl_tiocsctty(terminal)?;
                (Some(terminal), terminal, terminal)
            }
        };
        if let Some(stdin) = stdin {
            rustix::stdio::dup2_stdin(stdin.as_fd())?;
        }
        rustix::stdio::dup2_stdout(stdout)?;
        rustix::stdio::dup2_stderr(stderr)
    }

    /// Comes back only if no candidate could be executed, with the most telling error: "may not"
    /// wins over "is not there", as in a shell.
    fn execute(&self) -> Errno {
        let mut telling = Errno::NOENT;
        for candidate in &self.program.candidates {
            // SAFETY: path, argv and env are nul-terminated and live in the stopped parent's
            // memory; both arrays end with a null pointer.
            unsafe {
                libc::execve(candidate.as_ptr(), self.argv.as_ptr(), self.env.as_ptr());
            }
            match last_errno() {
                Errno::NOENT | Errno::NOTDIR => {}
                Errno::ACCESS => telling = Errno::ACCESS,
                errno => return errno,
            }
        }
        telling
    }
}

fn null_terminated(strings: &[CString]) -> Vec<*const c_char> {
    strings.iter().map(|s| CStr::as_ptr(s)).chain(std::iter::once(std::ptr::null())).collect()
}

/// Nothing but the standard streams crosses into a job, even if someone forgot a flag.
fn close_on_exec_above_stderr() -> Result<(), Errno> {
    // SAFETY: close_range with CLOSE_RANGE_CLOEXEC takes integers and closes nothing yet.
    let done =
        unsafe { libc::syscall(libc::SYS_close_range, 3u32, u32::MAX, libc::CLOSE_RANGE_CLOEXEC) };
    if done == 0 { Ok(()) } else { Err(last_errno()) }
}

/// Ignored signals would stay ignored in the program. Raw calls, because the C library's wrapper
/// keeps books in memory that is the parent's.
fn default_signals() {
    // The kernel's `struct sigaction` of all zeros is SIG_DFL without flags.
    let default = [0u64; 4];
    let nothing_blocked = 0u64;
    for signal in 1..=LAST_SIGNAL {
        // SAFETY: the kernel reads 32 bytes and an 8-byte mask; SIGKILL and SIGSTOP just fail.
        unsafe {
            libc::syscall(
                libc::SYS_rt_sigaction,
                signal,
                default.as_ptr(),
                std::ptr::null_mut::<u64>(),
                size_of::<u64>(),
            );
        }
    }
    // SAFETY: the kernel reads one 8-byte mask.
    unsafe {
        libc::syscall(
            libc::SYS_rt_sigprocmask,
            libc::SIG_SETMASK,
            &raw const nothing_blocked,
            std::ptr::null_mut::<u64>(),
            size_of::<u64>(),
        );
    }
}

fn block_signals() -> libc::sigset_t {
    let mut all = MaybeUninit::<libc::sigset_t>::zeroed();
    let mut before = MaybeUninit::<libc::sigset_t>::zeroed();
    // SAFETY: writes a signal set into memory of its size.
    unsafe { libc::sigfillset(all.as_mut_ptr()) };
    // SAFETY: both point to signal sets of ours; only this thread's mask changes.
    unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, all.as_ptr(), before.as_mut_ptr()) };
    // SAFETY: a signal set is plain bits, zeroed above and then filled in by the call.
    unsafe { before.assume_init() }
}

fn restore_signals(before: &libc::sigset_t) {
    // SAFETY: `before` is a valid signal set; only this thread's mask changes.
    unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, before, std::ptr::null_mut()) };
}

fn last_errno() -> Errno {
    Errno::from_io_error(&std::io::Error::last_os_error()).unwrap_or(Errno::INVAL)
}

#[cfg(test)]
mod tests;
