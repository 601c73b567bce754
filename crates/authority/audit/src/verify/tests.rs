//! Every way to change a log must be found, and the record named where it can be.

use std::fs;

use proptest::prelude::*;

use super::*;
use crate::event::samples::ids;
use crate::keys::AuditPaths;
use crate::line::Body;
use crate::log::tests::{check, event};
use crate::note::Signer;
use crate::{AuditLog, verifier_key};

/// A log of 23 records in groups of different sizes, and the lines it has.
struct Sample {
    _home: tempfile::TempDir,
    paths: AuditPaths,
    lines: Vec<Vec<u8>>,
}

const SIZE: u64 = 23;

impl Sample {
    fn new() -> Sample {
        Sample::with_groups(&[1, 2, 1, 5, 3, 1, 1, 8])
    }

    fn with_groups(groups: &[usize]) -> Sample {
        let home = tempfile::tempdir().unwrap();
        let paths = AuditPaths::in_home(home.path());
        let log = AuditLog::open(paths.clone()).unwrap();
        for group in groups {
            let records = (0..*group).map(|number| (ids(), event(format!("{group} {number}"))));
            log.append_all(records.collect()).unwrap();
        }
        let bytes = fs::read(paths.log()).unwrap();
        let lines = bytes.split_inclusive(|byte| *byte == b'\n').map(<[u8]>::to_vec).collect();
        Sample { _home: home, paths, lines }
    }

    fn write(&self, lines: &[Vec<u8>]) {
        fs::write(self.paths.log(), lines.concat()).unwrap();
    }

    /// With the public key alone.
    fn alone(&self, known: &[String]) -> Report {
        let key = verifier_key(&self.paths.verifier_key()).unwrap();
        verify(&Verify { log: self.paths.log(), key, known: known.to_vec(), state: None }).unwrap()
    }

    fn first(&self) -> Finding {
        self.alone(&[]).findings.into_iter().next().expect("something is found")
    }

    /// The place of record `seq` among the lines.
    fn line_of(&self, seq: u64) -> usize {
        let wanted = format!("\"seq\":{seq},");
        let found = |line: &Vec<u8>| String::from_utf8_lossy(line).contains(&wanted);
        self.lines.iter().position(found).unwrap()
    }

    fn notes(&self) -> Vec<String> {
        let note = |line: &Vec<u8>| match line::parse(line.strip_suffix(b"\n")?) {
            Some(Line::Checkpoint(json)) => line::note(json),
            _ => None,
        };
        self.lines.iter().filter_map(note).collect()
    }
}

fn is_record(line: &[u8]) -> bool {
    matches!(line.strip_suffix(b"\n").and_then(line::parse), Some(Line::Record(_)))
}

#[test]
fn a_log_that_was_not_touched_is_whole() {
    let sample = Sample::new();
    let report = sample.alone(&sample.notes());
    assert_eq!((report.findings, report.size), (vec![], SIZE));
    assert_eq!(report.checkpoint, sample.notes().pop());
    assert!(check(&sample.paths).is_whole());
}

#[test]
fn an_edited_record_is_named() {
    let sample = Sample::new();
    for seq in 0..SIZE {
        let mut lines = sample.lines.clone();
        let line = &mut lines[sample.line_of(seq)];
        let text = String::from_utf8(line.clone()).unwrap().replace("\"event\":{", "\"event\":{ ");
        *line = text.into_bytes();
        sample.write(&lines);
        assert_eq!(sample.first(), Finding { seq: Some(seq), problem: Problem::Edited });
    }
}

#[test]
fn a_removed_record_is_named() {
    let sample = Sample::new();
    for seq in 0..SIZE - 1 {
        let mut lines = sample.lines.clone();
        lines.remove(sample.line_of(seq));
        sample.write(&lines);
        let missing = Finding { seq: Some(seq), problem: Problem::Missing { until: seq } };
        let findings = sample.alone(&[]).findings;
        assert!(findings.contains(&missing), "{seq}: {findings:?}");
        assert_eq!(findings[0].seq, Some(seq));
    }
    // The last one leaves a checkpoint for more records than there are.
    let mut lines = sample.lines.clone();
    lines.remove(sample.line_of(SIZE - 1));
    sample.write(&lines);
    assert!(matches!(sample.first().problem, Problem::OtherThanSigned { .. }));
}

#[test]
fn records_that_were_swapped_are_named() {
    let sample = Sample::new();
    for seq in 0..SIZE - 1 {
        let mut lines = sample.lines.clone();
        lines.swap(sample.line_of(seq), sample.line_of(seq + 1));
        sample.write(&lines);
        assert_eq!(sample.first().seq, Some(seq));
    }
}

#[test]
fn a_record_that_was_inserted_or_repeated_is_named() {
    let sample = Sample::new();
    for seq in 0..SIZE {
        let mut lines = sample.lines.clone();
        let at = sample.line_of(seq);
        lines.insert(at, lines[at].clone());
        sample.write(&lines);
        let problem = Problem::OutOfPlace { expected: seq + 1 };
        assert_eq!(sample.first(), Finding { seq: Some(seq), problem });
    }
}

#[test]
fn no_line_can_be_removed_repeated_or_moved() {
    let sample = Sample::with_groups(&[1, 2, 1]);
    for at in 0..sample.lines.len() {
        let mut without = sample.lines.clone();
        let line = without.remove(at);
        // A log without its last group and checkpoint is a shorter whole log: see below.
        sample.write(&without);
        assert!(!sample.alone(&[]).is_whole(), "line {at} removed");
        for to in 0..=without.len() {
            let mut moved = without.clone();
            moved.insert(to, line.clone());
            if moved == sample.lines {
                continue;
            }
            sample.write(&moved);
            assert!(!sample.alone(&[]).is_whole(), "line {at} moved to {to}");
            let mut repeated = sample.lines.clone();
            repeated.insert(to, line.clone());
            sample.write(&repeated);
            assert!(!sample.alone(&[]).is_whole(), "line {at} repeated at {to}");
        }
    }
}

#[test]
fn a_log_that_was_cut_anywhere_is_found() {
    let sample = Sample::new();
    let bytes = sample.lines.concat();
    let newest = sample.notes().pop().unwrap();
    let mut ends_behind_a_checkpoint = 0;
    let lengths = (0..bytes.len()).step_by(41).chain(ends_of_lines(&sample.lines));
    for length in lengths.collect::<std::collections::BTreeSet<_>>() {
        fs::write(sample.paths.log(), &bytes[..length]).unwrap();
        // By the writer's state, and by a checkpoint that was kept elsewhere.
        assert!(!check(&sample.paths).is_whole(), "cut to {length} bytes, beside the state");
        let report = sample.alone(std::slice::from_ref(&newest));
        let cut_back =
            |finding: &Finding| matches!(finding.problem, Problem::CutBack { known: SIZE });
        let other = |finding: &Finding| {
            matches!(finding.problem, Problem::CutLine | Problem::NotSigned { .. })
        };
        assert!(
            report.findings.iter().any(|finding| cut_back(finding) || other(finding)),
            "{length}"
        );
        ends_behind_a_checkpoint += u32::from(sample.alone(&[]).is_whole());
    }
    // With neither, a log that ends behind an older checkpoint looks like an older log. No log can
    // know more about itself.
    assert_eq!(ends_behind_a_checkpoint, 8);
}

/// The lengths that a log has when it is cut between two lines.
fn ends_of_lines(lines: &[Vec<u8>]) -> Vec<usize> {
    let whole = |count: &usize| lines[..*count].concat().len();
    (0..lines.len()).collect::<Vec<_>>().iter().map(whole).collect()
}

#[test]
fn an_older_state_of_the_whole_log_is_found_by_a_newer_checkpoint() {
    let sample = Sample::new();
    let newest = sample.notes().pop().unwrap();
    // Log, state and all as they once were.
    let older = sample.line_of(13);
    sample.write(&sample.lines[..older]);
    assert!(sample.alone(&[]).is_whole());
    let report = sample.alone(&[newest]);
    let problem = Problem::CutBack { known: SIZE };
    assert_eq!(report.findings, [Finding { seq: Some(13), problem }]);
}

/// Writes the log again from record `changed` on, with other content and all hashes right, and with
/// the notes that `sign` makes.
fn rewrite(sample: &Sample, changed: u64, sign: impl Fn(u64, &Hash, &str) -> String) {
    let (mut hash, mut edge) = (FIRST_HASH, Edge::default());
    let mut lines = Vec::new();
    for old in &sample.lines {
        let line = match line::parse(old.strip_suffix(b"\n").unwrap()).unwrap() {
            Line::Record(record) => {
                let mut body: Body = record.body().unwrap();
                if body.seq == changed {
                    body.event = event("something else");
                }
                let (line, next) = line::record(&hash, &body).unwrap();
                edge.push(leaf_hash(line.strip_suffix(b"\n").unwrap()));
                hash = next;
                line
            }
            Line::Checkpoint(json) => {
                let note = sign(edge.size(), &edge.root(), &line::note(json).unwrap());
                let line = line::checkpoint(&note).unwrap();
                hash = line::hash_over_checkpoint(&hash, line.strip_suffix(b"\n").unwrap());
                line
            }
        };
        lines.push(line);
    }
    sample.write(&lines);
}

#[test]
fn a_history_that_was_written_again_without_the_key_is_found_where_it_begins() {
    let sample = Sample::new();
    let key = verifier_key(&sample.paths.verifier_key()).unwrap();
    let forger = Signer::new(key.name(), [1; 32]).unwrap();
    for changed in 0..SIZE {
        let group = |finding: &Finding| match finding.problem {
            Problem::OtherThanSigned { until } => finding.seq.unwrap()..=until,
            Problem::Forged { size, .. } => finding.seq.unwrap()..=size - 1,
            _ => panic!("{finding}"),
        };
        // With the old checkpoints.
        rewrite(&sample, changed, |_, _, old| old.to_owned());
        assert!(group(&sample.first()).contains(&changed), "{changed}: {}", sample.first());
        // With checkpoints of another key, from the change on.
        rewrite(&sample, changed, |size, root, old| {
            if size <= changed { old.to_owned() } else { forger.sign(size, root) }
        });
        assert!(group(&sample.first()).contains(&changed), "{changed}: {}", sample.first());
        // With other people's checkpoints in between and the true one at the end.
        rewrite(&sample, changed, |size, root, old| {
            if size <= changed || size == SIZE { old.to_owned() } else { forger.sign(size, root) }
        });
        assert!(group(&sample.first()).contains(&changed), "{changed}: {}", sample.first());
    }
}

#[test]
fn a_record_without_a_signature_is_found() {
    let sample = Sample::new();
    let body = Body { seq: SIZE, time: 1, ids: ids(), event: event("forged") };
    let last = sample.lines.last().unwrap().strip_suffix(b"\n").unwrap();
    let record = sample.line_of(SIZE - 1);
    let Some(Line::Record(before)) = line::parse(sample.lines[record].strip_suffix(b"\n").unwrap())
    else {
        panic!("no record");
    };
    let hash = line::hash_over_checkpoint(&before.hash, last);
    let (line, _) = line::record(&hash, &body).unwrap();
    sample.write(&[sample.lines.clone(), vec![line]].concat());
    let problem = Problem::NotSigned { until: SIZE };
    assert_eq!(sample.first(), Finding { seq: Some(SIZE), problem });
}

#[test]
fn a_checkpoint_of_another_history_is_told_from_one_of_this() {
    let sample = Sample::new();
    let mut secret = fs::read_to_string(sample.paths.secret_key()).unwrap();
    secret.truncate(secret.trim_end().len());
    let signer = Signer::from_secret_text(&secret).unwrap();
    // Two logs by one key: what a witness of one would notice.
    let report = sample.alone(&[signer.sign(5, &[1; 32])]);
    let problem = Problem::KnownDiffers { size: 5 };
    assert_eq!(report.findings, [Finding { seq: Some(4), problem }]);
    let other = Signer::new("ringwall/other", [1; 32]).unwrap().sign(5, &[1; 32]);
    let key = verifier_key(&sample.paths.verifier_key()).unwrap();
    let what = Verify { log: sample.paths.log(), key, known: vec![other], state: None };
    assert!(matches!(verify(&what), Err(VerifyError::Known(_))));
}

#[test]
fn there_is_no_log_without_records() {
    let sample = Sample::new();
    sample.write(&[]);
    assert_eq!(sample.first(), Finding { seq: None, problem: Problem::NoCheckpoint });
    fs::remove_file(sample.paths.log()).unwrap();
    let key = verifier_key(&sample.paths.verifier_key()).unwrap();
    let what = Verify { log: sample.paths.log(), key, known: vec![], state: None };
    assert!(matches!(verify(&what), Err(VerifyError::NoLog(_))));
}

#[test]
fn every_byte_of_the_first_and_last_group_counts() {
    let sample = Sample::with_groups(&[2, 1]);
    let bytes = sample.lines.concat();
    let first: usize = sample.lines[..2].iter().map(Vec::len).sum();
    let last: usize = sample.lines[sample.lines.len() - 2..].iter().map(Vec::len).sum();
    for at in (0..first).chain(bytes.len() - last..bytes.len()) {
        let mut changed = bytes.clone();
        changed[at] ^= 1 << (at % 8);
        fs::write(sample.paths.log(), &changed).unwrap();
        assert!(!sample.alone(&[]).is_whole(), "byte {at}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]

    #[test]
    fn any_change_of_any_bytes_is_found(
        changes in prop::collection::vec((any::<prop::sample::Index>(), 1u8..), 1..4),
        cuts in prop::collection::vec((any::<prop::sample::Index>(), 0usize..400), 0..2),
    ) {
        let sample = Sample::new();
        let bytes = sample.lines.concat();
        let mut changed = bytes.clone();
        for (at, flip) in changes {
            let at = at.index(changed.len());
            changed[at] ^= flip;
        }
        for (at, length) in cuts {
            let at = at.index(changed.len());
            let end = (at + length).min(changed.len());
            changed.drain(at..end);
        }
        if changed != bytes {
            fs::write(sample.paths.log(), &changed).unwrap();
            prop_assert!(!check(&sample.paths).is_whole());
        }
    }
}

#[test]
fn lines_are_records_and_checkpoints() {
    let sample = Sample::new();
    assert_eq!(sample.lines.iter().filter(|line| is_record(line)).count() as u64, SIZE);
    assert_eq!(sample.notes().len(), 9);
}
