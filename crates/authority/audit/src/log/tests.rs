//! Writing: durable, by many at once, and what becomes of a log after crashes and damage.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Command, Stdio};

use super::*;
use crate::event::samples::{ids, one_of_each};
use crate::state::{self, Found, Kept, StateError};
use crate::verify::{Report, Verify, verify};
use crate::{Broken, Filter, LogReader, Text};

pub(crate) fn event(text: impl Into<Text>) -> Event {
    Event::GrantRevoked { by: "test".into(), reason: text.into() }
}

pub(crate) fn check(paths: &AuditPaths) -> Report {
    let key = crate::verifier_key(&paths.verifier_key()).unwrap();
    let state = Some(paths.state());
    verify(&Verify { log: paths.log(), key, known: Vec::new(), state }).unwrap()
}

#[track_caller]
fn assert_whole(paths: &AuditPaths, size: u64) {
    let report = check(paths);
    let findings: Vec<String> = report.findings.iter().map(ToString::to_string).collect();
    assert_eq!((findings, report.size), (vec![], size));
}

fn home() -> (tempfile::TempDir, AuditPaths) {
    let home = tempfile::tempdir().unwrap();
    let paths = AuditPaths::in_home(home.path());
    (home, paths)
}

/// A log with `count` records after the one that begins it.
fn with_records(paths: &AuditPaths, count: usize) {
    let log = AuditLog::open(paths.clone()).unwrap();
    for number in 0..count {
        log.append(ids(), event(format!("record {number}"))).unwrap();
    }
}

fn kinds(paths: &AuditPaths) -> Vec<&'static str> {
    LogReader::open(&paths.log()).unwrap().map(|record| record.unwrap().event.kind()).collect()
}

fn append_bytes(path: &Path, bytes: &[u8]) {
    fs::OpenOptions::new().append(true).open(path).unwrap().write_all(bytes).unwrap();
}

#[test]
fn records_are_numbered_through_over_many_openings() {
    let (_home, paths) = home();
    for round in 0..5 {
        let log = AuditLog::open(paths.clone()).unwrap();
        assert_eq!(log.append(ids(), event("a")).unwrap().seq, 1 + round * 3);
        let both = log.append_all(vec![(ids(), event("b")), (ids(), event("c"))]).unwrap();
        assert_eq!(
            both.iter().map(|receipt| receipt.seq).collect::<Vec<_>>(),
            [2 + round * 3, 3 + round * 3]
        );
    }
    assert_whole(&paths, 16);
}

#[test]
fn every_kind_of_event_comes_back_as_it_was_recorded() {
    let (_home, paths) = home();
    let log = AuditLog::open(paths.clone()).unwrap();
    log.append_all(one_of_each().into_iter().map(|event| (ids(), event)).collect()).unwrap();
    let found: Vec<Event> = LogReader::open(&paths.log())
        .unwrap()
        .skip(1)
        .map(|record| record.unwrap().event)
        .collect();
    assert_eq!(found, one_of_each());
}

#[test]
fn what_an_agent_says_cannot_make_a_line() {
    let (_home, paths) = home();
    let log = AuditLog::open(paths.clone()).unwrap();
    let forged = "x\"}}\n{\"checkpoint\":\"y\"}\n{\"v\":1,\u{2028}\r\n";
    log.append(Ids::default().task(forged), event(forged)).unwrap();
    assert_eq!(fs::read_to_string(paths.log()).unwrap().lines().count(), 4);
    assert_whole(&paths, 2);
}

#[test]
fn a_record_that_is_too_long_is_refused_and_takes_no_other_with_it() {
    let (_home, paths) = home();
    let log = AuditLog::open(paths.clone()).unwrap();
    let sources = vec![Text::new("x".repeat(2000)); 40];
    let long = crate::PolicyLoaded { sources, ..crate::PolicyLoaded::default() };
    let result = log.append(ids(), Event::PolicyLoaded(long));
    assert!(matches!(result, Err(AppendError::TooLong(_))), "{result:?}");
    log.append(ids(), event("short")).unwrap();
    assert_whole(&paths, 2);
}

#[test]
fn many_threads_and_many_openings_append_at_once() {
    let (_home, paths) = home();
    std::thread::scope(|scope| {
        for opening in 0..3 {
            let paths = paths.clone();
            scope.spawn(move || {
                let log = AuditLog::open(paths).unwrap();
                std::thread::scope(|scope| {
                    for thread in 0..4 {
                        let log = &log;
                        scope.spawn(move || {
                            for number in 0..10 {
                                let text = format!("{opening} {thread} {number}");
                                log.append(ids(), event(text)).unwrap();
                            }
                        });
                    }
                });
            });
        }
    });
    assert_whole(&paths, 121);
}

#[test]
fn the_newest_checkpoint_is_the_one_in_the_log() {
    let (_home, paths) = home();
    let (one, other) =
        (AuditLog::open(paths.clone()).unwrap(), AuditLog::open(paths.clone()).unwrap());
    one.append(ids(), event("a")).unwrap();
    let note = other.checkpoint().unwrap();
    assert_eq!(Some(&note), check(&paths).checkpoint.as_ref());
    assert_eq!(one.checkpoint().unwrap(), note);
    assert_eq!(one.verifier_key().open(&note).unwrap().size, 2);
}

/// Body of the process that `a_killed_writer_loses_nothing_that_was_acknowledged` kills.
#[test]
fn child_that_appends_until_it_is_killed() {
    let Some(home) = std::env::var_os("RINGWALL_AUDIT_TEST_HOME") else {
        return;
    };
    let log = AuditLog::open(AuditPaths::in_home(Path::new(&home))).unwrap();
    loop {
        let group = vec![(ids(), event("x".repeat(1500))); 3];
        for receipt in log.append_all(group).unwrap() {
            println!("acknowledged {} {}", receipt.seq, crate::hex(&receipt.hash));
        }
    }
}

#[test]
fn a_killed_writer_loses_nothing_that_was_acknowledged() {
    let (home, paths) = home();
    let mut acknowledged = Vec::new();
    for round in 0..6u64 {
        let mut children: Vec<_> = (0..2)
            .map(|_| {
                Command::new(std::env::current_exe().unwrap())
                    .args(["--exact", "log::tests::child_that_appends_until_it_is_killed"])
                    .arg("--nocapture")
                    .env("RINGWALL_AUDIT_TEST_HOME", home.path())
                    .stdout(Stdio::piped())
                    .spawn()
                    .unwrap()
            })
            .collect();
        std::thread::sleep(std::time::Duration::from_millis(60 + 17 * round));
        for child in &mut children {
            child.kill().unwrap();
        }
        for mut child in children {
            let said = BufReader::new(child.stdout.take().unwrap());
            acknowledged.extend(said.lines().map_while(Result::ok).filter_map(|line| {
                let (seq, hash) = line.strip_prefix("acknowledged ")?.split_once(' ')?;
                (hash.len() == 64).then(|| (seq.parse::<u64>().unwrap(), hash.to_owned()))
            }));
            child.wait().unwrap();
        }
        // The next writer puts the rest right.
        AuditLog::open(paths.clone()).unwrap().append(ids(), event("after")).unwrap();
        assert!(check(&paths).is_whole(), "{:?}", check(&paths).findings);
    }
    assert!(acknowledged.len() > 10, "only {} were acknowledged", acknowledged.len());
    let hashes: Vec<String> = LogReader::open(&paths.log())
        .unwrap()
        .map(|record| crate::hex(&record.unwrap().hash))
        .collect();
    for (seq, hash) in acknowledged {
        assert_eq!(hashes[usize::try_from(seq).unwrap()], hash, "record {seq}");
    }
}

#[test]
fn what_was_never_acknowledged_is_moved_aside_and_recorded() {
    let (_home, paths) = home();
    with_records(&paths, 2);
    let whole = fs::read(paths.log()).unwrap();
    let record = whole.split_inclusive(|byte| *byte == b'\n').next_back().unwrap().len();
    // A whole record without its checkpoint, half a record, and half a checkpoint.
    let mut donor = crate::line::record(
        &[0; 32],
        &crate::line::Body { seq: 9, time: 1, ids: ids(), event: event("torn") },
    )
    .unwrap()
    .0;
    donor.truncate(donor.len() - 1);
    for (round, torn) in
        [&donor[..], &donor[..40], &whole[whole.len() - record..whole.len() - 1]].iter().enumerate()
    {
        append_bytes(&paths.log(), torn);
        assert!(!check(&paths).is_whole(), "found before it is put right");
        drop(AuditLog::open(paths.clone()).unwrap());
        assert_eq!(kinds(&paths).len(), 4 + round);
        assert_eq!(kinds(&paths).last(), Some(&"log-recovered"));
        assert_whole(&paths, 4 + round as u64);
        let Event::LogRecovered(recovered) =
            LogReader::open(&paths.log()).unwrap().last().unwrap().unwrap().event
        else {
            panic!("another event");
        };
        let aside = paths.directory.join(recovered.moved_to.unwrap().as_str());
        assert_eq!(&fs::read(&aside).unwrap(), torn);
        fs::write(&aside, "changed").unwrap();
        assert!(!check(&paths).is_whole(), "a changed file beside the log is found");
        fs::write(&aside, torn).unwrap();
    }
}

#[test]
fn an_open_log_takes_in_what_a_killed_neighbour_left() {
    let (_home, paths) = home();
    let log = AuditLog::open(paths.clone()).unwrap();
    append_bytes(&paths.log(), b"{\"v\":1,\"prev\":\"00");
    assert_eq!(log.append(ids(), event("a")).unwrap().seq, 2);
    assert_eq!(kinds(&paths), ["log-opened", "log-recovered", "grant-revoked"]);
    assert_whole(&paths, 3);
}

#[test]
fn a_log_whose_acknowledged_end_was_cut_off_is_refused() {
    let (_home, paths) = home();
    with_records(&paths, 3);
    let whole = fs::read(paths.log()).unwrap();
    for cut in [1, 200, whole.len() / 2, whole.len()] {
        fs::write(paths.log(), &whole[..whole.len() - cut]).unwrap();
        let opened = AuditLog::open(paths.clone());
        assert!(matches!(opened, Err(OpenError::Broken(Broken::Cut { .. }))), "{opened:?}");
    }
    fs::remove_file(paths.log()).unwrap();
    let opened = AuditLog::open(paths.clone());
    assert!(matches!(opened, Err(OpenError::Broken(Broken::Cut { .. }))), "{opened:?}");
    fs::write(paths.log(), &whole).unwrap();
    let opened = AuditLog::open(paths.clone());
    assert!(matches!(opened, Err(OpenError::File(_))), "readable by others: {opened:?}");
}

#[test]
fn a_log_with_a_changed_end_is_refused() {
    let (_home, paths) = home();
    with_records(&paths, 3);
    let whole = fs::read(paths.log()).unwrap();
    // The last record and the checkpoint behind it.
    let lines: Vec<&[u8]> = whole.split_inclusive(|byte| *byte == b'\n').collect();
    let begin = whole.len() - lines[lines.len() - 2..].concat().len();
    for at in (begin..whole.len()).step_by(7) {
        let mut changed = whole.clone();
        changed[at] ^= 1;
        fs::write(paths.log(), &changed).unwrap();
        assert!(AuditLog::open(paths.clone()).is_err(), "byte {at}");
    }
    fs::write(paths.log(), &whole).unwrap();
    AuditLog::open(paths.clone()).unwrap();
}

#[test]
fn records_that_somebody_else_appended_are_refused() {
    let (_home, paths) = home();
    with_records(&paths, 2);
    let forger = tempfile::tempdir().unwrap();
    let others = AuditPaths::in_home(forger.path());
    with_records(&others, 2);
    let log = fs::read(others.log()).unwrap();
    append_bytes(&paths.log(), &log);
    assert!(matches!(AuditLog::open(paths.clone()), Err(OpenError::Broken(_))));
}

#[test]
fn a_state_that_lags_is_brought_up_to_date_and_one_that_lies_is_refused() {
    let (_home, paths) = home();
    with_records(&paths, 2);
    let old = fs::read(paths.state()).unwrap();
    with_records(&paths, 3);
    fs::write(paths.state(), &old).unwrap();
    assert_eq!(AuditLog::open(paths.clone()).unwrap().append(ids(), event("a")).unwrap().seq, 6);
    // Whole, but of another log.
    let (_elsewhere, others) = home();
    with_records(&others, 6);
    let good = fs::read(paths.state()).unwrap();
    fs::copy(others.state(), paths.state()).unwrap();
    assert!(AuditLog::open(paths.clone()).is_err());
    assert!(!check(&paths).is_whole());
    fs::write(paths.state(), &good).unwrap();
    assert_whole(&paths, 7);
}

#[test]
fn a_state_that_was_half_written_is_noticed_and_made_anew() {
    let (_home, paths) = home();
    with_records(&paths, 3);
    let mut state = fs::read(paths.state()).unwrap();
    state[100] ^= 1;
    fs::write(paths.state(), &state).unwrap();
    assert!(!check(&paths).is_whole());
    drop(AuditLog::open(paths.clone()).unwrap());
    assert_eq!(kinds(&paths).last(), Some(&"log-recovered"));
    assert_whole(&paths, 5);
    // But a log that is gone as well is not begun anew.
    fs::write(paths.state(), &state).unwrap();
    fs::remove_file(paths.log()).unwrap();
    let refused = AuditLog::open(paths.clone()).unwrap_err();
    assert!(matches!(refused, OpenError::State(StateError::Damaged(_))), "{refused}");
}

#[test]
fn a_lost_state_is_made_anew_from_the_whole_log() {
    let (_home, paths) = home();
    with_records(&paths, 3);
    fs::remove_file(paths.state()).unwrap();
    drop(AuditLog::open(paths.clone()).unwrap());
    assert_eq!(kinds(&paths).last(), Some(&"log-recovered"));
    assert_whole(&paths, 5);
    // But not from one that is not whole.
    let text = fs::read_to_string(paths.log()).unwrap();
    fs::write(paths.log(), text.replace("record 1", "record 7")).unwrap();
    fs::remove_file(paths.state()).unwrap();
    let opened = AuditLog::open(paths.clone());
    assert!(matches!(opened, Err(OpenError::Broken(Broken::Record(2)))), "{opened:?}");
}

#[test]
fn a_log_whose_key_is_gone_changed_or_seen_by_others_is_refused() {
    use std::os::unix::fs::PermissionsExt;
    let (_home, paths) = home();
    with_records(&paths, 1);
    let mode = fs::metadata(paths.secret_key()).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    let key = fs::read_to_string(paths.secret_key()).unwrap();
    let open = || AuditLog::open(paths.clone());
    fs::set_permissions(paths.secret_key(), fs::Permissions::from_mode(0o640)).unwrap();
    assert!(matches!(open(), Err(OpenError::Key(_))));
    fs::set_permissions(paths.secret_key(), fs::Permissions::from_mode(0o600)).unwrap();
    fs::write(paths.secret_key(), key.replace("ringwall/", "ringwall.")).unwrap();
    assert!(matches!(open(), Err(OpenError::Key(_))));
    fs::remove_file(paths.secret_key()).unwrap();
    assert!(matches!(open(), Err(OpenError::Key(crate::KeyFileError::Missing(_)))));
    fs::write(paths.secret_key(), &key).unwrap();
    fs::set_permissions(paths.secret_key(), fs::Permissions::from_mode(0o600)).unwrap();
    open().unwrap();
}

#[test]
fn a_log_that_was_replaced_while_open_takes_nothing() {
    let (_home, paths) = home();
    let log = AuditLog::open(paths.clone()).unwrap();
    fs::rename(paths.log(), paths.directory.join("elsewhere")).unwrap();
    assert!(matches!(log.append(ids(), event("a")), Err(AppendError::Replaced)));
    fs::write(paths.log(), "").unwrap();
    assert!(matches!(log.append(ids(), event("a")), Err(AppendError::Replaced)));
}

#[test]
fn a_full_or_read_only_disk_is_a_refusal_and_leaves_a_whole_log() {
    use rustix::mount::{MountFlags, UnmountFlags, mount, mount_remount, unmount};
    let (home, _) = home();
    let disk = home.path().join("disk");
    fs::create_dir(&disk).unwrap();
    if let Err(error) = mount("none", &disk, "tmpfs", MountFlags::empty(), c"size=64k,mode=700") {
        println!("not tested here: a small file system cannot be mounted: {error}");
        return;
    }
    let paths = AuditPaths { directory: disk.clone(), keys: home.path().join("keys") };
    let log = AuditLog::open(paths.clone()).unwrap();
    let mut written = 1;
    let refused = loop {
        match log.append(ids(), event("x".repeat(1000))) {
            Ok(receipt) => written = receipt.seq + 1,
            Err(error) => break error,
        }
    };
    assert!(matches!(refused, AppendError::Full), "{refused:?}");
    assert!(written > 10);
    assert_whole(&paths, written);
    mount_remount(&disk, MountFlags::empty(), "size=1m").unwrap();
    assert_eq!(log.append(ids(), event("room again")).unwrap().seq, written);
    drop(log);
    // A child that another test has just forked may hold the log open until it execs.
    let read_only = || mount_remount(&disk, MountFlags::RDONLY, "size=1m");
    let mut remounted = read_only();
    for _ in 0..200 {
        if remounted != Err(rustix::io::Errno::BUSY) {
            break;
        }
        std::thread::sleep(std::time::Duration::from_millis(10));
        remounted = read_only();
    }
    remounted.unwrap();
    let opened = AuditLog::open(paths.clone());
    assert!(matches!(opened, Err(OpenError::File(_))), "{opened:?}");
    assert_whole(&paths, written + 1);
    unmount(&disk, UnmountFlags::DETACH).unwrap();
}

#[test]
fn the_last_records_are_found_without_reading_all() {
    let (_home, paths) = home();
    with_records(&paths, 300);
    let (last, mut rest) = LogReader::last(&paths.log(), 3, &Filter::default()).unwrap();
    assert_eq!(last.iter().map(|record| record.seq).collect::<Vec<_>>(), [298, 299, 300]);
    assert!(rest.next().is_none());
    with_records(&paths, 1);
    assert_eq!(rest.next().unwrap().unwrap().seq, 301);
    let filter = Filter { kind: Some("log-opened".to_owned()), ..Filter::default() };
    assert_eq!(LogReader::last(&paths.log(), 3, &filter).unwrap().0.len(), 1);
}

#[test]
fn notes_outlive_their_process_and_a_log_that_lost_some_with_the_machine_goes_on() {
    let (_home, paths) = home();
    with_records(&paths, 2);
    let synced = fs::read(paths.log()).unwrap().len();
    let log = AuditLog::open(paths.clone()).unwrap();
    log.writer().sync_every = std::time::Duration::MAX;
    log.note_all(vec![(ids(), event("noted")), (ids(), event("noted too"))]).unwrap();
    drop(log);
    assert_whole(&paths, 5);
    // The same boot: only a change by hand can have cut it.
    let whole = fs::read(paths.log()).unwrap();
    fs::write(paths.log(), &whole[..synced]).unwrap();
    let refused = AuditLog::open(paths.clone()).unwrap_err();
    assert!(matches!(refused, OpenError::Broken(Broken::Cut { .. })), "{refused}");
    // Another boot: the disk may never have had it.
    let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap();
    let Ok(Found::State(mut kept)) = state::read(&paths.state()) else { panic!("no state") };
    assert_eq!(kept.unsynced.as_deref(), Some(boot.trim()));
    kept.unsynced = Some("0b2a30a6-4f0e-4d3c-9ad0-52ab8dd3fa22".to_owned());
    state::write(&paths.state(), &kept).unwrap();
    let log = AuditLog::open(paths.clone()).unwrap();
    log.append(ids(), event("after")).unwrap();
    assert_eq!(kinds(&paths).last_chunk().unwrap(), &["log-recovered", "grant-revoked"]);
    assert_whole(&paths, 5);
    // What the disk is known to have cannot be lost like that.
    let state = state::read(&paths.state());
    assert!(matches!(state, Ok(Found::State(Kept { unsynced: None, .. }))), "{state:?}");
    fs::write(paths.log(), &whole[..synced]).unwrap();
    assert!(AuditLog::open(paths).is_err());
}

/// As if the machine had been restarted since.
fn other_boot(paths: &AuditPaths) {
    let Ok(Found::State(mut kept)) = state::read(&paths.state()) else { panic!("no state") };
    kept.unsynced = Some("0b2a30a6-4f0e-4d3c-9ad0-52ab8dd3fa22".to_owned());
    state::write(&paths.state(), &kept).unwrap();
}

#[test]
fn a_log_that_was_cut_further_than_a_machine_loses_is_noticed_after_a_new_start() {
    for padded in [false, true] {
        let (_home, paths) = home();
        with_records(&paths, 2);
        let earlier = fs::read(paths.log()).unwrap();
        // On the disk, in a process of its own, before the last note.
        with_records(&paths, 2);
        let durable = fs::read(paths.log()).unwrap();
        let log = AuditLog::open(paths.clone()).unwrap();
        log.writer().sync_every = std::time::Duration::MAX;
        log.note_all(vec![(ids(), event("noted"))]).unwrap();
        drop(log);
        let whole = fs::read(paths.log()).unwrap();
        other_boot(&paths);
        let mut cut = earlier.clone();
        if padded {
            // As long as before, or longer, but by bytes that are no records.
            cut.resize(whole.len() + 100, b'x');
        }
        fs::write(paths.log(), &cut).unwrap();
        let refused = AuditLog::open(paths.clone()).unwrap_err();
        assert!(matches!(refused, OpenError::Broken(Broken::Cut { .. })), "{refused}");
        assert_eq!(fs::read(paths.log()).unwrap(), cut, "nothing was put right");
        fs::write(paths.log(), &durable).unwrap();
        AuditLog::open(paths.clone()).unwrap();
        assert_eq!(kinds(&paths).last().copied(), Some("log-recovered"));
    }
}

#[test]
fn records_that_are_only_noted_come_to_the_disk_while_others_are_written() {
    let (_home, paths) = home();
    with_records(&paths, 1);
    let log = AuditLog::open(paths.clone()).unwrap();
    log.note_all(vec![(ids(), event("noted"))]).unwrap();
    let noted = fs::metadata(paths.log()).unwrap().len();
    // As if that had been some time ago; then with a clock that was set back.
    for synced_ms in [0, u64::MAX] {
        log.writer().synced_ms = synced_ms;
        log.note_all(vec![(ids(), event("noted too"))]).unwrap();
        let kept = kept(&paths);
        assert!(kept.durable > noted && kept.unsynced.is_none(), "{kept:?}");
        assert_eq!(kept.durable, length(&paths));
    }
}

#[test]
fn whoever_has_the_disk_take_older_records_ahead_does_not_wait_when_it_writes() {
    let (_home, paths) = home();
    with_records(&paths, 1);
    let log = AuditLog::open(paths.clone()).unwrap();
    log.note_all(vec![(ids(), event("noted"))]).unwrap();
    let before = length(&paths);
    log.writer().sync_every = std::time::Duration::MAX;
    log.freshen().unwrap();
    assert!(kept(&paths).durable < before, "it was done a moment ago");
    log.writer().synced_ms = 0;
    log.writer().sync_every = std::time::Duration::from_secs(3600);
    log.freshen().unwrap();
    assert_eq!((kept(&paths).durable, kept(&paths).unsynced), (before, None));
    log.note_all(vec![(ids(), event("noted too"))]).unwrap();
    let kept = kept(&paths);
    assert!(kept.durable == before && kept.unsynced.is_some(), "{kept:?}");
    assert_whole(&paths, 4);
}

#[test]
fn what_another_process_has_had_the_disk_take_is_known_once_its_records_are() {
    let (_home, paths) = home();
    with_records(&paths, 1);
    let log = AuditLog::open(paths.clone()).unwrap();
    log.writer().sync_every = std::time::Duration::from_secs(3600);
    with_records(&paths, 1);
    let others = length(&paths);
    log.writer().synced_ms = 0;
    log.note_all(vec![(ids(), event("noted"))]).unwrap();
    let kept = kept(&paths);
    assert_eq!(kept.durable, others);
    assert!(kept.unsynced.is_some(), "it was done a moment ago by the other");
}

fn kept(paths: &AuditPaths) -> Kept {
    match state::read(&paths.state()) {
        Ok(Found::State(kept)) => kept,
        other => panic!("no state: {other:?}"),
    }
}

fn length(paths: &AuditPaths) -> u64 {
    fs::metadata(paths.log()).unwrap().len()
}
