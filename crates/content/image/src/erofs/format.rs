//! The structures of EROFS as bytes, and nothing about where they go.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

pub(super) const BLOCK_BITS: u8 = 12;
pub(super) const BLOCK_BYTES: u64 = 1 << BLOCK_BITS;
pub(super) const SUPERBLOCK_AT: u64 = 1024;
pub(super) const SUPERBLOCK_BYTES: usize = 128;
pub(super) const INODE_BYTES: u64 = 64;
/// Where an inode's number of links is, from its start.
pub(super) const LINKS_AT: u64 = 44;

const MAGIC: u32 = 0xE0F5_E1E2;
const MAGIC_AT: usize = 0;
const CHECKSUM_AT: usize = 4;
const BLOCKS_AT: usize = 36;
/// The superblock has a checksum; times are times of modification.
const COMPATIBLE_FEATURES: u32 = 0x1 | 0x2;
/// Bytes for each inode number.
pub(super) const SLOT_BYTES: u64 = 32;
const EXTENDED_INODE: u16 = 1;

/// An inode's number: where it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Nid(u64);

impl Nid {
    pub(super) fn at(offset: u64) -> Nid {
        Nid(offset / SLOT_BYTES)
    }

    pub(super) fn offset(self) -> u64 {
        self.0 * SLOT_BYTES
    }

    pub(super) fn number(self) -> u64 {
        self.0
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FileKind {
    File,
    Directory,
    Symlink,
    Fifo,
    Socket,
    CharacterDevice { major: u32, minor: u32 },
    BlockDevice { major: u32, minor: u32 },
}

impl FileKind {
    /// As directory entries have it.
    pub(super) fn in_listing(self) -> u8 {
        match self {
            FileKind::File => 1,
            FileKind::Directory => 2,
            FileKind::CharacterDevice { .. } => 3,
            FileKind::BlockDevice { .. } => 4,
            FileKind::Fifo => 5,
            FileKind::Socket => 6,
            FileKind::Symlink => 7,
        }
    }

    /// As the upper bits of a mode have it.
    fn in_mode(self) -> u16 {
        match self {
            FileKind::Fifo => 0o010_000,
            FileKind::CharacterDevice { .. } => 0o020_000,
            FileKind::Directory => 0o040_000,
            FileKind::BlockDevice { .. } => 0o060_000,
            FileKind::File => 0o100_000,
            FileKind::Symlink => 0o120_000,
            FileKind::Socket => 0o140_000,
        }
    }

    /// A device's numbers in the kernel's 32 bits, with the minor number on both sides of the major.
    pub(super) fn device(self) -> Option<u32> {
        match self {
            FileKind::CharacterDevice { major, minor } | FileKind::BlockDevice { major, minor } => {
                Some((minor & 0xff) | ((major & 0xfff) << 8) | ((minor & !0xff) << 12))
            }
            _ => None,
        }
    }
}

/// What is known about a file apart from its content.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Inode {
    pub(crate) kind: FileKind,
    /// The twelve lower bits.
    pub(crate) mode: u32,
    pub(crate) uid: u32,
    pub(crate) gid: u32,
    pub(crate) mtime: i64,
    pub(crate) mtime_nanoseconds: u32,
    pub(crate) size: u64,
}

/// Where an inode's content is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Place {
    /// In blocks from this one on.
    Blocks(u32),
    /// As before, but what does not fill a block follows the inode.
    BlocksAndTail(u32),
    /// There is none; a device has its numbers instead.
    Nowhere(u32),
}

impl Inode {
    pub(super) fn encode(&self, place: Place, serial: u32, links: u32) -> [u8; 64] {
        let (layout, pointer): (u16, u32) = match place {
            Place::Blocks(pointer) | Place::Nowhere(pointer) => (0, pointer),
            Place::BlocksAndTail(pointer) => (2, pointer),
        };
        // Masked to twelve bits, so nothing is lost.
        let mode = self.kind.in_mode() | (self.mode & 0o7777) as u16;
        let mut bytes = [0; 64];
        put(&mut bytes, 0, &(EXTENDED_INODE | layout << 1).to_le_bytes());
        put(&mut bytes, 4, &mode.to_le_bytes());
        put(&mut bytes, 8, &self.size.to_le_bytes());
        put(&mut bytes, 16, &pointer.to_le_bytes());
        put(&mut bytes, 20, &serial.to_le_bytes());
        put(&mut bytes, 24, &self.uid.to_le_bytes());
        put(&mut bytes, 28, &self.gid.to_le_bytes());
        put(&mut bytes, 32, &self.mtime.to_le_bytes());
        put(&mut bytes, 40, &self.mtime_nanoseconds.to_le_bytes());
        put(&mut bytes, LINKS_AT as usize, &links.to_le_bytes());
        bytes
    }
}

/// What a superblock says.
#[derive(Debug, Clone, Copy)]
pub(super) struct Superblock {
    pub(super) root: u16,
    pub(super) inodes: u64,
    pub(super) blocks: u32,
    pub(super) id: [u8; 16],
}

impl Superblock {
    pub(super) fn encode(&self) -> [u8; SUPERBLOCK_BYTES] {
        let mut bytes = [0; SUPERBLOCK_BYTES];
        put(&mut bytes, MAGIC_AT, &MAGIC.to_le_bytes());
        put(&mut bytes, 8, &COMPATIBLE_FEATURES.to_le_bytes());
        put(&mut bytes, 12, &[BLOCK_BITS]);
        put(&mut bytes, 14, &self.root.to_le_bytes());
        put(&mut bytes, 16, &self.inodes.to_le_bytes());
        put(&mut bytes, BLOCKS_AT, &self.blocks.to_le_bytes());
        put(&mut bytes, 48, &self.id);
        bytes
    }
}

/// Puts the checksum into the first block's bytes from the superblock on.
pub(super) fn seal(from_superblock: &mut [u8]) {
    put(from_superblock, CHECKSUM_AT, &[0; 4]);
    let checksum = crc32c(from_superblock);
    put(from_superblock, CHECKSUM_AT, &checksum.to_le_bytes());
}

/// How long the image in `file` says it is; `None` if it is no image or not all there.
pub(crate) fn image_bytes(file: &File) -> io::Result<Option<u64>> {
    let length = file.metadata()?.len();
    if length < BLOCK_BYTES {
        return Ok(None);
    }
    let mut superblock = [0; SUPERBLOCK_BYTES];
    file.read_exact_at(&mut superblock, SUPERBLOCK_AT)?;
    let number = |at: usize| {
        superblock[at..at + 4].iter().rev().fold(0, |sum, byte| sum << 8 | u32::from(*byte))
    };
    let whole = number(MAGIC_AT) == MAGIC && u64::from(number(BLOCKS_AT)) * BLOCK_BYTES == length;
    Ok(whole.then_some(length))
}

fn put(bytes: &mut [u8], at: usize, value: &[u8]) {
    bytes[at..at + value.len()].copy_from_slice(value);
}

/// CRC-32C as the kernel computes it here: without the usual last inversion. It is for three
/// kilobytes of each image, so it needs no table.
fn crc32c(bytes: &[u8]) -> u32 {
    const POLYNOMIAL: u32 = 0x82F6_3B78;
    bytes.iter().fold(!0, |sum, byte| {
        (0..8).fold(sum ^ u32::from(*byte), |sum, _| {
            if sum & 1 == 1 { sum >> 1 ^ POLYNOMIAL } else { sum >> 1 }
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_checksum_is_the_well_known_one() {
        assert_eq!(!crc32c(b"123456789"), 0xE306_9283);
    }

    #[test]
    fn device_numbers_are_the_kernels() {
        let device = |major, minor| FileKind::CharacterDevice { major, minor }.device();
        assert_eq!(device(1, 3), Some(0x103));
        assert_eq!(device(0x123, 0x45678), Some(0x4561_2378));
        assert_eq!(FileKind::Fifo.device(), None);
    }
}
