//! A directory's content: names in blocks, sorted, each block with its entries ahead of its names.

use super::format::{BLOCK_BYTES, FileKind, Nid};

const ENTRY_BYTES: usize = 12;
const BLOCK: usize = BLOCK_BYTES as usize;

/// The names of one directory, in the order in which the kernel searches them. How much room they
/// take is known before it is known where the inodes are.
#[derive(Debug)]
pub(crate) struct Listing {
    entries: Vec<Entry>,
    size: u64,
}

#[derive(Debug)]
struct Entry {
    name: Vec<u8>,
    kind: FileKind,
    target: Target,
}

#[derive(Debug, Clone, Copy)]
enum Target {
    Own,
    Parent,
    Unknown,
    Inode(Nid),
}

impl Listing {
    /// Of all that is in a directory apart from `.` and `..`, each name once.
    pub(crate) fn new(names: impl IntoIterator<Item = (Vec<u8>, FileKind)>) -> Listing {
        let dot =
            |name: &[u8], target| Entry { name: name.to_vec(), kind: FileKind::Directory, target };
        let mut entries = vec![dot(b".", Target::Own), dot(b"..", Target::Parent)];
        let named = |(name, kind)| Entry { name, kind, target: Target::Unknown };
        entries.extend(names.into_iter().map(named));
        // The dots have no place of their own: `!` comes before them.
        entries.sort_unstable_by(|a, b| a.name.cmp(&b.name));
        let mut listing = Listing { entries, size: 0 };
        let blocks = listing.blocks();
        if let Some((last, full)) = blocks.split_last() {
            listing.size = full.len() as u64 * BLOCK_BYTES + used(last) as u64;
        }
        listing
    }

    pub(super) fn size(&self) -> u64 {
        self.size
    }

    /// Says where a name leads. Names that are not there are ignored.
    pub(crate) fn set(&mut self, name: &[u8], inode: Nid) {
        let found = self.entries.binary_search_by(|entry| entry.name.as_slice().cmp(name));
        if let Some(entry) = found.ok().and_then(|at| self.entries.get_mut(at)) {
            entry.target = Target::Inode(inode);
        }
    }

    /// Of a directory: itself, what `..` counts for in each directory in it, and its name.
    pub(super) fn links(&self) -> u32 {
        let directories = self.entries.iter().filter(|entry| entry.kind == FileKind::Directory);
        u32::try_from(directories.count()).unwrap_or(u32::MAX)
    }

    /// The bytes, or nothing while a name leads nowhere yet.
    pub(super) fn encode(&self, own: Nid, parent: Nid) -> Option<Vec<u8>> {
        let mut bytes = Vec::with_capacity(usize::try_from(self.size).unwrap_or(0));
        for block in self.blocks() {
            bytes.resize(bytes.len().next_multiple_of(BLOCK), 0);
            let mut name_at = block.len() * ENTRY_BYTES;
            for entry in block {
                let target = match entry.target {
                    Target::Own => own,
                    Target::Parent => parent,
                    Target::Inode(nid) => nid,
                    Target::Unknown => return None,
                };
                bytes.extend_from_slice(&target.number().to_le_bytes());
                // Below the size of a block, so nothing is lost.
                bytes.extend_from_slice(&(name_at as u16).to_le_bytes());
                bytes.extend_from_slice(&[entry.kind.in_listing(), 0]);
                name_at += entry.name.len();
            }
            for entry in block {
                bytes.extend_from_slice(&entry.name);
            }
        }
        Some(bytes)
    }

    /// As many entries in each block as fit.
    fn blocks(&self) -> Vec<&[Entry]> {
        let mut blocks = Vec::new();
        let (mut start, mut room) = (0, BLOCK);
        for (at, entry) in self.entries.iter().enumerate() {
            let needed = ENTRY_BYTES + entry.name.len();
            if needed > room {
                blocks.push(&self.entries[start..at]);
                (start, room) = (at, BLOCK);
            }
            room -= needed;
        }
        blocks.push(&self.entries[start..]);
        blocks
    }
}

fn used(block: &[Entry]) -> usize {
    block.iter().map(|entry| ENTRY_BYTES + entry.name.len()).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn listing(names: &[&[u8]]) -> Listing {
        Listing::new(names.iter().map(|name| (name.to_vec(), FileKind::File)))
    }

    #[test]
    fn the_dots_are_sorted_among_the_other_names() {
        let listing = listing(&[b"a", b"!", b".a", b"\xff"]);
        let names: Vec<&[u8]> = listing.entries.iter().map(|entry| &*entry.name).collect();
        let expected: [&[u8]; 6] = [b"!", b".", b"..", b".a", b"a", b"\xff"];
        assert_eq!(names, expected);
    }

    #[test]
    fn what_is_written_is_as_long_as_was_said() {
        for count in [0, 1, 14, 15, 16, 400] {
            let names: Vec<Vec<u8>> =
                (0..count).map(|n| format!("{n:0>255}").into_bytes()).collect();
            let refs: Vec<&[u8]> = names.iter().map(Vec::as_slice).collect();
            let mut listing = listing(&refs);
            let inode = Nid::at(64);
            if count > 0 {
                assert!(listing.encode(inode, inode).is_none(), "a name led nowhere");
            }
            refs.iter().for_each(|name| listing.set(name, inode));
            assert_eq!(listing.encode(inode, inode).unwrap().len() as u64, listing.size());
        }
    }
}
