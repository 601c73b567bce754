//! Where a job's output goes: straight on, or into memory for JSON.

use std::io::{self, Write};
use std::os::fd::AsFd;

use ringwall_engine::Output;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;

use super::Stop;

/// Passes bytes on unchanged and at once.
pub(crate) struct PassOn {
    stop: Stop,
    reader_gone: bool,
}

impl PassOn {
    /// `stop` is called when the reader of the output is gone.
    pub(crate) fn new(stop: Stop) -> PassOn {
        PassOn { stop, reader_gone: false }
    }

    pub(crate) fn reader_gone(&self) -> bool {
        self.reader_gone
    }

    /// A closed pipe ends the job as it would end a program at a shell prompt; what still comes
    /// is dropped.
    fn pass(&mut self, to: impl AsFd, bytes: &[u8]) -> io::Result<()> {
        if self.reader_gone {
            return Ok(());
        }
        match write_all(to, bytes) {
            Err(Errno::PIPE) => {
                self.reader_gone = true;
                (self.stop)();
                Ok(())
            }
            other => other.map_err(io::Error::from),
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
