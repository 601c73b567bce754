//! The control socket of a QEMU monitor: one question, one answer, in lines of JSON.
//!
//! The monitor is not trusted: a guest may have taken it over. Answers are bounded and waited for no
//! longer than the caller says.

use std::io::{self, Read, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

/// Longest line of an answer.
const MAX_LINE: usize = 256 << 10;
/// For what a monitor does itself; the guest is not asked.
const PATIENCE: Duration = Duration::from_secs(20);
const LOOK_EVERY: Duration = Duration::from_millis(1);
/// Events that may come between question and answer.
const MAX_EVENTS: usize = 1000;

#[derive(Debug, thiserror::Error)]
pub enum MonitorError {
    #[error("the VMM has ended")]
    Gone(#[source] io::Error),
    #[error("the VMM did not answer in time")]
    TimedOut,
    #[error("the VMM refused {command}: {reason}")]
    Refused { command: String, reason: String },
    #[error("the VMM answered in an unexpected way")]
    Confused,
}

/// A connection that has been opened.
#[derive(Debug)]
pub struct Monitor {
    socket: UnixStream,
    unread: Vec<u8>,
    deadline: Instant,
}

impl Monitor {
    /// Reads the greeting and agrees on the protocol.
    pub fn open(socket: UnixStream, patience: Duration) -> Result<Monitor, MonitorError> {
        let deadline = Instant::now() + patience;
        let mut monitor = Monitor { socket, unread: Vec::new(), deadline };
        if monitor.line()?.get("QMP").is_none() {
            return Err(MonitorError::Confused);
        }
        monitor.ask("qmp_capabilities", Value::Null, patience)?;
        Ok(monitor)
    }

    /// Asks and waits for the answer.
    pub fn ask(
        &mut self,
        command: &str,
        arguments: Value,
        patience: Duration,
    ) -> Result<Value, MonitorError> {
        self.deadline = Instant::now() + patience;
        let mut question = json!({ "execute": command });
        if !arguments.is_null()
            && let Some(fields) = question.as_object_mut()
        {
            fields.insert("arguments".to_owned(), arguments);
        }
        let mut line = question.to_string();
        line.push('\n');
        self.socket.write_all(line.as_bytes()).map_err(MonitorError::Gone)?;
        self.answer(command)
    }

    fn answer(&mut self, command: &str) -> Result<Value, MonitorError> {
        for _ in 0..MAX_EVENTS {
            let mut answer = self.line()?;
            if let Some(error) = answer.get("error") {
                let reason = error.get("desc").and_then(Value::as_str).unwrap_or_default();
                let reason = reason.chars().filter(|c| !c.is_control()).take(300).collect();
                return Err(MonitorError::Refused { command: command.to_owned(), reason });
            }
            if let Some(answer) = answer.get_mut("return") {
                return Ok(answer.take());
            }
        }
        Err(MonitorError::Confused)
    }

    /// Stops the machine and writes the state of its devices to a file. Memory that is shared with
    /// us is not in it.
    pub fn save(&mut self, state: BorrowedFd<'_>) -> Result<(), MonitorError> {
        self.without_memory()?;
        self.ask("stop", Value::Null, PATIENCE)?;
        self.pass("state", state)?;
        self.ask("migrate", json!({ "uri": "fd:state" }), PATIENCE)?;
        self.wait_until("query-migrate", &["completed"], &["failed", "cancelled"])
    }

    /// Lets a machine that waits for it go on with the state from a file.
    pub fn resume_from(&mut self, state: BorrowedFd<'_>) -> Result<(), MonitorError> {
        self.without_memory()?;
        self.pass("state", state)?;
        self.ask("migrate-incoming", json!({ "uri": "fd:state" }), PATIENCE)?;
        self.wait_until("query-status", &["paused", "prelaunch", "postmigrate"], &[])?;
        self.ask("cont", Value::Null, PATIENCE).map(drop)
    }

    /// Hands the machine over, memory and all, to a monitor that waits for one. It runs meanwhile, and
    /// both are stopped in the end. Gives for how long it has been.
    pub fn send_to(&mut self, other: &mut Monitor) -> Result<Duration, MonitorError> {
        let (from, to) = UnixStream::pair().map_err(MonitorError::Gone)?;
        other.pass("machine", to.as_fd())?;
        drop(to);
        other.ask("migrate-incoming", json!({ "uri": "fd:machine" }), PATIENCE)?;
        self.with_memory(true)?;
        // As fast as it goes, and once is enough: the guest writes little meanwhile.
        let fast = json!({ "max-bandwidth": i64::MAX, "downtime-limit": 0 });
        self.ask("migrate-set-parameters", fast, PATIENCE)?;
        self.pass("machine", from.as_fd())?;
        drop(from);
        self.ask("migrate", json!({ "uri": "fd:machine" }), PATIENCE)?;
        self.wait_until("query-migrate", &["completed"], &["failed", "cancelled"])?;
        let told = self.ask("query-migrate", Value::Null, PATIENCE)?;
        let stopped = told.get("downtime").and_then(Value::as_u64).unwrap_or_default();
        other.wait_until("query-status", &["paused", "prelaunch", "postmigrate"], &[])?;
        Ok(Duration::from_millis(stopped))
    }

    /// Lets a stopped machine go on.
    pub fn go_on(&mut self) -> Result<(), MonitorError> {
        self.ask("cont", Value::Null, PATIENCE).map(drop)
    }

    fn without_memory(&mut self) -> Result<(), MonitorError> {
        self.with_memory(false)
    }

    fn with_memory(&mut self, with: bool) -> Result<(), MonitorError> {
        let left_out = json!([{ "capability": "x-ignore-shared", "state": !with }]);
        let arguments = json!({ "capabilities": left_out });
        self.ask("migrate-set-capabilities", arguments, PATIENCE).map(drop)
    }

    /// Hands a descriptor over under a name.
    fn pass(&mut self, name: &str, fd: BorrowedFd<'_>) -> Result<(), MonitorError> {
        self.deadline = Instant::now() + PATIENCE;
        let question = json!({ "execute": "getfd", "arguments": { "fdname": name } });
        let line = format!("{question}\n");
        ringwall_linux::fdpass::send(self.socket.as_fd(), line.as_bytes(), &[fd])
            .map_err(MonitorError::Gone)?;
        self.answer("getfd").map(drop)
    }

    /// Asks until the status is one of these.
    fn wait_until(
        &mut self,
        command: &str,
        wanted: &[&str],
        hopeless: &[&str],
    ) -> Result<(), MonitorError> {
        let until = Instant::now() + PATIENCE;
        while Instant::now() < until {
            let answer = self.ask(command, Value::Null, PATIENCE)?;
            let status = answer.get("status").and_then(Value::as_str).unwrap_or_default();
            if wanted.contains(&status) {
                return Ok(());
            }
            if hopeless.contains(&status) {
                let reason = status.to_owned();
                return Err(MonitorError::Refused { command: command.to_owned(), reason });
            }
            std::thread::sleep(LOOK_EVERY);
        }
        Err(MonitorError::TimedOut)
    }

    fn line(&mut self) -> Result<Value, MonitorError> {
        loop {
            if let Some(end) = self.unread.iter().position(|byte| *byte == b'\n') {
                let rest = self.unread.split_off(end + 1);
                let line = std::mem::replace(&mut self.unread, rest);
                return serde_json::from_slice(&line).map_err(|_| MonitorError::Confused);
            }
            if self.unread.len() > MAX_LINE {
                return Err(MonitorError::Confused);
            }
            let left = self.deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(MonitorError::TimedOut);
            }
            self.socket.set_read_timeout(Some(left)).map_err(MonitorError::Gone)?;
            let mut piece = [0; 4096];
            match self.socket.read(&mut piece) {
                Ok(0) => return Err(MonitorError::Gone(io::ErrorKind::UnexpectedEof.into())),
                Ok(count) => self.unread.extend_from_slice(piece.get(..count).unwrap_or_default()),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    return Err(MonitorError::TimedOut);
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(MonitorError::Gone(error)),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn monitor_that_says(lines: &'static str) -> UnixStream {
        let (ours, mut theirs) = UnixStream::pair().unwrap();
        std::thread::spawn(move || {
            theirs.write_all(lines.as_bytes()).unwrap();
            let mut sink = Vec::new();
            let _ = theirs.read_to_end(&mut sink);
        });
        ours
    }

    #[test]
    fn events_between_question_and_answer_are_passed_over() {
        let socket = monitor_that_says(
            "{\"QMP\":{}}\n{\"return\":{}}\n{\"event\":\"STOP\"}\n{\"return\":{\"running\":false}}\n",
        );
        let mut monitor = Monitor::open(socket, PATIENCE).unwrap();
        let answer = monitor.ask("query-status", Value::Null, PATIENCE).unwrap();
        assert_eq!(answer.get("running"), Some(&Value::Bool(false)));
    }

    #[test]
    fn a_refusal_names_the_command_and_the_reason() {
        let socket = monitor_that_says(
            "{\"QMP\":{}}\n{\"return\":{}}\n{\"error\":{\"desc\":\"no such\\u001b thing\"}}\n",
        );
        let mut monitor = Monitor::open(socket, PATIENCE).unwrap();
        let error = monitor.ask("migrate", Value::Null, PATIENCE).unwrap_err();
        assert_eq!(error.to_string(), "the VMM refused migrate: no such thing");
    }

    #[test]
    fn silence_garbage_and_endless_lines_end_in_an_error() {
        let (ours, _theirs) = UnixStream::pair().unwrap();
        let silent = Monitor::open(ours, Duration::from_millis(20));
        assert!(matches!(silent, Err(MonitorError::TimedOut)));
        let garbage = Monitor::open(monitor_that_says("hello\n"), PATIENCE);
        assert!(matches!(garbage, Err(MonitorError::Confused)));
        let (ours, mut theirs) = UnixStream::pair().unwrap();
        std::thread::spawn(move || while theirs.write_all(&[b'x'; 4096]).is_ok() {});
        assert!(matches!(Monitor::open(ours, PATIENCE), Err(MonitorError::Confused)));
    }
}
