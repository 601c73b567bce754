//! Writes file systems that a guest's kernel mounts: EROFS, uncompressed, in one pass.
//!
//! ```text
//! block 0       1024 bytes of nothing, the superblock, the root directory's inode
//! then, mixed   blocks of inodes, each followed by its tail (the part of its content that
//!               does not fill a block), and blocks of content
//! ```
//!
//! An inode is found by its number alone, which is its offset in units of 32 bytes. So inodes are
//! placed as the tree is walked, directories ahead of what they hold, and only the open directories
//! are in memory. The same tree, walked in the same order, gives the same bytes.
//!
//! Invariant: what is written here is understood by Linux 5.4 and later; no optional feature is used
//! but the superblock's checksum.

mod format;
mod listing;
mod writer;

pub(crate) use format::{FileKind, Inode, Nid, image_bytes};
pub(crate) use listing::Listing;
pub(crate) use writer::{ErofsError, Writer};
