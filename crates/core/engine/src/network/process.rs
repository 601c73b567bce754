//! One process of the gateway, and the pipe that its events come through.

use std::fs::File;
use std::io::{self, PipeReader, Read};
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use ringwall_egress::{Control, Settings};
use ringwall_linux::fdpass;
use ringwall_linux::process::ends_within;
use rustix::net::sockopt;
use rustix::process::Pid;

use super::NetworkError;

/// Events that wait to be written down. Where they do not fit, the gateway refuses.
const PIPE_BYTES: usize = 1 << 20;

/// Words of the gateway when it reaches its limit of memory, by the allocator or where a thread wants a
/// stack, before the process ends.
const OUT_OF_MEMORY: [&str; 2] = ["memory allocation of", "OS can't spawn"];
const MAX_LAST_WORDS: u64 = 4096;

const ANSWER_PATIENCE: Duration = Duration::from_secs(60);

/// How long a gateway that was killed may take to end.
const KILLED_GATEWAY_TIMEOUT: Duration = Duration::from_secs(10);

/// Ends when it is dropped.
#[derive(Debug)]
pub(super) struct Process {
    pub(super) control: Control,
    pub(super) events: Option<PipeReader>,
    child: Child,
}

impl Process {
    /// It confines itself before it reads an order. Of root's it is another user from the start.
    pub(super) fn spawn(program: &Path, user: Option<u32>) -> Result<Process, NetworkError> {
        let (ours, theirs) = fdpass::pair().map_err(NetworkError::Start)?;
        // A gateway that does not answer, or reads no order, must not block the engine: it answers
        // every question quickly.
        for way in [sockopt::Timeout::Recv, sockopt::Timeout::Send] {
            sockopt::set_socket_timeout(&ours, way, Some(ANSWER_PATIENCE))
                .map_err(|error| NetworkError::Start(error.into()))?;
        }
        let program = File::open(program).map_err(NetworkError::Start)?;
        // By its descriptor: the other user may not be able to walk there.
        let mut command = Command::new(format!("/proc/self/fd/{}", program.as_raw_fd()));
        command
            .env_clear()
            .current_dir("/")
            // What interrupts us does not interrupt it: it ends when we let go of it.
            .process_group(0)
            .stdin(theirs)
            .stdout(Stdio::null())
            .stderr(Stdio::piped());
        if let Some(user) = user {
            command.uid(user).gid(user);
        }
        let child = command.spawn().map_err(NetworkError::Start)?;
        Ok(Process { control: Control::new(ours), events: None, child })
    }

    pub(super) fn start(&mut self, settings: Settings) -> Result<(), NetworkError> {
        let (reads, writes) = io::pipe().map_err(NetworkError::Start)?;
        // An ordinary user may have too many pipes already; then a smaller one must do.
        let _ = rustix::pipe::fcntl_setpipe_size(&writes, PIPE_BYTES);
        self.control.start(settings, writes.as_fd())?;
        self.events = Some(reads);
        Ok(())
    }
}

impl Process {
    /// Whether it ended because of its limit of memory. It is ended if it has not.
    pub(super) fn ran_out_of_memory(&mut self) -> bool {
        if !self.end() {
            // A reader of what it says would wait for its end, too.
            return false;
        }
        let mut words = Vec::new();
        if let Some(said) = self.child.stderr.take() {
            // Only the gateway writes there, so this ends. An unreadable end says nothing.
            let _ = said.take(MAX_LAST_WORDS).read_to_end(&mut words);
        }
        let words = String::from_utf8_lossy(&words);
        OUT_OF_MEMORY.iter().any(|known| words.contains(known))
    }

    /// Whether it has ended. The kernel may hold up a process that was killed, so the wait has a bound.
    fn end(&mut self) -> bool {
        let _ = self.child.kill();
        let ended = ends_within(Pid::from_child(&self.child), KILLED_GATEWAY_TIMEOUT);
        if ended {
            let _ = self.child.wait();
        }
        ended
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // It ends with its socket; killing it makes that immediate.
        self.end();
    }
}
