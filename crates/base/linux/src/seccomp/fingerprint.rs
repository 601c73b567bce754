//! How a filter tells which filter it is: a few system call numbers that no kernel has answer with
//! error numbers, each one more than a part of a hash of the filter.
//!
//! Shared by the compiler, which writes the answers, and by the reader.

/// The first of the numbers. Far above the calls that Linux has, far below the x32 bit.
pub(crate) const FIRST_CALL: u32 = 5000;
pub(crate) const CALLS: usize = 4;
/// How much of the hash one answer tells: error numbers end at 4095.
pub(crate) const CHUNK_BITS: usize = 11;

/// A kernel without a filter, or another filter, gives one and the same error for all the numbers.
/// No fingerprint of ours may look like that.
pub(crate) fn is_unmistakable(chunks: [u16; CALLS]) -> bool {
    chunks.iter().any(|chunk| *chunk != chunks[0])
}
