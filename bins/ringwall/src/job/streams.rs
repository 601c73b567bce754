//! Where a job's output goes: straight on, or into memory for JSON.

use std::io::{self, Write};
use std::os::fd::AsFd;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use ringwall_engine::Output;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::FileType;
use rustix::io::Errno;

use super::{STOPPED, Stop};

/// A pipe that has room takes so much without waiting (pipe(7)).
const PIPE_PIECE: usize = 4096;
/// How often a write that waits for its reader looks whether the job was stopped.
const LOOK_INTERVAL: Duration = Duration::from_millis(100);

/// Passes bytes on unchanged and at once.
pub(crate) struct PassOn {
    stop: Stop,
    reader_gone: bool,
    /// The job was stopped while its output waited: what still comes is dropped.
    given_up: bool,
    deadline: Option<Instant>,
}

impl PassOn {
    /// `stop` is called when the reader of the output is gone.
    pub(crate) fn new(stop: Stop) -> PassOn {
        PassOn { stop, reader_gone: false, given_up: false, deadline: None }
    }

    pub(crate) fn reader_gone(&self) -> bool {
        self.reader_gone
    }

    /// A closed pipe ends the job as it would end a program at a shell prompt; what still comes
    /// is dropped.
    fn pass(&mut self, to: impl AsFd, bytes: &[u8]) -> io::Result<()> {
        let is_pipe = rustix::fs::fstat(&to)
            .is_ok_and(|stat| FileType::from_raw_mode(stat.st_mode) == FileType::Fifo);
        let piece = if is_pipe { PIPE_PIECE } else { bytes.len().max(1) };
        for piece in bytes.chunks(piece) {
            if self.reader_gone || self.given_up || !self.waits_for_room(&to)? {
                return Ok(());
            }
            match write_all(&to, piece) {
                Err(Errno::PIPE) => {
                    self.reader_gone = true;
                    (self.stop)();
                }
                other => other.map_err(io::Error::from)?,
            }
        }
        Ok(())
    }

    /// A reader that takes nothing holds up neither the end of the job's time nor a request to stop.
    fn waits_for_room(&mut self, to: impl AsFd) -> io::Result<bool> {
        loop {
            let left = self.deadline.map(|it| it.saturating_duration_since(Instant::now()));
            let slice = left.map_or(LOOK_INTERVAL, |left| left.min(LOOK_INTERVAL));
            let slice = Timespec::try_from(slice).map_err(io::Error::other)?;
            match poll(&mut [PollFd::new(&to, PollFlags::OUT)], Some(&slice)) {
                Ok(0) if STOPPED.load(Ordering::SeqCst) => {
                    self.given_up = true;
                    return Ok(false);
                }
                Ok(0) if left.is_some_and(|left| left.is_zero()) => {
                    self.given_up = true;
                    return Err(io::ErrorKind::TimedOut.into());
                }
                Ok(0) | Err(Errno::INTR) => {}
                Ok(_) => return Ok(true),
                Err(error) => return Err(error.into()),
            }
        }
    }
}

impl std::fmt::Debug for PassOn {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("PassOn").field("reader_gone", &self.reader_gone).finish_non_exhaustive()
    }
}

impl Output for PassOn {
    fn stdout(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.pass(rustix::stdio::stdout(), bytes)
    }

    fn stderr(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.pass(rustix::stdio::stderr(), bytes)
    }

    fn wait_until(&mut self, deadline: Option<Instant>) {
        self.deadline = deadline;
    }
}

/// Unbuffered, and patient with descriptors that someone else has set to non-blocking.
fn write_all(to: impl AsFd, mut bytes: &[u8]) -> Result<(), Errno> {
    while !bytes.is_empty() {
        match rustix::io::write(&to, bytes) {
            Ok(written) => bytes = &bytes[written..],
            Err(Errno::INTR) => {}
            Err(Errno::AGAIN) => {
                let _ = poll(&mut [PollFd::new(&to, PollFlags::OUT)], None)?;
            }
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Keeps the output for the JSON document.
#[derive(Debug, Default)]
pub(crate) struct Capture {
    pub(crate) stdout: Vec<u8>,
    pub(crate) stderr: Vec<u8>,
    /// Whether more came than a document should carry.
    pub(crate) truncated: bool,
}

impl Capture {
    /// The output limit may be set far above what belongs into one document.
    const MOST_BYTES: usize = 64 << 20;

    fn keep(&mut self, bytes: &[u8], into: fn(&mut Capture) -> &mut Vec<u8>) -> io::Result<()> {
        let room = Self::MOST_BYTES.saturating_sub(self.stdout.len() + self.stderr.len());
        self.truncated |= bytes.len() > room;
        into(self).write_all(&bytes[..bytes.len().min(room)])
    }
}

impl Output for Capture {
    fn stdout(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.keep(bytes, |capture| &mut capture.stdout)
    }

    fn stderr(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.keep(bytes, |capture| &mut capture.stderr)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_capture_keeps_streams_apart_and_stays_bounded() {
        let mut capture = Capture::default();
        capture.stdout(b"out").unwrap();
        capture.stderr(b"err").unwrap();
        assert_eq!(
            (capture.stdout.as_slice(), capture.stderr.as_slice()),
            (&b"out"[..], &b"err"[..])
        );
        let chunk = vec![b'x'; 16 << 20];
        for _ in 0..5 {
            capture.stdout(&chunk).unwrap();
        }
        assert!(capture.truncated);
        assert_eq!(capture.stdout.len() + capture.stderr.len(), Capture::MOST_BYTES);
    }
}
