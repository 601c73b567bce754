//! Waits for the rest of a request that was answered before its end.
//!
//! A socket that is closed while bytes wait in it sends a reset, and a reset may overtake the answer: the client
//! would see a broken connection in place of the reason. So what the client still sends is read and dropped, for a
//! bounded time and a bounded number of bytes.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::io::{AsyncRead, ReadBuf};
use tokio::time::Sleep;

const LONGEST_LINGER: Duration = Duration::from_secs(5);
const MOST_DROPPED: usize = 4 << 20;
const MOST_AT_ONCE: usize = 8 << 10;

#[derive(Debug)]
pub(crate) struct Linger {
    until: Pin<Box<Sleep>>,
    left: usize,
}

impl Linger {
    pub(crate) fn begin() -> Linger {
        Linger { until: Box::pin(tokio::time::sleep(LONGEST_LINGER)), left: MOST_DROPPED }
    }

    /// Ready at the end of the stream, at a fault of it, and when a bound is reached.
    pub(crate) fn poll(
        &mut self,
        stream: &mut (impl AsyncRead + Unpin),
        context: &mut Context<'_>,
    ) -> Poll<io::Result<()>> {
        let mut dropped = [0; MOST_AT_ONCE];
        while self.left > 0 {
            if self.until.as_mut().poll(context).is_ready() {
                break;
            }
            let mut buffer = ReadBuf::new(&mut dropped);
            let read = ready!(Pin::new(&mut *stream).poll_read(context, &mut buffer));
            if read.is_err() || buffer.filled().is_empty() {
                break;
            }
            self.left = self.left.saturating_sub(buffer.filled().len());
        }
        Poll::Ready(Ok(()))
    }
}
