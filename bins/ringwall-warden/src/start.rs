//! From a request to a running job: everything is checked and prepared before the child exists.

use std::ffi::CString;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use ringwall_linux::spawn::{Program, SpawnError, SpawnStep, Streams, spawn};
use ringwall_linux::terminal;
use ringwall_spec::TerminalSize;
use ringwall_wire::{ErrorCode, ProcessLimits, RemoteError, StartProcess};
use rustix::fs::OFlags;
use rustix::io::Errno;
use rustix::pipe::PipeFlags;
use rustix::process::{Resource, Rlimit};

use crate::error::{describe, failed, failed_as, refused, show};
use crate::job::Job;

/// Searched when the environment has no `PATH`.
const DEFAULT_PATH: &[u8] = b"/usr/local/bin:/usr/bin:/bin";
/// More directories in `PATH` than this are not searched.
const MAX_SEARCHED: usize = 256;

/// Starts a job, in the control group that `join` leads to.
pub(crate) fn start(
    request: &StartProcess,
    sealed: bool,
    join: Option<BorrowedFd<'_>>,
) -> Result<Job, RemoteError> {
    check_user(request.user)?;
    let program = Program { sealed, ..prepare(request)? };
    let failure = |error| explain(request, error);
    if let Some(size) = request.terminal {
        let terminal = terminal::open(size_of_terminal(size))
            .map_err(|errno| failed("cannot open a terminal", errno))?;
        let stdin = rustix::io::fcntl_dupfd_cloexec(&terminal.outer, 3)
            .map_err(|errno| failed("cannot open a terminal", errno))?;
        let streams = Streams::Terminal(terminal.inner.as_fd());
        let pid = spawn(&program, streams, join).map_err(failure)?;
        return Ok(Job::on_terminal(pid, stdin, terminal));
    }
    let pipe = || open_pipe().map_err(|errno| failed("cannot open a pipe", errno));
    let (our_stdin, stdin) = match request.stdin {
        true => pipe().map(|(read, write)| (Some(write), Some(read)))?,
        false => (None, None),
    };
    let (our_stdout, stdout) = pipe()?;
    let (our_stderr, stderr) = pipe()?;
    for ours in our_stdin.iter().chain([&our_stdout, &our_stderr]) {
        set_nonblocking(ours).map_err(|errno| failed("cannot prepare a pipe", errno))?;
    }
    let streams = Streams::Pipes {
        stdin: stdin.as_ref().map(AsFd::as_fd),
        stdout: stdout.as_fd(),
        stderr: stderr.as_fd(),
    };
    let pid = spawn(&program, streams, join).map_err(failure)?;
    Ok(Job::on_pipes(pid, our_stdin, our_stdout, our_stderr))
}

pub(crate) fn size_of_terminal(size: TerminalSize) -> terminal::Size {
    terminal::Size { rows: size.rows, columns: size.columns }
}

pub(crate) fn set_nonblocking(fd: &OwnedFd) -> Result<(), Errno> {
    let flags = rustix::fs::fcntl_getfl(fd)?;
    rustix::fs::fcntl_setfl(fd, flags | OFlags::NONBLOCK)
}

pub(crate) fn set_blocking(fd: &OwnedFd) -> Result<(), Errno> {
    let flags = rustix::fs::fcntl_getfl(fd)?;
    rustix::fs::fcntl_setfl(fd, flags - OFlags::NONBLOCK)
}

fn open_pipe() -> Result<(OwnedFd, OwnedFd), Errno> {
    rustix::pipe::pipe_with(PipeFlags::CLOEXEC)
}

fn check_user(asked: Option<u32>) -> Result<(), RemoteError> {
    let own = rustix::process::getuid().as_raw();
    match asked {
        Some(uid) if uid != own => Err(refused(
            ErrorCode::NotPermitted,
            &format!("user {uid} does not exist in this ring; its only user is {own}"),
        )),
        _ => Ok(()),
    }
}

fn prepare(request: &StartProcess) -> Result<Program, RemoteError> {
    let name = request.argv.first().map_or(&[][..], Vec::as_slice);
    if name.is_empty() {
        return Err(refused(ErrorCode::Invalid, "the command is empty; name a program to run"));
    }
    let cwd = if request.cwd.is_empty() { b"/" } else { request.cwd.as_slice() };
    Ok(Program {
        candidates: c_strings("the program's name", &candidates(name, &request.env))?,
        argv: c_strings("an argument", &request.argv)?,
        env: c_strings("an environment entry", &request.env)?,
        cwd: c_string("the working directory", cwd)?,
        limits: lowered(&request.limits),
        sealed: false,
    })
}

fn c_strings(what: &str, all: &[Vec<u8>]) -> Result<Vec<CString>, RemoteError> {
    all.iter().map(|bytes| c_string(what, bytes)).collect()
}

fn c_string(what: &str, bytes: &[u8]) -> Result<CString, RemoteError> {
    CString::new(bytes)
        .map_err(|_| refused(ErrorCode::Invalid, &format!("{what} contains a zero byte")))
}

/// As a shell does it: a name with a slash is a path, any other is searched for.
fn candidates(name: &[u8], env: &[Vec<u8>]) -> Vec<Vec<u8>> {
    if name.contains(&b'/') {
        return vec![name.to_vec()];
    }
    // Later entries win.
    let path = env.iter().rev().find_map(|entry| entry.strip_prefix(b"PATH="));
    let in_directory = |directory: &[u8]| {
        let directory = if directory.is_empty() { b"." } else { directory };
        [directory, b"/", name].concat()
    };
    let directories = path.unwrap_or(DEFAULT_PATH).split(|byte| *byte == b':');
    directories.take(MAX_SEARCHED).map(in_directory).collect()
}

/// A limit above the ring's own stays at the ring's own.
fn lowered(asked: &ProcessLimits) -> Vec<(Resource, Rlimit)> {
    // One more second of CPU time to handle SIGXCPU, then SIGKILL.
    let cpu = asked.cpu_seconds.map(|soft| (Resource::Cpu, soft, soft.saturating_add(1)));
    let files = asked.open_files.map(|n| (Resource::Nofile, n, n));
    let bytes = asked.file_bytes.map(|n| (Resource::Fsize, n, n));
    let lower = |(resource, soft, hard): (Resource, u64, u64)| {
        let ceiling = rustix::process::getrlimit(resource).maximum.unwrap_or(u64::MAX);
        let limit = Rlimit { current: Some(soft.min(ceiling)), maximum: Some(hard.min(ceiling)) };
        (resource, limit)
    };
    [cpu, files, bytes].into_iter().flatten().map(lower).collect()
}

fn explain(request: &StartProcess, error: SpawnError) -> RemoteError {
    let name = request.argv.first().map_or(&[][..], Vec::as_slice);
    match error {
        SpawnError::NoProcess(errno) => {
            failed_as(ErrorCode::Limit, "cannot start another process in this ring", errno)
        }
        SpawnError::Child { step: SpawnStep::Execute, errno } => explain_execute(name, errno),
        SpawnError::Child { step: SpawnStep::WorkingDirectory, errno } => {
            let doing = format!("cannot use working directory {}", show(&request.cwd));
            failed_as(ErrorCode::Invalid, &doing, errno)
        }
        SpawnError::Child { step, errno } => {
            failed(&format!("cannot prepare {} ({step:?})", show(name)), errno)
        }
    }
}

fn explain_execute(name: &[u8], errno: Errno) -> RemoteError {
    let shown = show(name);
    let searched = !name.contains(&b'/');
    let exists = || name.starts_with(b"/") && rustix::fs::stat(name).is_ok();
    let (code, message) = match errno {
        Errno::NOENT | Errno::NOTDIR if searched => {
            (ErrorCode::NotFound, format!("{shown}: not found in the PATH of this ring"))
        }
        Errno::NOENT if exists() => {
            (ErrorCode::NotFound, format!("{shown}: the interpreter that it needs is not there"))
        }
        Errno::NOENT | Errno::NOTDIR => {
            (ErrorCode::NotFound, format!("{shown}: no such file in this ring"))
        }
        Errno::NOEXEC => {
            let why = "not a program that this system can run; does a script lack its #! line?";
            (ErrorCode::NotPermitted, format!("{shown}: {why}"))
        }
        Errno::TOOBIG | Errno::NOMEM | Errno::AGAIN => {
            (ErrorCode::Limit, format!("{shown}: {}", describe(errno)))
        }
        errno => {
            (ErrorCode::NotPermitted, format!("{shown}: cannot be executed: {}", describe(errno)))
        }
    };
    RemoteError { code, errno: Some(errno.raw_os_error()), message }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_without_a_slash_is_searched_in_the_given_path() {
        let env = [b"PATH=/old".to_vec(), b"PATH=/a:/b:".to_vec()];
        let expected = [b"/a/x".to_vec(), b"/b/x".to_vec(), b"./x".to_vec()];
        assert_eq!(candidates(b"x", &env), expected);
        assert_eq!(candidates(b"./x", &env), [b"./x".to_vec()]);
        assert_eq!(candidates(b"x", &[]).len(), 3);
    }

    #[test]
    fn an_absurd_path_is_not_searched_to_its_end() {
        let env = [[b"PATH=".as_slice(), &b":".repeat(100_000)].concat()];
        assert_eq!(candidates(b"x", &env).len(), MAX_SEARCHED);
    }

    #[test]
    fn limits_are_only_ever_lowered() {
        let hard = rustix::process::getrlimit(Resource::Nofile).maximum.unwrap_or(u64::MAX);
        let asked = ProcessLimits { open_files: Some(u64::MAX), ..ProcessLimits::default() };
        let (_, limit) = lowered(&asked).remove(0);
        assert_eq!((limit.current, limit.maximum), (Some(hard), Some(hard)));
        let asked = ProcessLimits { cpu_seconds: Some(1), ..ProcessLimits::default() };
        let (_, limit) = lowered(&asked).remove(0);
        assert_eq!(limit.current, Some(1));
    }

    #[test]
    fn requests_that_make_no_sense_start_nothing() {
        let code =
            |request: StartProcess| start(&request, false, None).err().map(|error| error.code);
        let argv = || vec![b"/bin/true".to_vec()];
        assert_eq!(code(StartProcess::default()), Some(ErrorCode::Invalid));
        let empty = StartProcess { argv: vec![Vec::new()], ..StartProcess::default() };
        assert_eq!(code(empty), Some(ErrorCode::Invalid));
        let zero = StartProcess { argv: vec![b"a\0b".to_vec()], ..StartProcess::default() };
        assert_eq!(code(zero), Some(ErrorCode::Invalid));
        let stranger = StartProcess { argv: argv(), user: Some(54_321), ..StartProcess::default() };
        assert_eq!(code(stranger), Some(ErrorCode::NotPermitted));
        let nowhere =
            StartProcess { argv: argv(), cwd: b"/nonexistent".to_vec(), ..StartProcess::default() };
        assert_eq!(code(nowhere), Some(ErrorCode::Invalid));
    }
}
