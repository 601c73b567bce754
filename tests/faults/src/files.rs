//! State that is broken or held by somebody else: each file of it, one after the other.

use std::fs::{self, OpenOptions};
use std::io::Write;
use std::process::Stdio;
use std::time::Duration;

use rusqlite::Connection;
use serde_json::json;

use crate::support::{Daemon, World};

#[test]
fn a_log_whose_last_line_is_torn_is_mended_by_the_next_run() {
    let world = World::new();
    world.sh(&[], "true").exits(0);
    let log = world.home().join("audit/log");
    for torn in [&b"{\"half"[..], b"\0\0\0\0", b"{}", b"\xff\xfe"] {
        OpenOptions::new().append(true).open(&log).expect("a log").write_all(torn).expect("room");
        world.sh(&[], "true").exits(0);
        world.ringwall(["audit", "verify"]).exits(0);
    }
}

#[test]
fn a_log_that_was_changed_is_not_whole_for_good() {
    let world = World::new();
    world.sh(&[], "true").exits(0);
    let log = world.home().join("audit/log");
    let mut bytes = fs::read(&log).expect("a log");
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    fs::write(&log, bytes).expect("ours");
    assert_ne!(world.ringwall(["audit", "verify"]).code, 0);
    let _ = world.sh(&[], "true");
    assert_ne!(world.ringwall(["audit", "verify"]).code, 0);
}

#[test]
fn records_and_notes_that_are_garbage_harm_no_run_and_are_swept() {
    let world = World::new();
    world.sh(&[], "true").exits(0);
    for garbage in [&b""[..], b"{\"garb", b"null", b"\0\0\0", b"[[[[[[[["] {
        fs::write(world.home().join("remembered.json"), garbage).expect("ours");
        fs::write(world.home().join("sandboxes/aaaaaaaaaaaa.json"), garbage).expect("ours");
        world.sh(&[], "true").exits(0);
        world.ringwall(["ps", "-a"]).exits(0);
        world.ringwall(["gc"]).exits(0);
        world.sh(&[], "true").exits(0);
        assert!(world.sandboxes().is_empty());
    }
}

#[test]
fn keys_that_are_gone_or_garbage_are_told_and_nothing_runs_unrecorded() {
    let world = World::new();
    world.sh(&[], "true").exits(0);
    let key = world.home().join("keys/audit.key");
    let kept = fs::read(&key).expect("a key");
    for garbage in [&b""[..], b"garbage", &[0; 64]] {
        fs::write(&key, garbage).expect("ours");
        let refused = world.sh(&[], "echo ran");
        assert_eq!(refused.code, 125, "{refused:?}");
        assert!(!refused.out().contains("ran"), "{refused:?}");
        assert!(refused.err().contains("key"), "{refused:?}");
    }
    fs::write(&key, kept).expect("ours");
    world.sh(&[], "true").exits(0);
    world.ringwall(["audit", "verify"]).exits(0);
}

/// The daemon's database.
fn database(daemon: &Daemon) -> std::path::PathBuf {
    let files = fs::read_dir(daemon.world.home()).expect("a home").flatten();
    let is_one = |path: &std::path::PathBuf| {
        fs::read(path).is_ok_and(|bytes| bytes.starts_with(b"SQLite format 3"))
    };
    files.map(|entry| entry.path()).find(is_one).expect("a database")
}

#[test]
fn a_store_that_somebody_locks_delays_or_refuses_and_then_serves_again() {
    let daemon = Daemon::start();
    let body = json!({ "wall": "process", "limits": { "memory_bytes": 32 << 20 } });
    let id = daemon.client().post("/v1/sandboxes", &body).is(201).field("id");
    let other = Connection::open(database(&daemon)).expect("a database");
    other.execute_batch("BEGIN EXCLUSIVE").expect("nobody else holds it");
    let socket = daemon.world.home().join("api.sock");
    let asked = std::thread::spawn(move || {
        let mut client = crate::support::Client::unix(&socket);
        client.post("/v1/sandboxes", &json!({ "wall": "process" })).status
    });
    std::thread::sleep(Duration::from_secs(2));
    other.execute_batch("ROLLBACK").expect("it was held");
    let status = asked.join().expect("an answer");
    assert!(status == 201 || status >= 500, "{status}");
    let mut client = daemon.client();
    assert_eq!(client.get(&format!("/v1/sandboxes/{id}")).is(200).json()["state"], "running");
    let exec = json!({ "argv": ["true"] });
    client.post(&format!("/v1/sandboxes/{id}/exec"), &exec).is(200);
}

#[test]
fn a_store_that_is_garbage_is_refused_by_name_and_sandboxes_can_still_be_removed() {
    let mut daemon = Daemon::start();
    let body = json!({ "wall": "process", "limits": { "memory_bytes": 32 << 20 } });
    let id = daemon.client().post("/v1/sandboxes", &body).is(201).field("id");
    let database = database(&daemon);
    daemon.kill();
    let kept = fs::read(&database).expect("a database");
    let directory = daemon.world.home();
    let beside: Vec<_> = fs::read_dir(&directory).expect("a home").flatten().collect();
    let name = database.file_name().expect("a name").to_string_lossy().into_owned();
    for entry in beside {
        let other = entry.file_name().to_string_lossy().into_owned();
        // What was written ahead would mend the file.
        if other != name && other.starts_with(&name) {
            fs::remove_file(entry.path()).expect("ours");
        }
    }
    let mut broken = kept.clone();
    for byte in broken.iter_mut().skip(100) {
        *byte ^= 0x5a;
    }
    fs::write(&database, broken).expect("ours");
    let mut serving = daemon.world.command(["serve"]);
    let refused =
        serving.stdout(Stdio::piped()).stderr(Stdio::piped()).output().expect("it starts and ends");
    let errors = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(!refused.status.success(), "{errors}");
    assert!(errors.contains(&name) && !errors.contains("panicked"), "{errors}");
    // The sandbox is no prisoner of the daemon's state.
    daemon.world.ringwall(["rm", "--force", &id]).exits(0);
    fs::write(&database, kept).expect("ours");
    daemon.start_again();
    daemon.client().get("/v1/sandboxes").is(200);
}
