//! From a layer's compressed bytes to its archive, measured on the way.

use std::cell::Cell;
use std::io::{self, BufReader, Read};
use std::rc::Rc;

use flate2::bufread::MultiGzDecoder;

use crate::digest::{Digest, Hasher};
use crate::limits::UnpackLimits;

const BUFFER_BYTES: usize = 128 * 1024;
/// zstd streams may ask for a window of 2^n bytes of memory; this is zstd's own default ceiling.
const MAX_ZSTD_WINDOW_LOG: u32 = 27;

/// Why unpacking stopped before the layer could fill the disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Bomb {
    #[error("the layer unpacks to more than {max} bytes")]
    Size { max: u64 },
    #[error("the layer unpacks to more than {max} times its compressed size")]
    Ratio { max: u64 },
    #[error("the layer has more than {max} entries")]
    Entries { max: u64 },
    #[error("the layer's directory names need more than {max} bytes")]
    Names { max: u64 },
}

/// The archive inside a layer: hashes what passes and fails, with a [`Bomb`] inside the error, as
/// soon as it is more than the limits allow.
pub(crate) struct LayerReader<'a> {
    archive: Box<dyn Read + 'a>,
    hasher: Hasher,
    compressed_bytes: Rc<Cell<u64>>,
    limits: UnpackLimits,
}

impl<'a> LayerReader<'a> {
    /// Tells gzip, zstd and plain archives apart by their first bytes. What the manifest calls them
    /// is no help: tools have been known to lie, and `docker save` does not say at all.
    pub(crate) fn new(layer: impl Read + 'a, limits: UnpackLimits) -> io::Result<LayerReader<'a>> {
        let compressed_bytes = Rc::new(Cell::new(0));
        let mut counted = Counted { inner: layer, bytes: Rc::clone(&compressed_bytes) };
        let mut start = Vec::with_capacity(4);
        (&mut counted).take(4).read_to_end(&mut start)?;
        let gzip = start.starts_with(&[0x1f, 0x8b]);
        let zstd = start.starts_with(&[0x28, 0xb5, 0x2f, 0xfd]);
        let whole = BufReader::with_capacity(BUFFER_BYTES, io::Cursor::new(start).chain(counted));
        let archive: Box<dyn Read + 'a> = if gzip {
            Box::new(MultiGzDecoder::new(whole))
        } else if zstd {
            let mut decoder = zstd::Decoder::with_buffer(whole)?;
            decoder.window_log_max(MAX_ZSTD_WINDOW_LOG)?;
            Box::new(decoder)
        } else {
            Box::new(whole)
        };
        Ok(LayerReader { archive, hasher: Hasher::default(), compressed_bytes, limits })
    }

    /// The digest of the archive, which is what images call a layer's diff id, and its size. Only
    /// meaningful at the end of the stream.
    pub(super) fn finish(self) -> (Digest, u64) {
        let bytes = self.hasher.bytes();
        (self.hasher.finish(), bytes)
    }

    fn check(&self) -> Result<(), Bomb> {
        let UnpackLimits { max_bytes, max_ratio, ratio_floor_bytes, .. } = self.limits;
        let bytes = self.hasher.bytes();
        if bytes > max_bytes {
            return Err(Bomb::Size { max: max_bytes });
        }
        let allowed = self.compressed_bytes.get().saturating_mul(max_ratio);
        if bytes > ratio_floor_bytes && bytes > allowed {
            return Err(Bomb::Ratio { max: max_ratio });
        }
        Ok(())
    }
}

impl Read for LayerReader<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = self.archive.read(buffer)?;
        self.hasher.update(&buffer[..count]);
        self.check().map_err(io::Error::other)?;
        Ok(count)
    }
}

/// Counts the bytes read from `inner`.
struct Counted<R> {
    inner: R,
    bytes: Rc<Cell<u64>>,
}

impl<R: Read> Read for Counted<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = self.inner.read(buffer)?;
        self.bytes.set(self.bytes.get() + count as u64);
        Ok(count)
    }
}
