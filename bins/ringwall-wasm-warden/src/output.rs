//! What a tool writes, up to its limit.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;
use tokio::io::AsyncWrite;
use wasmtime_wasi::async_trait;
use wasmtime_wasi::cli::{IsTerminal, StdoutStream};
use wasmtime_wasi::p2::{OutputStream, Pollable, StreamError};

/// One channel of output. Clones share it.
#[derive(Debug, Clone)]
pub(crate) struct Output(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    most: usize,
    bytes: Mutex<Vec<u8>>,
    flooded: AtomicBool,
}

impl Output {
    pub(crate) fn new(most: usize) -> Output {
        Output(Arc::new(Shared { most, bytes: Mutex::default(), flooded: AtomicBool::new(false) }))
    }

    /// False if that would be too much; nothing is added then.
    pub(crate) fn push(&self, more: &[&[u8]]) -> bool {
        let mut bytes = self.0.bytes.lock().unwrap_or_else(PoisonError::into_inner);
        let length: usize = more.iter().map(|part| part.len()).sum();
        if length > self.0.most - bytes.len() {
            self.0.flooded.store(true, Ordering::Relaxed);
            return false;
        }
        more.iter().for_each(|part| bytes.extend_from_slice(part));
        true
    }

    pub(crate) fn take(&self) -> Vec<u8> {
        std::mem::take(&mut self.0.bytes.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// More was written than allowed.
    pub(crate) fn flooded(&self) -> bool {
        self.0.flooded.load(Ordering::Relaxed)
    }
}

impl IsTerminal for Output {
    fn is_terminal(&self) -> bool {
        false
    }
}

impl StdoutStream for Output {
    fn async_stream(&self) -> Box<dyn AsyncWrite + Send + Sync> {
        // Asked for by WASI 0.3 only, which no tool gets.
        Box::new(tokio::io::sink())
    }

    fn p2_stream(&self) -> Box<dyn OutputStream> {
        Box::new(self.clone())
    }
}

#[async_trait]
impl Pollable for Output {
    async fn ready(&mut self) {}
}

impl OutputStream for Output {
    fn write(&mut self, bytes: Bytes) -> Result<(), StreamError> {
        // A tool that floods is stopped: it could not know what of its output counts.
        if self.push(&[&bytes]) { Ok(()) } else { Err(StreamError::trap("too much output")) }
    }

    fn flush(&mut self) -> Result<(), StreamError> {
        Ok(())
    }

    fn check_write(&mut self) -> Result<usize, StreamError> {
        Ok(64 << 10)
    }
}
