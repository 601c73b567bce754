//! What all layers of an image may unpack to, together.
//!
//! The same budget serves every image of one archive. What counts does not depend on the order in
//! which layers are unpacked, so the same image is always taken or always refused.

use std::cell::Cell;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::limits::{MAX_DOCUMENTS_BYTES, UnpackLimits};
use crate::manifest::ManifestError;

/// Why unpacking stopped before the image could fill the disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Bomb {
    #[error("the image unpacks to more than {max} bytes")]
    Size { max: u64 },
    #[error("the image unpacks to more than {max} times its compressed size")]
    Ratio { max: u64 },
    #[error("the image has more than {max} entries")]
    Entries { max: u64 },
    #[error("the layer's directory names need more than {max} bytes")]
    Names { max: u64 },
}

/// A budget that several threads spend.
#[derive(Debug)]
pub(crate) struct Budget {
    limits: UnpackLimits,
    packing: Packing,
    bytes: AtomicU64,
    entries: AtomicU64,
    /// Bytes beyond what the ratio gives, of all layers together.
    excess: AtomicU64,
    document_bytes: AtomicU64,
}

/// How a compressed archive holds its layers. Layers that are compressed once more must not be
/// measured by bytes that were themselves unpacked from a few.
#[derive(Debug, Clone, Copy)]
struct Packing {
    source_bytes: u64,
    plain_bytes: u64,
}

impl Budget {
    pub(crate) fn new(limits: UnpackLimits) -> Budget {
        Budget {
            limits,
            packing: Packing { source_bytes: 1, plain_bytes: 1 },
            bytes: AtomicU64::new(0),
            entries: AtomicU64::new(0),
            excess: AtomicU64::new(0),
            document_bytes: AtomicU64::new(0),
        }
    }

    /// For the layers of an archive that was `source_bytes` long and has `plain_bytes` now.
    pub(crate) fn of_archive(limits: UnpackLimits, source_bytes: u64, plain_bytes: u64) -> Budget {
        let packing = Packing { source_bytes, plain_bytes: plain_bytes.max(1) };
        Budget { packing, ..Budget::new(limits) }
    }

    /// Starts to unpack something of `packed_bytes`.
    pub(crate) fn meter(&self, packed_bytes: u64) -> Meter<'_> {
        let Packing { source_bytes, plain_bytes } = self.packing;
        let covered = u128::from(packed_bytes) * u128::from(source_bytes) / u128::from(plain_bytes)
            * u128::from(self.limits.max_ratio);
        Meter { budget: self, covered: Cell::new(u64::try_from(covered).unwrap_or(u64::MAX)) }
    }

    /// Counts a manifest, an index or a configuration that is about to be parsed.
    pub(crate) fn count_document(&self, bytes: u64) -> Result<(), ManifestError> {
        let all = self.document_bytes.fetch_add(bytes, Ordering::Relaxed).saturating_add(bytes);
        if all > MAX_DOCUMENTS_BYTES {
            return Err(ManifestError::TooLarge {
                what: "list of all manifests and configurations",
                bytes: all,
                max: MAX_DOCUMENTS_BYTES,
            });
        }
        Ok(())
    }
}

/// What one layer takes out of the budget.
pub(crate) struct Meter<'a> {
    budget: &'a Budget,
    /// Bytes that the ratio still gives.
    covered: Cell<u64>,
}

impl Meter<'_> {
    pub(crate) fn count_bytes(&self, bytes: u64) -> Result<(), Bomb> {
        let UnpackLimits { max_bytes, max_ratio, ratio_floor_bytes, .. } = self.budget.limits;
        let all = self.budget.bytes.fetch_add(bytes, Ordering::Relaxed).saturating_add(bytes);
        if all > max_bytes {
            return Err(Bomb::Size { max: max_bytes });
        }
        let covered = self.covered.get().min(bytes);
        self.covered.set(self.covered.get() - covered);
        let excess = bytes - covered;
        let all = self.budget.excess.fetch_add(excess, Ordering::Relaxed).saturating_add(excess);
        if all > ratio_floor_bytes {
            return Err(Bomb::Ratio { max: max_ratio });
        }
        Ok(())
    }

    /// Counts something that gets a name, with the bytes that it takes beside its content.
    pub(crate) fn count_entry(&self, bytes: u64) -> Result<(), Bomb> {
        let max = self.budget.limits.max_entries;
        if self.budget.entries.fetch_add(1, Ordering::Relaxed) >= max {
            return Err(Bomb::Entries { max });
        }
        self.count_bytes(bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: UnpackLimits =
        UnpackLimits { max_bytes: 1000, max_entries: 4, max_ratio: 10, ratio_floor_bytes: 100 };

    #[test]
    fn layers_share_one_allowance_whatever_their_order() {
        for sizes in [[(5, 50), (1, 70), (1, 51)], [(1, 51), (1, 70), (5, 50)]] {
            let budget = Budget::new(LIMITS);
            let spent: Result<Vec<()>, Bomb> = sizes
                .iter()
                .map(|(packed, bytes)| budget.meter(*packed).count_bytes(*bytes))
                .collect();
            assert_eq!(spent, Err(Bomb::Ratio { max: 10 }), "{sizes:?}");
        }
        let budget = Budget::new(LIMITS);
        for packed in [50, 50] {
            assert_eq!(budget.meter(packed).count_bytes(500), Ok(()));
        }
        assert_eq!(budget.meter(50).count_bytes(1), Err(Bomb::Size { max: 1000 }));
    }

    #[test]
    fn a_layer_in_a_compressed_archive_is_measured_by_its_share_of_the_archive() {
        let budget = Budget::of_archive(LIMITS, 10, 100);
        assert_eq!(budget.meter(50).count_bytes(50 + 100), Ok(()));
        assert_eq!(budget.meter(50).count_bytes(51), Err(Bomb::Ratio { max: 10 }));
    }

    #[test]
    fn entries_of_all_layers_count_together() {
        let budget = Budget::new(LIMITS);
        for _ in 0..4 {
            assert_eq!(budget.meter(1).count_entry(0), Ok(()));
        }
        assert_eq!(budget.meter(1).count_entry(0), Err(Bomb::Entries { max: 4 }));
    }
}
