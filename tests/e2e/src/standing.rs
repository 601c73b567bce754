//! A ring that is not any more what its evidence showed is stopped, and the log says why.

use std::fs;
use std::process::Command;

use serde_json::Value;

use crate::support::{World, eventually, is_root};

/// The number that a program of a sandbox has on the host: found by its arguments.
fn host_pid(argument: &str) -> String {
    eventually("the program runs", || {
        let all = fs::read_dir("/proc").expect("a list of processes").flatten();
        let mut numbers = all.filter_map(|entry| entry.file_name().into_string().ok());
        let runs = |pid: &String| {
            let line = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
            line.starts_with(b"sleep\0") && line.ends_with(format!("{argument}\0").as_bytes())
        };
        numbers.find(runs)
    })
}

/// As somebody with power over the host could: changes the mounts of a ring behind Ringwall's back.
#[track_caller]
fn meddle(pid: &str, mount: &[&str]) {
    let mut command = Command::new("nsenter");
    let entered = command.args(["--target", pid, "--mount", "mount"]).args(mount).status();
    assert!(entered.expect("nsenter can be started").success(), "{mount:?}");
}

fn failed_checks(world: &World) -> Vec<Value> {
    let text = fs::read_to_string(world.home().join("audit/log")).expect("a log");
    let lines = text.lines().map(|line| serde_json::from_str::<Value>(line).expect("JSON"));
    let events = lines.map(|line| line["event"].clone());
    events.filter(|it| it["kind"] == "evidence-checked" && it["passed"] == false).collect()
}

#[test]
fn a_ring_with_other_mounts_than_it_was_raised_with_runs_nothing_more() {
    if !is_root() {
        eprintln!("not tested here: only root can change the mounts of a ring");
        return;
    }
    let changes: [&[&str]; 2] =
        [&["-t", "tmpfs", "none", "/dev/shm"], &["-o", "remount,bind,rw", "/usr"]];
    for (number, change) in changes.into_iter().enumerate() {
        let world = World::new();
        // Nobody else sleeps for so long.
        let seconds = format!("86{}{number}", std::process::id());
        let line = ["create", "--workspace", ".", "--", "sleep", &seconds];
        let id = world.ringwall(line).exits(0).word();
        world.ringwall(["exec", &id, "--", "true"]).exits(0);
        world.ringwall(["rights", &id, "--writable", "docs"]).exits(0);
        world.ringwall(["exec", &id, "--", "touch", "docs/made"]).exits(0);
        assert_eq!(failed_checks(&world), Vec::<Value>::new());
        meddle(&host_pid(&seconds), change);
        let refused = world.ringwall(["exec", &id, "--", "touch", "docs/more"]);
        refused.is_refused().says(&["mounts", "process ring"]);
        eventually("the sandbox is stopped", || {
            world.ringwall(["exec", &id, "--", "true"]).err().contains("not running").then_some(())
        });
        let failed = failed_checks(&world);
        assert_eq!(failed.len(), 1, "{failed:?}");
        assert!(failed[0]["missing"][0].as_str().expect("text").contains("mounts"), "{failed:?}");
        world.ringwall(["rm", "--force", &id]).exits(0);
    }
}

#[test]
fn a_change_of_rights_in_a_ring_with_other_mounts_stops_it() {
    if !is_root() {
        eprintln!("not tested here: only root can change the mounts of a ring");
        return;
    }
    let world = World::new();
    let seconds = format!("87{}", std::process::id());
    let line = ["create", "--workspace", ".", "--", "sleep", &seconds];
    let id = world.ringwall(line).exits(0).word();
    let project = world.project().display().to_string();
    // One more way to write to the workspace.
    meddle(&host_pid(&seconds), &["--bind", &project, "/dev/shm"]);
    let refused = world.ringwall(["rights", &id, "--nowhere"]);
    refused.is_refused().says(&["was stopped", "mounts"]);
    eventually("the sandbox is stopped", || {
        world.ringwall(["exec", &id, "--", "true"]).err().contains("not running").then_some(())
    });
    world.ringwall(["rm", "--force", &id]).exits(0);
}

#[test]
fn an_owner_who_saves_a_hidden_file_anew_does_not_stop_the_sandbox() {
    let world = World::new();
    let place = tempfile::tempdir().expect("a directory");
    std::os::unix::fs::chown(place.path(), Some(12345), Some(12345)).ok();
    fs::write(place.path().join(".env"), "TOKEN=old\n").expect("a file");
    let line = ["create", "--workspace-rw", place.path().to_str().expect("text")];
    let id = world.ringwall(line).exits(0).word();
    world.ringwall(["exec", &id, "--", "true"]).exits(0);
    // As editors do. The kernel takes the cover away with the old file.
    fs::write(place.path().join("new"), "TOKEN=new\n").expect("a file");
    fs::rename(place.path().join("new"), place.path().join(".env")).expect("a new name");
    world.ringwall(["exec", &id, "--", "true"]).exits(0);
    world.ringwall(["rm", "--force", &id]).exits(0);
}
