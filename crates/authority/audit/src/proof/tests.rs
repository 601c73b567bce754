//! Proofs of our log, checked by an implementation that is not ours.

use signed_note::{Note, StandardVerifier, VerifierList};
use tlog_tiles::{Hash as TheirHash, check_record, check_tree, record_hash};

use super::*;
use crate::event::samples::ids;
use crate::log::tests::event;
use crate::{AuditLog, AuditPaths};

fn log(count: usize) -> (tempfile::TempDir, AuditPaths, VerifierKey) {
    let home = tempfile::tempdir().unwrap();
    let paths = AuditPaths::in_home(home.path());
    let log = AuditLog::open(paths.clone()).unwrap();
    log.append_all((1..count).map(|number| (ids(), event(number.to_string()))).collect()).unwrap();
    (home, paths, log.verifier_key().clone())
}

/// What another implementation makes of a signed checkpoint: size and root.
fn believed(note: &str, key: &VerifierKey) -> (u64, TheirHash) {
    let verifier = StandardVerifier::new(&key.to_string()).unwrap();
    let note = Note::from_bytes(note.as_bytes()).unwrap();
    let (good, _) = note.verify(&VerifierList::new(vec![Box::new(verifier)])).unwrap();
    assert_eq!(good.len(), 1);
    let checkpoint = tlog_tiles::Checkpoint::from_reader(&mut note.text(), false).unwrap();
    (checkpoint.size(), *checkpoint.hash())
}

fn theirs(hashes: &[Hash]) -> Vec<TheirHash> {
    hashes.iter().map(|hash| TheirHash(*hash)).collect()
}

#[test]
fn another_implementation_agrees_that_each_record_is_in_the_log() {
    let (_home, paths, key) = log(13);
    for seq in 0..13 {
        let proof = inclusion(&paths.log(), &key, seq).unwrap();
        let (size, root) = believed(&proof.note, &key);
        let leaf = record_hash(proof.leaf.as_bytes());
        check_record(&theirs(&proof.hashes), size, root, seq, leaf).unwrap();
        assert!(check_record(&theirs(&proof.hashes), size, root, seq, record_hash(b"x")).is_err());
        assert!(proof.leaf.contains(&format!("\"seq\":{seq},")));
    }
    let missing = inclusion(&paths.log(), &key, 13);
    assert!(matches!(missing, Err(ProofError::NoRecord { seq: 13, size: 13 })));
}

#[test]
fn another_implementation_agrees_that_an_older_log_is_a_beginning() {
    let (_home, paths, key) = log(13);
    for old in 1..13 {
        let proof = consistency(&paths.log(), &key, old).unwrap();
        let (size, root) = believed(&proof.note, &key);
        check_tree(&theirs(&proof.hashes), size, root, old, TheirHash(proof.old_root)).unwrap();
    }
    assert!(matches!(consistency(&paths.log(), &key, 14), Err(ProofError::NoBeginning { .. })));
}

#[test]
fn a_proof_has_the_form_that_others_read() {
    let (_home, paths, key) = log(3);
    let proof = inclusion(&paths.log(), &key, 1).unwrap();
    let text = proof.to_text();
    let (head, note) = text.split_once("\n\n").unwrap();
    assert_eq!(note, proof.note);
    let lines: Vec<&str> = head.lines().collect();
    assert_eq!(lines[..2], ["c2sp.org/tlog-proof@v1", "index 1"]);
    assert_eq!(lines.len(), 4);
}

#[test]
fn nothing_is_proved_with_a_log_that_was_changed() {
    let (_home, paths, key) = log(5);
    let text = std::fs::read_to_string(paths.log()).unwrap();
    std::fs::write(paths.log(), text.replace("\"seq\":3,", "\"seq\":9,")).unwrap();
    for seq in 0..5 {
        assert!(inclusion(&paths.log(), &key, seq).is_err(), "record {seq}");
    }
    assert!(consistency(&paths.log(), &key, 2).is_err());
}
