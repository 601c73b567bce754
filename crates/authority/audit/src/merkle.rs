//! The Merkle tree of RFC 6962: its right edge, roots, and proofs of inclusion and consistency.

use std::ops::Range;

use crate::hash::{Hash, sha256};

pub fn leaf_hash(data: &[u8]) -> Hash {
    sha256(&[&[0], data])
}

fn node_hash(left: &Hash, right: &Hash) -> Hash {
    sha256(&[&[1], left, right])
}

/// The right edge of a tree: the roots of its perfect subtrees, the largest first. All that is needed
/// to add leaves and to know the root.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Edge {
    size: u64,
    nodes: Vec<Hash>,
}

impl Edge {
    /// An edge that was kept; `None` unless it has one node for every perfect subtree.
    pub(crate) fn new(size: u64, nodes: Vec<Hash>) -> Option<Edge> {
        (u64::from(size.count_ones()) == nodes.len() as u64).then_some(Edge { size, nodes })
    }

    pub(crate) fn size(&self) -> u64 {
        self.size
    }

    pub(crate) fn nodes(&self) -> &[Hash] {
        &self.nodes
    }

    pub(crate) fn push(&mut self, leaf: Hash) {
        let mut node = leaf;
        // As in binary addition: every trailing one is a subtree that becomes half of a larger one.
        for _ in 0..self.size.trailing_ones() {
            if let Some(left) = self.nodes.pop() {
                node = node_hash(&left, &node);
            }
        }
        self.nodes.push(node);
        self.size += 1;
    }

    pub(crate) fn root(&self) -> Hash {
        let mut nodes = self.nodes.iter().rev();
        let Some(last) = nodes.next() else {
            return sha256(&[]);
        };
        nodes.fold(*last, |right, left| node_hash(left, &right))
    }
}

/// Which ranges of leaves the hashes of an inclusion proof cover, in the order of the proof.
pub(crate) fn inclusion_ranges(index: u64, size: u64) -> Vec<Range<u64>> {
    let (mut low, mut high) = (0, size);
    let mut ranges = Vec::new();
    while high - low > 1 {
        let middle = low + split(high - low);
        if index < middle {
            ranges.push(middle..high);
            high = middle;
        } else {
            ranges.push(low..middle);
            low = middle;
        }
    }
    ranges.reverse();
    ranges
}

/// The ranges for a proof that the tree of `old` leaves is the beginning of the one of `new`.
pub(crate) fn consistency_ranges(old: u64, new: u64) -> Vec<Range<u64>> {
    if old == 0 || old >= new {
        return Vec::new();
    }
    let (mut low, mut high) = (0, new);
    let mut ranges = Vec::new();
    // Whether the old tree is a subtree that the verifier knows the root of.
    let mut known = true;
    while old != high {
        let middle = low + split(high - low);
        if old <= middle {
            ranges.push(middle..high);
            high = middle;
        } else {
            ranges.push(low..middle);
            low = middle;
            known = false;
        }
    }
    if !known {
        ranges.push(low..high);
    }
    ranges.reverse();
    ranges
}

/// The largest power of two below `count`, which is at least two.
fn split(count: u64) -> u64 {
    1 << (count - 1).ilog2()
}

/// Computes the roots of `ranges` from leaves that come one after the other, so that a proof needs
/// no more memory than it has hashes.
#[derive(Debug)]
pub(crate) struct ProofBuilder {
    /// The range, its place in the proof and what of it was seen.
    parts: Vec<(Range<u64>, usize, Edge)>,
    part: usize,
    index: u64,
}

impl ProofBuilder {
    pub(crate) fn new(ranges: Vec<Range<u64>>) -> ProofBuilder {
        let mut parts: Vec<_> = ranges
            .into_iter()
            .enumerate()
            .map(|(place, range)| (range, place, Edge::default()))
            .collect();
        parts.sort_by_key(|(range, ..)| range.start);
        ProofBuilder { parts, part: 0, index: 0 }
    }

    pub(crate) fn push(&mut self, leaf: Hash) {
        if let Some((range, _, edge)) = self.parts.get_mut(self.part) {
            if range.contains(&self.index) {
                edge.push(leaf);
            }
            if self.index + 1 == range.end {
                self.part += 1;
            }
        }
        self.index += 1;
    }

    /// The proof; `None` when the leaves ended too early.
    pub(crate) fn finish(self) -> Option<Vec<Hash>> {
        let mut proof = vec![[0; 32]; self.parts.len()];
        for (range, place, edge) in self.parts {
            if edge.size() != range.end - range.start {
                return None;
            }
            proof[place] = edge.root();
        }
        Some(proof)
    }
}

/// RFC 9162, 2.1.3.2: whether `leaf` is at `index` in the tree of `size` leaves with this root.
pub fn verify_inclusion(leaf: &Hash, index: u64, size: u64, proof: &[Hash], root: &Hash) -> bool {
    if index >= size {
        return false;
    }
    let (mut at, mut last) = (index, size - 1);
    let mut hash = *leaf;
    for part in proof {
        if last == 0 {
            return false;
        }
        if at & 1 == 1 || at == last {
            hash = node_hash(part, &hash);
            while at & 1 == 0 && at != 0 {
                at >>= 1;
                last >>= 1;
            }
        } else {
            hash = node_hash(&hash, part);
        }
        at >>= 1;
        last >>= 1;
    }
    last == 0 && hash == *root
}

/// RFC 9162, 2.1.4.2: whether the tree of `old` leaves is the beginning of the one of `new`.
pub fn verify_consistency(
    (old, old_root): (u64, &Hash),
    (new, new_root): (u64, &Hash),
    proof: &[Hash],
) -> bool {
    if old == new {
        return proof.is_empty() && old_root == new_root;
    }
    if old == 0 || old > new {
        // Every tree begins with the empty one; no tree begins with a longer one.
        return old == 0 && proof.is_empty() && *old_root == Edge::default().root();
    }
    let mut parts = proof.iter();
    let (mut at, mut last) = (old - 1, new - 1);
    while at & 1 == 1 {
        at >>= 1;
        last >>= 1;
    }
    let first = if old.is_power_of_two() { Some(old_root) } else { parts.next() };
    let Some(first) = first else {
        return false;
    };
    let (mut old_hash, mut new_hash) = (*first, *first);
    for part in parts {
        if last == 0 {
            return false;
        }
        if at & 1 == 1 || at == last {
            old_hash = node_hash(part, &old_hash);
            new_hash = node_hash(part, &new_hash);
            while at & 1 == 0 && at != 0 {
                at >>= 1;
                last >>= 1;
            }
        } else {
            new_hash = node_hash(&new_hash, part);
        }
        at >>= 1;
        last >>= 1;
    }
    last == 0 && old_hash == *old_root && new_hash == *new_root
}

#[cfg(test)]
mod tests;
