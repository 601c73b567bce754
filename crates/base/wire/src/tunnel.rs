//! The byte stream to the warden of the next ring, carried inside one stream of this ring's.

use std::io::{self, Read, Write};
use std::sync::Arc;

use crate::client::{Client, Exchange, Outlet};

/// Dropping it, or both of its halves, cuts the next ring off.
#[derive(Debug)]
pub struct Tunnel {
    exchange: Exchange,
}

#[derive(Debug)]
pub struct TunnelReader {
    exchange: Arc<Exchange>,
}

/// Cuts the next ring off whoever holds the tunnel, when told to or dropped. Its warden is killed.
#[derive(Debug)]
pub struct TunnelCut {
    outlet: Outlet,
}

/// Dropping it ends this direction only.
#[derive(Debug)]
pub struct TunnelWriter {
    outlet: Outlet,
    /// Keeps the stream open as long as either half is held.
    _exchange: Arc<Exchange>,
}

impl Tunnel {
    pub(crate) fn new(exchange: Exchange) -> Self {
        Tunnel { exchange }
    }

    pub fn split(self) -> (TunnelReader, TunnelWriter) {
        let exchange = Arc::new(self.exchange);
        let writer = TunnelWriter { outlet: exchange.outlet(), _exchange: Arc::clone(&exchange) };
        (TunnelReader { exchange }, writer)
    }

    /// A way to end the next ring though its warden may not listen any more.
    pub fn cutter(&self) -> TunnelCut {
        TunnelCut { outlet: self.exchange.outlet() }
    }

    /// Speaks to the next ring's warden through the tunnel.
    pub fn connect(self) -> io::Result<Client> {
        let (reader, writer) = self.split();
        Client::over(reader, writer)
    }
}

impl TunnelCut {
    pub fn cut(&self) {
        self.outlet.cancel();
    }
}

impl Drop for TunnelCut {
    fn drop(&mut self) {
        self.cut();
    }
}

impl Read for TunnelReader {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if buffer.is_empty() {
            return Ok(0);
        }
        let bytes = self.exchange.read(buffer.len(), None).map_err(|error| error.into_io())?;
        bytes.as_slice().read(buffer)
    }
}

impl Write for TunnelWriter {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if bytes.is_empty() {
            return Ok(0);
        }
        self.outlet.send_some(bytes, None).map_err(|error| error.into_io())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.outlet.drain(None).map_err(|error| error.into_io())
    }
}

impl Drop for TunnelWriter {
    fn drop(&mut self) {
        self.outlet.end();
    }
}
