//! A running job: its standard streams, its signals and its end.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use ringwall_linux::inside::{Ended, Reaped};
use ringwall_linux::spawn;
use ringwall_linux::terminal::{Terminal, end_of_input, resize};
use ringwall_spec::TerminalSize;
use ringwall_wire::{Channel, Connection, ExitHow, ExitReport, Reply, StreamId};
use rustix::event::PollFlags;
use rustix::process::{Pid, Signal};

use crate::pump::{Flushed, Forwarded, Outbox, forward};
use crate::start::size_of_terminal;
use crate::tree;

/// Output that is still taken after the job has ended: as much as the largest pipe can hold.
/// Background processes that keep writing must not delay the end for ever.
const MAX_AFTER_END: usize = 1 << 20;

/// One of a task's descriptors.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Port {
    Input,
    Output,
    ErrorOutput,
}

#[derive(Debug)]
pub(crate) struct Job {
    pid: Pid,
    /// The inner side of the job's terminal. Held so that a program that closes its standard
    /// streams does not look like the end of the terminal, which then would be closed and kill it.
    terminal: Option<OwnedFd>,
    stdin: Option<OwnedFd>,
    input: Outbox,
    input_ended: bool,
    stdout: Option<OwnedFd>,
    stderr: Option<OwnedFd>,
    exit: Option<ExitReport>,
    /// Bytes of standard output and standard error that were taken after the end.
    after_end: [usize; 2],
}

impl Job {
    pub(crate) fn on_pipes(
        pid: Pid,
        stdin: Option<OwnedFd>,
        stdout: OwnedFd,
        stderr: OwnedFd,
    ) -> Job {
        Job {
            pid,
            terminal: None,
            stdin,
            input: Outbox::default(),
            input_ended: false,
            stdout: Some(stdout),
            stderr: Some(stderr),
            exit: None,
            after_end: [0; 2],
        }
    }

    /// `stdin` is another descriptor of the terminal's outer side.
    pub(crate) fn on_terminal(pid: Pid, stdin: OwnedFd, terminal: Terminal) -> Job {
        Job {
            pid,
            terminal: Some(terminal.inner),
            stdin: Some(stdin),
            input: Outbox::default(),
            input_ended: false,
            stdout: Some(terminal.outer),
            stderr: None,
            exit: None,
            after_end: [0; 2],
        }
    }

    pub(crate) fn pid(&self) -> Pid {
        self.pid
    }

    /// What to wait for. Output is left in the pipe, and the program waits, while nobody takes it.
    pub(crate) fn interests(
        &self,
        sendable: usize,
    ) -> impl Iterator<Item = (Port, BorrowedFd<'_>, PollFlags)> {
        let input = self.stdin.as_ref().filter(|_| !self.input.is_empty());
        // After the end no event is needed: what is there is taken, and that is all.
        let reading = sendable > 0 && self.exit.is_none();
        let output = self.stdout.as_ref().filter(|_| reading);
        let errors = self.stderr.as_ref().filter(|_| reading);
        [
            input.map(|fd| (Port::Input, fd.as_fd(), PollFlags::OUT)),
            output.map(|fd| (Port::Output, fd.as_fd(), PollFlags::IN)),
            errors.map(|fd| (Port::ErrorOutput, fd.as_fd(), PollFlags::IN)),
        ]
        .into_iter()
        .flatten()
    }

    pub(crate) fn ready(
        &mut self,
        port: Port,
        connection: &mut Connection,
        stream: StreamId,
        buffer: &mut [u8],
    ) {
        match port {
            Port::Input => self.feed(connection, stream),
            Port::Output | Port::ErrorOutput => {
                self.take(port, connection, stream, buffer);
            }
        }
    }

    // --- input ---

    pub(crate) fn input(&mut self, bytes: Vec<u8>, connection: &mut Connection, stream: StreamId) {
        self.input.push(bytes);
        self.feed(connection, stream);
    }

    pub(crate) fn end_input(&mut self, connection: &mut Connection, stream: StreamId) {
        self.input_ended = true;
        if let Some(terminal) = &self.terminal {
            // A terminal has no end; the program sees one through the agreed character.
            self.input.push(end_of_input(terminal).into_iter().collect());
        }
        self.feed(connection, stream);
    }

    fn feed(&mut self, connection: &mut Connection, stream: StreamId) {
        let Some(stdin) = &self.stdin else {
            // The program does not read any more: drop it, so that the engine does not wait.
            connection.consumed(stream, self.input.discard());
            return;
        };
        let (written, flushed) = self.input.flush(stdin.as_fd());
        connection.consumed(stream, written);
        match flushed {
            Flushed::Everything if self.input_ended => self.stdin = None,
            Flushed::Everything | Flushed::Waiting => {}
            Flushed::Closed => {
                self.stdin = None;
                connection.consumed(stream, self.input.discard());
            }
        }
    }

    // --- output ---

    fn take(
        &mut self,
        port: Port,
        connection: &mut Connection,
        stream: StreamId,
        buffer: &mut [u8],
    ) -> Forwarded {
        let (slot, channel) = match port {
            Port::ErrorOutput => (&mut self.stderr, Channel::Stderr),
            Port::Input | Port::Output => (&mut self.stdout, Channel::Stdout),
        };
        let Some(fd) = slot else {
            return Forwarded::Closed;
        };
        let forwarded = forward(connection, stream, channel, fd, buffer);
        if forwarded == Forwarded::Closed {
            *slot = None;
        }
        forwarded
    }

    // --- control ---

    pub(crate) fn signal(&self, signal: i32) {
        // Once reaped, the number may be someone else's.
        if self.exit.is_some() || !(1..=64).contains(&signal) {
            return;
        }
        if signal == Signal::KILL.as_raw() {
            // This signal is for all that the job started. A process group does not hold those that made a
            // session of their own.
            tree::kill(self.pid);
        } else {
            let _ = spawn::signal_group(self.pid, signal);
        }
    }

    pub(crate) fn resize(&self, size: TerminalSize) {
        if let Some(terminal) = &self.terminal {
            let _ = resize(terminal, size_of_terminal(size));
        }
    }

    /// Kills the job with all its descendants.
    pub(crate) fn kill(self) {
        if self.exit.is_none() {
            tree::kill(self.pid);
        }
    }

    // --- the end ---

    pub(crate) fn ended(&mut self, reaped: &Reaped) {
        let how = match reaped.how {
            Ended::Code(code) => ExitHow::Code(code),
            Ended::Signal(signal) => ExitHow::Signal(signal),
        };
        let (cpu_micros, peak_rss_bytes) = (Some(reaped.cpu_micros), reaped.peak_rss_bytes);
        self.exit = Some(ExitReport { how, cpu_micros, peak_rss_bytes });
        self.stdin = None;
    }

    /// After the end: sends what is left in the pipes, without waiting for background processes
    /// that hold them open, and then the report. True once that is done.
    pub(crate) fn settle(
        &mut self,
        connection: &mut Connection,
        stream: StreamId,
        buffer: &mut [u8],
    ) -> bool {
        let Some(report) = self.exit else {
            return false;
        };
        for (index, port) in [Port::Output, Port::ErrorOutput].into_iter().enumerate() {
            while self.after_end[index] < MAX_AFTER_END {
                match self.take(port, connection, stream, buffer) {
                    Forwarded::Moved(count) => self.after_end[index] += count,
                    Forwarded::NoCredit => return false,
                    Forwarded::Nothing | Forwarded::Closed => break,
                }
            }
        }
        connection.reply(stream, &Reply::Exited(report));
        true
    }
}
