//! The hash that `build.rs` fills the tables with and `vocabulary.rs` looks them up with.

/// FNV-1a, with its high bits folded in because only the low ones choose a slot.
pub(crate) fn hash(bytes: &[u8]) -> u32 {
    let mut hash = 0xcbf2_9ce4_8422_2325_u64;
    for byte in bytes {
        hash = (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
    }
    let folded = hash ^ (hash >> 32);
    #[allow(clippy::cast_possible_truncation, reason = "the low half is what is wanted")]
    return folded as u32;
}
