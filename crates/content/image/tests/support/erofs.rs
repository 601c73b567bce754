//! A second opinion on root images: reads EROFS as its documentation has it, and trusts nothing.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use ringwall_image::Digest;

const BLOCK: usize = 4096;

/// One file of an image.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Node {
    pub(crate) nid: u64,
    /// With the kind of file in its upper bits.
    pub(crate) mode: u32,
    pub(crate) owner: (u32, u32),
    pub(crate) mtime: i64,
    pub(crate) links: u32,
    /// Empty for directories; a symlink's target.
    pub(crate) content: Vec<u8>,
    pub(crate) device: Option<u32>,
}

impl Node {
    pub(crate) fn kind(&self) -> u32 {
        self.mode & 0o170_000
    }
}

pub(crate) struct Reader {
    bytes: Vec<u8>,
    /// What each part of the image is used for, by where it begins.
    used: BTreeMap<usize, (usize, u64)>,
    nodes: BTreeMap<Vec<u8>, Node>,
}

struct RawInode {
    node: Node,
    size: usize,
    content: Vec<u8>,
}

/// All files of the image in `path`, by name; fails the test on whatever a kernel could stumble over.
pub(crate) fn read(path: &Path) -> BTreeMap<Vec<u8>, Node> {
    let bytes = fs::read(path).unwrap();
    assert_eq!(bytes.len() % BLOCK, 0);
    let mut reader = Reader { bytes, used: BTreeMap::new(), nodes: BTreeMap::new() };
    reader.check_superblock();
    let root = reader.number(1024 + 14, 2);
    reader.mark(0, 1024 + 128, 0);
    reader.walk(Vec::new(), root, root);
    let inodes: std::collections::BTreeSet<u64> =
        reader.nodes.values().map(|node| node.nid).collect();
    assert_eq!(reader.number(1024 + 16, 8), inodes.len() as u64);
    reader.nodes
}

impl Reader {
    fn number(&self, at: usize, bytes: usize) -> u64 {
        self.bytes[at..at + bytes].iter().rev().fold(0, |sum, byte| sum << 8 | u64::from(*byte))
    }

    fn check_superblock(&self) {
        assert_eq!(self.number(1024, 4), 0xE0F5_E1E2);
        assert_eq!(self.number(1024 + 12, 1), 12, "blocks of 4096 bytes");
        assert_eq!(self.number(1024 + 36, 4) as usize * BLOCK, self.bytes.len());
        assert_eq!(self.number(1024 + 40, 4), 0, "inodes count from the start");
        assert_eq!(self.number(1024 + 80, 4), 0, "no feature that a kernel must know");
    }

    /// Two uses of one byte would be a mistake, except that names may share an inode.
    fn mark(&mut self, start: usize, length: usize, by: u64) {
        if length == 0 {
            return;
        }
        assert!(start + length <= self.bytes.len(), "{by} reaches beyond the end");
        if let Some((before, (end, other))) = self.used.range(..start + length).next_back() {
            let same = (*before, *end, *other) == (start, start + length, by);
            assert!(same || *end <= start, "{by} and {other} share bytes at {start}");
        }
        self.used.insert(start, (start + length, by));
    }

    fn inode(&mut self, nid: u64) -> RawInode {
        let at = nid as usize * 32;
        let format = self.number(at, 2);
        assert_eq!(format & 1, 1, "only long inodes are written");
        assert_eq!(self.number(at + 2, 2), 0, "no attributes are written");
        let size = self.number(at + 8, 8) as usize;
        let pointer = self.number(at + 16, 4);
        let mode = self.number(at + 4, 2) as u32;
        let is_device = matches!(mode & 0o170_000, 0o020_000 | 0o060_000);
        let (in_blocks, in_tail) = match format >> 1 {
            0 => (size, 0),
            2 => (size - size % BLOCK, size % BLOCK),
            other => panic!("layout {other}"),
        };
        assert!(at % BLOCK + 64 + in_tail <= BLOCK, "a tail crosses into the next block");
        self.mark(at, 64 + in_tail, nid);
        let blocks_at = if is_device { 0 } else { pointer as usize * BLOCK };
        self.mark(blocks_at, in_blocks, nid);
        let blocks = &self.bytes[blocks_at..][..in_blocks];
        let content = [blocks, &self.bytes[at + 64..][..in_tail]].concat();
        let node = Node {
            nid,
            mode,
            owner: (self.number(at + 24, 4) as u32, self.number(at + 28, 4) as u32),
            mtime: self.number(at + 32, 8).cast_signed(),
            links: self.number(at + 44, 4) as u32,
            content: Vec::new(),
            device: is_device.then_some(pointer as u32),
        };
        RawInode { node, size, content }
    }

    fn walk(&mut self, path: Vec<u8>, nid: u64, parent: u64) {
        let RawInode { mut node, size, content } = self.inode(nid);
        if node.kind() != 0o040_000 {
            node.content = content;
            assert!(self.nodes.insert(path, node).is_none());
            return;
        }
        assert!(self.nodes.insert(path.clone(), node).is_none());
        let mut last: Option<Vec<u8>> = None;
        let mut dots = 0;
        for block in content.chunks(BLOCK) {
            for (name, target, kind) in entries(block) {
                assert!(last.as_ref() < Some(&name), "names are not sorted");
                last = Some(name.clone());
                match name.as_slice() {
                    b"." => assert_eq!((target, kind), (nid, 2)),
                    b".." => assert_eq!((target, kind), (parent, 2)),
                    _ => {
                        let separator: &[u8] = if path.is_empty() { b"" } else { b"/" };
                        let path = [&path, separator, &name].concat();
                        self.walk(path.clone(), target, nid);
                        let kinds = [0o10, 0o4, 0o2, 0o6, 0o1, 0o14, 0o12];
                        let as_mode = kinds[kind as usize - 1] << 12;
                        assert_eq!(self.nodes[&path].kind(), as_mode);
                        continue;
                    }
                }
                dots += 1;
            }
        }
        assert_eq!(dots, 2, "{path:?} of {size} bytes");
    }
}

fn entries(block: &[u8]) -> Vec<(Vec<u8>, u64, u8)> {
    let number = |at: usize, bytes: usize| {
        block[at..at + bytes].iter().rev().fold(0, |sum, byte| sum << 8 | u64::from(*byte))
    };
    let count = number(8, 2) as usize / 12;
    (0..count)
        .map(|entry| {
            let start = number(entry * 12 + 8, 2) as usize;
            let end = if entry + 1 < count {
                number((entry + 1) * 12 + 8, 2) as usize
            } else {
                let rest = block[start..].iter().position(|byte| *byte == 0);
                rest.map_or(block.len(), |length| start + length)
            };
            let name = block[start..end].to_vec();
            assert!((1..=255).contains(&name.len()));
            (name, number(entry * 12, 8), block[entry * 12 + 10])
        })
        .collect()
}

/// An image in the words of [`super::images::tree_of`], sorted.
pub(crate) fn lines(nodes: &BTreeMap<Vec<u8>, Node>) -> Vec<String> {
    let mut lines: Vec<String> = nodes
        .iter()
        .filter(|(path, _)| !path.is_empty())
        .filter_map(|(path, node)| {
            let path = String::from_utf8_lossy(path);
            let mode = node.mode & 0o7777;
            match node.kind() {
                0o120_000 => Some(format!("{path} -> {}", String::from_utf8_lossy(&node.content))),
                0o040_000 => Some(format!("{path}/ {mode:o}")),
                0o100_000 => Some(format!("{path} {mode:o} {}", Digest::of(&node.content).hex())),
                _ => None,
            }
        })
        .collect();
    lines.sort();
    lines
}
