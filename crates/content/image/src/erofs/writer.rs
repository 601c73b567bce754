//! Decides where everything goes, and writes it there.

use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::FileExt;

use super::format::{
    BLOCK_BYTES, INODE_BYTES, Inode, LINKS_AT, Nid, Place, SLOT_BYTES, SUPERBLOCK_AT,
    SUPERBLOCK_BYTES, Superblock, seal,
};
use super::listing::Listing;

const COPY_BUFFER_BYTES: usize = 128 * 1024;

/// Why an image was not written.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ErofsError {
    #[error("cannot read what goes into the image")]
    Read(#[source] io::Error),
    #[error("cannot write the image")]
    Write(#[from] io::Error),
    #[error("the image would be larger than {max} bytes")]
    TooLarge { max: u64 },
}

/// An image under construction, in a file that is empty at first.
#[derive(Debug)]
pub(crate) struct Writer<'a> {
    file: &'a File,
    max_bytes: u64,
    /// Where the next free block begins.
    end: u64,
    /// Where the next inode may go, up to the end of that block.
    inodes_at: u64,
    inodes: u64,
    buffer: Vec<u8>,
}

/// A directory whose room is reserved, to be filled when all that it holds is written.
#[derive(Debug)]
pub(crate) struct OpenDirectory {
    pub(crate) nid: Nid,
    inode: Inode,
    room: Room,
    listing: Listing,
}

/// Room for an inode and its content.
#[derive(Debug, Clone, Copy)]
struct Room {
    nid: Nid,
    serial: u32,
    place: Place,
    /// Bytes of content in blocks, and after the inode.
    in_blocks: u64,
    in_tail: u64,
}

impl<'a> Writer<'a> {
    /// The first directory that is begun is the root.
    pub(crate) fn new(file: &'a File, max_bytes: u64) -> Writer<'a> {
        // Block addresses have 32 bits.
        let max_bytes = max_bytes.min(u64::from(u32::MAX) * BLOCK_BYTES);
        let inodes_at = SUPERBLOCK_AT + SUPERBLOCK_BYTES as u64;
        let buffer = vec![0; COPY_BUFFER_BYTES];
        Writer { file, max_bytes, end: BLOCK_BYTES, inodes_at, inodes: 0, buffer }
    }

    /// Writes a file, symlink, device or whatever else is no directory. `content` must have at
    /// least as many bytes as the inode says.
    pub(crate) fn add(
        &mut self,
        inode: &Inode,
        content: &mut impl Read,
    ) -> Result<Nid, ErofsError> {
        let room = self.reserve(inode)?;
        if let Place::Blocks(block) | Place::BlocksAndTail(block) = room.place {
            self.copy(content, u64::from(block) * BLOCK_BYTES, room.in_blocks)?;
        }
        let mut bytes = inode.encode(room.place, room.serial, 1).to_vec();
        let tail = content.take(room.in_tail).read_to_end(&mut bytes).map_err(ErofsError::Read)?;
        if tail as u64 != room.in_tail {
            return Err(ErofsError::Read(io::ErrorKind::UnexpectedEof.into()));
        }
        self.file.write_all_at(&bytes, room.nid.offset())?;
        Ok(room.nid)
    }

    pub(crate) fn begin_directory(
        &mut self,
        inode: &Inode,
        listing: Listing,
    ) -> Result<OpenDirectory, ErofsError> {
        let inode = Inode { size: listing.size(), ..*inode };
        let room = self.reserve(&inode)?;
        Ok(OpenDirectory { nid: room.nid, inode, room, listing })
    }

    /// The root is its own parent.
    pub(crate) fn end_directory(
        &mut self,
        directory: &OpenDirectory,
        parent: Option<Nid>,
    ) -> Result<(), ErofsError> {
        let OpenDirectory { nid, inode, room, listing } = directory;
        let listed = listing.encode(*nid, parent.unwrap_or(*nid));
        let listed = listed.ok_or_else(|| io::Error::other("a name leads nowhere"))?;
        let (blocks, tail) = listed.split_at(listed.len() - room.in_tail as usize);
        if let Place::Blocks(block) | Place::BlocksAndTail(block) = room.place {
            self.file.write_all_at(blocks, u64::from(block) * BLOCK_BYTES)?;
        }
        let mut bytes = inode.encode(room.place, room.serial, listing.links()).to_vec();
        bytes.extend_from_slice(tail);
        Ok(self.file.write_all_at(&bytes, nid.offset())?)
    }

    /// Says how many names lead to an inode that was written before.
    pub(crate) fn set_links(&mut self, nid: Nid, links: u32) -> Result<(), ErofsError> {
        Ok(self.file.write_all_at(&links.to_le_bytes(), nid.offset() + LINKS_AT)?)
    }

    /// Completes the image and gives its size. `id` becomes the file system's UUID.
    pub(crate) fn finish(self, root: Nid, id: [u8; 16]) -> Result<u64, ErofsError> {
        self.file.set_len(self.end)?;
        let bad_root = |_| io::Error::other("the root directory was not the first");
        let superblock = Superblock {
            root: u16::try_from(root.number()).map_err(bad_root)?,
            inodes: self.inodes,
            blocks: block_number(self.end)?,
            id,
        };
        // The checksum also covers the inodes in the first block.
        let mut first = [0; (BLOCK_BYTES - SUPERBLOCK_AT) as usize];
        self.file.read_exact_at(&mut first, SUPERBLOCK_AT)?;
        first[..SUPERBLOCK_BYTES].copy_from_slice(&superblock.encode());
        seal(&mut first);
        self.file.write_all_at(&first, SUPERBLOCK_AT)?;
        Ok(self.end)
    }

    fn reserve(&mut self, inode: &Inode) -> Result<Room, ErofsError> {
        let tail = inode.size % BLOCK_BYTES;
        let in_tail = if self.saves_room(tail) { tail } else { 0 };
        let nid = Nid::at(self.reserve_inode(INODE_BYTES + in_tail)?);
        let in_blocks = inode.size - in_tail;
        let start = self.reserve_blocks(in_blocks)?;
        let start = if in_blocks > 0 { block_number(start)? } else { 0 };
        let place = match inode.kind.device() {
            Some(device) => Place::Nowhere(device),
            None if inode.size == 0 => Place::Nowhere(0),
            None if in_tail > 0 => Place::BlocksAndTail(start),
            None => Place::Blocks(start),
        };
        self.inodes += 1;
        // For programs with 32 bits only; the kernel itself goes by the inode's place.
        let serial = u32::try_from(self.inodes).unwrap_or(u32::MAX);
        Ok(Room { nid, serial, place, in_blocks, in_tail })
    }

    /// A tail must be in one block with its inode. Where that block has no room for it, either the
    /// rest of that block is lost, or the rest of the block that the tail gets for itself.
    fn saves_room(&self, tail: u64) -> bool {
        let left = self.inodes_at.next_multiple_of(BLOCK_BYTES) - self.inodes_at;
        let needed = INODE_BYTES + tail;
        needed <= left || (needed <= BLOCK_BYTES && left <= BLOCK_BYTES - tail)
    }

    fn reserve_inode(&mut self, bytes: u64) -> Result<u64, ErofsError> {
        let block_end = self.inodes_at.next_multiple_of(BLOCK_BYTES);
        if block_end - self.inodes_at < bytes {
            self.inodes_at = self.reserve_blocks(BLOCK_BYTES)?;
        }
        let offset = self.inodes_at;
        self.inodes_at = (offset + bytes).next_multiple_of(SLOT_BYTES);
        Ok(offset)
    }

    fn reserve_blocks(&mut self, bytes: u64) -> Result<u64, ErofsError> {
        let too_large = ErofsError::TooLarge { max: self.max_bytes };
        let start = self.end;
        let end =
            start.checked_add(bytes).and_then(|end| end.checked_next_multiple_of(BLOCK_BYTES));
        match end {
            Some(end) if end <= self.max_bytes => self.end = end,
            _ => return Err(too_large),
        }
        Ok(start)
    }

    fn copy(&mut self, from: &mut impl Read, mut to: u64, bytes: u64) -> Result<(), ErofsError> {
        let end = to + bytes;
        while to < end {
            let most = usize::try_from(end - to).unwrap_or(usize::MAX).min(self.buffer.len());
            let count = match from.read(&mut self.buffer[..most]) {
                Ok(0) => return Err(ErofsError::Read(io::ErrorKind::UnexpectedEof.into())),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                other => other.map_err(ErofsError::Read)?,
            };
            self.file.write_all_at(&self.buffer[..count], to)?;
            to += count as u64;
        }
        Ok(())
    }
}

impl OpenDirectory {
    pub(crate) fn set(&mut self, name: &[u8], inode: Nid) {
        self.listing.set(name, inode);
    }
}

fn block_number(offset: u64) -> Result<u32, io::Error> {
    u32::try_from(offset / BLOCK_BYTES).map_err(|_| io::ErrorKind::FileTooLarge.into())
}
