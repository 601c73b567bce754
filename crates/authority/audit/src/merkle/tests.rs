//! The tree beside an independent implementation of RFC 6962, and proofs that must not hold.

use proptest::prelude::*;
use tlog_tiles::{
    Error, Hash as TheirHash, HashReader, prove_record, prove_tree, stored_hashes, tree_hash,
};

use super::*;

fn leaves(count: u64) -> Vec<Vec<u8>> {
    (0..count).map(|number| format!("leaf {number}").into_bytes()).collect()
}

fn edge(leaves: &[Vec<u8>]) -> Edge {
    let mut edge = Edge::default();
    leaves.iter().for_each(|leaf| edge.push(leaf_hash(leaf)));
    edge
}

fn proof(ranges: Vec<Range<u64>>, leaves: &[Vec<u8>]) -> Vec<Hash> {
    let mut builder = ProofBuilder::new(ranges);
    leaves.iter().for_each(|leaf| builder.push(leaf_hash(leaf)));
    builder.finish().unwrap()
}

/// The hashes that the other implementation keeps of a tree.
#[derive(Default)]
struct Theirs(Vec<TheirHash>);

impl HashReader for Theirs {
    fn read_hashes(&self, indexes: &[u64]) -> Result<Vec<TheirHash>, Error> {
        Ok(indexes.iter().map(|index| self.0[usize::try_from(*index).unwrap()]).collect())
    }
}

fn theirs(leaves: &[Vec<u8>]) -> Theirs {
    let mut tree = Theirs::default();
    for (number, leaf) in leaves.iter().enumerate() {
        let hashes = stored_hashes(number as u64, leaf, &tree).unwrap();
        tree.0.extend(hashes);
    }
    tree
}

fn plain(proof: Vec<TheirHash>) -> Vec<Hash> {
    proof.into_iter().map(|hash| hash.0).collect()
}

#[test]
fn the_empty_tree_has_the_root_of_the_standard() {
    let root = crate::hash::hex(&Edge::default().root());
    assert_eq!(root, "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
}

#[test]
fn another_implementation_finds_the_same_roots_and_proofs() {
    for size in 1..=70 {
        let leaves = leaves(size);
        let (edge, other) = (edge(&leaves), theirs(&leaves));
        assert_eq!(edge.root(), tree_hash(size, &other).unwrap().0, "root of {size}");
        for index in 0..size {
            let ours = proof(inclusion_ranges(index, size), &leaves);
            let theirs = plain(prove_record(size, index, &other).unwrap());
            assert_eq!(ours, theirs, "inclusion of {index} in {size}");
        }
        for old in 1..size {
            let ours = proof(consistency_ranges(old, size), &leaves);
            assert_eq!(ours, plain(prove_tree(size, old, &other).unwrap()), "{old} in {size}");
        }
    }
}

proptest! {
    #[test]
    fn a_proof_holds_for_its_leaf_and_for_nothing_else(
        size in 1u64..200,
        at in any::<prop::sample::Index>(),
        flip in any::<prop::sample::Index>(),
    ) {
        let leaves = leaves(size);
        let index = at.index(leaves.len()) as u64;
        let root = edge(&leaves).root();
        let leaf = leaf_hash(&leaves[at.index(leaves.len())]);
        let mut found = proof(inclusion_ranges(index, size), &leaves);
        prop_assert!(verify_inclusion(&leaf, index, size, &found, &root));
        prop_assert!(!verify_inclusion(&leaf_hash(b"other"), index, size, &found, &root));
        prop_assert!(!verify_inclusion(&leaf, index + 1, size, &found, &root));
        prop_assert!(!verify_inclusion(&leaf, index, size, &[&found[..], &[[7; 32]]].concat(), &root));
        if !found.is_empty() {
            prop_assert!(!verify_inclusion(&leaf, index, size, &found[1..], &root));
            let part = flip.index(found.len());
            found[part][0] ^= 1;
            prop_assert!(!verify_inclusion(&leaf, index, size, &found, &root));
        }
    }

    #[test]
    fn a_shorter_log_is_a_beginning_only_if_it_is(
        (new, old) in (1u64..200).prop_flat_map(|new| (Just(new), 0..=new)),
        flip in any::<prop::sample::Index>(),
    ) {
        let leaves = leaves(new);
        let cut = usize::try_from(old).unwrap();
        let (old_root, new_root) = (edge(&leaves[..cut]).root(), edge(&leaves).root());
        let mut found = proof(consistency_ranges(old, new), &leaves);
        prop_assert!(verify_consistency((old, &old_root), (new, &new_root), &found));
        prop_assert!(old == new || !verify_consistency((old, &[1; 32]), (new, &new_root), &found));
        prop_assert!(old == 0 || !verify_consistency((old, &old_root), (new, &[1; 32]), &found));
        if !found.is_empty() {
            let part = flip.index(found.len());
            found[part][31] ^= 128;
            prop_assert!(!verify_consistency((old, &old_root), (new, &new_root), &found));
        }
    }
}
