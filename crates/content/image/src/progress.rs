//! How long-running work tells its caller how far it is.

use std::io::{self, Read};
use std::sync::atomic::{AtomicBool, Ordering};

/// Hears about downloads and unpacking, from several threads at once. `what` names one piece of
/// work and is the same text in all three calls.
pub trait Progress: Sync {
    fn begin(&self, what: &str, total_bytes: Option<u64>);
    fn advance(&self, what: &str, bytes: u64);
    fn finish(&self, what: &str);
}

/// Says nothing.
#[derive(Debug, Clone, Copy, Default)]
pub struct NoProgress;

impl Progress for NoProgress {
    fn begin(&self, _what: &str, _total_bytes: Option<u64>) {}
    fn advance(&self, _what: &str, _bytes: u64) {}
    fn finish(&self, _what: &str) {}
}

/// What several threads working on one image share: where to report, and whether to give up
/// because one of them has failed.
pub(crate) struct Work<'a> {
    progress: &'a dyn Progress,
    stop: AtomicBool,
}

impl<'a> Work<'a> {
    pub(crate) fn new(progress: &'a dyn Progress) -> Work<'a> {
        Work { progress, stop: AtomicBool::new(false) }
    }

    pub(crate) fn stopped(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    pub(crate) fn stop(&self) {
        self.stop.store(true, Ordering::Relaxed);
    }

    /// Begins one piece of work, which ends when the returned value is dropped.
    pub(crate) fn begin(&self, what: String, total_bytes: Option<u64>) -> Piece<'_> {
        self.progress.begin(&what, total_bytes);
        Piece { progress: self.progress, stop: &self.stop, what }
    }
}

/// One running piece of work.
pub(crate) struct Piece<'a> {
    progress: &'a dyn Progress,
    stop: &'a AtomicBool,
    what: String,
}

impl Piece<'_> {
    /// Counts `bytes` as done; an error means that the work as a whole has been given up.
    pub(crate) fn advance(&self, bytes: u64) -> io::Result<()> {
        if self.stop.load(Ordering::Relaxed) {
            return Err(io::Error::other("stopped because another layer failed"));
        }
        self.progress.advance(&self.what, bytes);
        Ok(())
    }
}

impl Drop for Piece<'_> {
    fn drop(&mut self) {
        self.progress.finish(&self.what);
    }
}

/// Reports every byte read from `inner`.
pub(crate) struct Watched<'a, R> {
    pub(crate) inner: R,
    pub(crate) piece: &'a Piece<'a>,
}

impl<R: Read> Read for Watched<'_, R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = self.inner.read(buffer)?;
        self.piece.advance(count as u64)?;
        Ok(count)
    }
}
