//! A directory tree as one stream of bytes: a workspace on its way into a microVM, and what a job
//! changed on its way back out.
//!
//! [`Packer`] reads a directory and makes the stream, [`Unpacker`] takes the stream and makes the
//! directory again. Neither owns a socket or a thread: bytes are asked for and handed in, piece by
//! piece, so both fit between two polls of a warden.
//!
//! The stream is a magic of 8 bytes and then records. A record is its length as a little-endian
//! `u32` and that many bytes of postcard; the record of a file is followed by exactly as many bytes
//! as it says. Directories come before what is in them and are complete before anything beside them
//! comes, so that nobody has to remember a tree to make or take one. The last record tells how many
//! entries and bytes there were.
//!
//! Invariants:
//! - Each side takes the other's bytes, and the directory it reads, for hostile.
//! - Every path is resolved by the kernel below a directory descriptor, with `openat2`, never
//!   through a symbolic link and never into another mount.
//! - Memory is bounded: a record on one side, the names of a directory and those above on the other.
//!
//! Owners, hard links, holes and extended attributes are not carried, but for the one attribute
//! that makes a directory opaque.

mod beneath;
mod decode;
mod entry;
mod pack;
mod unpack;

pub use entry::{MAX_DEPTH, MAX_PART_BYTES, MAX_PATH_BYTES, PathFault};
pub use pack::{LeftOut, PackError, PackOptions, Packed, Packer, Progress};
pub use unpack::{Bounds, Summary, UnpackError, UnpackOptions, Unpacker};

/// Whose attributes mark the upper directory of an overlay. Either way a character device 0:0 is a
/// whiteout.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OverlayKind {
    /// `user.overlay.*`: mounted with `userxattr`, as in the rings of the host.
    User,
    /// `trusted.overlay.*`: mounted by root, as in a guest.
    Trusted,
}

impl OverlayKind {
    pub(crate) fn opaque(self) -> &'static str {
        match self {
            OverlayKind::User => "user.overlay.opaque",
            OverlayKind::Trusted => "trusted.overlay.opaque",
        }
    }

    /// On a directory: what is in it lies under another name below.
    pub(crate) fn redirect(self) -> &'static str {
        match self {
            OverlayKind::User => "user.overlay.redirect",
            OverlayKind::Trusted => "trusted.overlay.redirect",
        }
    }

    /// On a file: its content is still below.
    pub(crate) fn metacopy(self) -> &'static str {
        match self {
            OverlayKind::User => "user.overlay.metacopy",
            OverlayKind::Trusted => "trusted.overlay.metacopy",
        }
    }
}
