//! Bytes between the engine's stream and descriptors, never more in memory than was given credit
//! for.

use std::collections::VecDeque;
use std::os::fd::{AsFd, BorrowedFd};

use ringwall_wire::{Channel, Connection, StreamId};
use rustix::io::Errno;

/// Bytes that came from the engine and wait until a descriptor takes them. Bounded by the credit
/// that the engine has, because credit is given back only for what was written.
#[derive(Debug, Default)]
pub(crate) struct Outbox {
    chunks: VecDeque<Vec<u8>>,
    /// How much of the first chunk is already written.
    written: usize,
}

#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Flushed {
    Everything,
    /// The descriptor takes no more for now.
    Waiting,
    /// Nobody reads there any more.
    Closed,
}

impl Outbox {
    pub(crate) fn push(&mut self, bytes: Vec<u8>) {
        if !bytes.is_empty() {
            self.chunks.push_back(bytes);
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.chunks.is_empty()
    }

    /// Throws away what is left and says how much it was.
    pub(crate) fn discard(&mut self) -> usize {
        let total: usize = self.chunks.iter().map(Vec::len).sum();
        let left = total - self.written;
        *self = Outbox::default();
        left
    }

    /// Writes as much as a non-blocking descriptor takes; also says how many bytes that was.
    pub(crate) fn flush(&mut self, to: BorrowedFd<'_>) -> (usize, Flushed) {
        let mut total = 0;
        while let Some(first) = self.chunks.front() {
            match rustix::io::write(to, &first[self.written..]) {
                Ok(0) | Err(Errno::AGAIN) => return (total, Flushed::Waiting),
                Ok(count) => {
                    total += count;
                    self.written += count;
                    if self.written == first.len() {
                        self.chunks.pop_front();
                        self.written = 0;
                    }
                }
                Err(Errno::INTR) => {}
                Err(_) => return (total, Flushed::Closed),
            }
        }
        (total, Flushed::Everything)
    }
}

#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Forwarded {
    Moved(usize),
    /// There is nothing to read for now.
    Nothing,
    /// The engine has not given credit for more.
    NoCredit,
    /// There will never be more.
    Closed,
}

/// Reads once from a non-blocking descriptor, at most what may be sent, and sends it.
pub(crate) fn forward(
    connection: &mut Connection,
    stream: StreamId,
    channel: Channel,
    from: impl AsFd,
    buffer: &mut [u8],
) -> Forwarded {
    let room = connection.sendable(stream).min(buffer.len());
    if room == 0 {
        return Forwarded::NoCredit;
    }
    loop {
        return match rustix::io::read(&from, &mut buffer[..room]) {
            Ok(0) => Forwarded::Closed,
            Ok(count) => {
                connection.send(stream, channel, &buffer[..count]);
                Forwarded::Moved(count)
            }
            Err(Errno::AGAIN) => Forwarded::Nothing,
            Err(Errno::INTR) => continue,
            // A terminal whose session is over says EIO.
            Err(_) => Forwarded::Closed,
        };
    }
}

#[cfg(test)]
mod tests {
    use rustix::fs::OFlags;
    use rustix::pipe::PipeFlags;

    use super::*;

    #[test]
    fn an_outbox_writes_what_fits_and_keeps_the_rest() {
        let (read, write) = rustix::pipe::pipe_with(PipeFlags::CLOEXEC).unwrap();
        rustix::fs::fcntl_setfl(&write, OFlags::NONBLOCK).unwrap();
        let mut outbox = Outbox::default();
        outbox.push(vec![1; 40_000]);
        outbox.push(vec![2; 40_000]);
        let (first, state) = outbox.flush(write.as_fd());
        assert_eq!(state, Flushed::Waiting);
        assert!(first >= 40_000, "a pipe holds 64 KiB");
        let mut taken = vec![0; 80_000];
        rustix::io::read(&read, &mut taken).unwrap();
        let (second, state) = outbox.flush(write.as_fd());
        assert_eq!((first + second, state), (80_000, Flushed::Everything));
        drop(read);
        outbox.push(vec![3; 10]);
        assert_eq!(outbox.flush(write.as_fd()), (0, Flushed::Closed));
        assert_eq!(outbox.discard(), 10);
        assert!(outbox.is_empty());
    }
}
