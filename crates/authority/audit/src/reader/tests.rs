//! Filters, following and the chain of a task.

use super::*;
use crate::event::{Egress, SandboxPlaced};
use crate::log::tests::event;
use crate::{AuditLog, AuditPaths};

fn log() -> (tempfile::TempDir, AuditPaths, AuditLog) {
    let home = tempfile::tempdir().unwrap();
    let paths = AuditPaths::in_home(home.path());
    let log = AuditLog::open(paths.clone()).unwrap();
    (home, paths, log)
}

fn seqs(records: &[Stored]) -> Vec<u64> {
    records.iter().map(|record| record.seq).collect()
}

#[test]
fn the_chain_of_a_task_joins_what_names_only_its_sandbox_its_call_or_its_approval() {
    let (_home, paths, log) = log();
    let egress = || Event::Egress(Egress::default());
    let asked = || Event::ApprovalAsked(crate::ApprovalAsked::default());
    let records = vec![
        // 1: asked before anything is known but the call.
        (Ids::default().call("c1").approval("a1"), asked()),
        (
            Ids::default().task("t1").call("c1").sandbox("s1"),
            Event::SandboxPlaced(SandboxPlaced::default()),
        ),
        (Ids::default().sandbox("s1"), egress()),
        (Ids::default().approval("a1"), Event::ApprovalUsed { request: "r".into() }),
        // 5: another task in another sandbox, and one in the same.
        (Ids::default().task("t2").sandbox("s2"), egress()),
        (Ids::default().task("t2").sandbox("s1"), egress()),
        (Ids::default().sandbox("s2"), egress()),
        (Ids::default(), event("of nobody")),
    ];
    log.append_all(records).unwrap();
    assert_eq!(seqs(&chain(&paths.log(), &"t1".into()).unwrap()), [1, 2, 3, 4]);
    assert_eq!(seqs(&chain(&paths.log(), &"t3".into()).unwrap()), [0; 0]);
}

#[test]
fn a_filter_takes_what_meets_all_of_it() {
    let (_home, paths, log) = log();
    log.append(Ids::default().task("t1").sandbox("s1"), event("a")).unwrap();
    log.append(Ids::default().task("t1").sandbox("s2"), event("b")).unwrap();
    let found = |filter: Filter| {
        let records: Vec<Stored> =
            LogReader::open(&paths.log()).unwrap().map(Result::unwrap).collect();
        records
            .iter()
            .filter(|record| filter.takes(record))
            .map(|record| record.seq)
            .collect::<Vec<_>>()
    };
    assert_eq!(found(Filter::default()), [0, 1, 2]);
    assert_eq!(found(Filter { task: Some("t1".into()), ..Filter::default() }), [1, 2]);
    let both = Filter { task: Some("t1".into()), sandbox: Some("s2".into()), ..Filter::default() };
    assert_eq!(found(both), [2]);
    assert_eq!(found(Filter { kind: Some("log-opened".to_owned()), ..Filter::default() }), [0]);
    assert_eq!(found(Filter { since: Some(u64::MAX), ..Filter::default() }), [0; 0]);
}

#[test]
fn a_reader_goes_on_where_it_was_and_gives_nothing_that_is_not_signed_for() {
    let (_home, paths, log) = log();
    let mut reader = LogReader::open(&paths.log()).unwrap();
    assert_eq!(reader.next().unwrap().unwrap().seq, 0);
    assert!(reader.next().is_none());
    log.append(Ids::default(), event("a")).unwrap();
    assert_eq!(reader.next().unwrap().unwrap().seq, 1);
    let whole = std::fs::read(paths.log()).unwrap();
    let torn: Vec<u8> = whole.iter().copied().take(600).collect();
    std::fs::write(paths.log(), [&whole[..], &torn].concat()).unwrap();
    // Records of a group whose checkpoint is not there yet.
    let first_line = torn.iter().position(|byte| *byte == b'\n').unwrap() + 1;
    std::fs::write(paths.log(), [&whole[..], &torn[..first_line]].concat()).unwrap();
    assert!(reader.next().is_none());
}

#[test]
fn a_log_that_is_not_there_is_said_to_be_missing() {
    let home = tempfile::tempdir().unwrap();
    assert!(matches!(LogReader::open(&home.path().join("log")), Err(ReadError::NoLog(_))));
}

#[test]
fn a_line_that_is_none_stops_a_reader_with_its_place() {
    let (_home, paths, log) = log();
    log.append(Ids::default(), event("a")).unwrap();
    let text = std::fs::read_to_string(paths.log()).unwrap();
    std::fs::write(paths.log(), text.replacen("{\"v\":1", "{\"w\":1", 1)).unwrap();
    let read: Result<Vec<_>, _> = LogReader::open(&paths.log()).unwrap().take(1).collect();
    assert!(matches!(read, Err(ReadError::Line { at: 0 })));
}
