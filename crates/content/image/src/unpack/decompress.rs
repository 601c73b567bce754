//! From a layer's compressed bytes to its archive, measured on the way.

use std::io::{self, BufReader, Read};

use flate2::bufread::MultiGzDecoder;

use crate::budget::Meter;
use crate::digest::{Digest, Hasher};

const BUFFER_BYTES: usize = 128 * 1024;
/// zstd streams may ask for a window of 2^n bytes of memory; this is zstd's own default ceiling.
const MAX_ZSTD_WINDOW_LOG: u32 = 27;

/// The archive inside a layer: hashes what passes and fails, with a [`Bomb`](crate::Bomb) inside the error, as
/// soon as it is more than the image's budget has.
pub(crate) struct LayerReader<'a> {
    archive: Box<dyn Read + 'a>,
    hasher: Hasher,
    meter: &'a Meter<'a>,
}

impl<'a> LayerReader<'a> {
    /// Tells gzip, zstd and plain archives apart by their first bytes. What the manifest calls them
    /// is no help: tools have been known to lie, and `docker save` does not say at all.
    pub(crate) fn new(
        mut layer: impl Read + 'a,
        meter: &'a Meter<'a>,
    ) -> io::Result<LayerReader<'a>> {
        let mut start = Vec::with_capacity(4);
        (&mut layer).take(4).read_to_end(&mut start)?;
        let gzip = start.starts_with(&[0x1f, 0x8b]);
        let zstd = start.starts_with(&[0x28, 0xb5, 0x2f, 0xfd]);
        let whole = BufReader::with_capacity(BUFFER_BYTES, io::Cursor::new(start).chain(layer));
        let archive: Box<dyn Read + 'a> = if gzip {
            Box::new(MultiGzDecoder::new(whole))
        } else if zstd {
            let mut decoder = zstd::Decoder::with_buffer(whole)?;
            decoder.window_log_max(MAX_ZSTD_WINDOW_LOG)?;
            Box::new(decoder)
        } else {
            Box::new(whole)
        };
        Ok(LayerReader { archive, hasher: Hasher::default(), meter })
    }

    /// The digest of the archive, which is what images call a layer's diff id, and its size. Only
    /// meaningful at the end of the stream.
    pub(super) fn finish(self) -> (Digest, u64) {
        let bytes = self.hasher.bytes();
        (self.hasher.finish(), bytes)
    }
}

impl Read for LayerReader<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = self.archive.read(buffer)?;
        self.hasher.update(&buffer[..count]);
        self.meter.count_bytes(count as u64).map_err(io::Error::other)?;
        Ok(count)
    }
}
