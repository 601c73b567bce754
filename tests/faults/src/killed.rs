//! `kill -9` of whatever helps, while others are at work: they go on, and keep their limits.

use std::fs;
use std::path::{Path, PathBuf};

use rustix::process::Signal;

use crate::support::{eventually, rounds};
use ringwall_testkit::ground::{Dice, Ground, send};

/// The control groups of a sandbox, in every hierarchy.
fn groups(id: &str) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut pending = vec![PathBuf::from("/sys/fs/cgroup")];
    while let Some(directory) = pending.pop() {
        let entries = fs::read_dir(&directory).into_iter().flatten().flatten();
        for path in entries.map(|entry| entry.path()).filter(|path| path.is_dir()) {
            if path.file_name().is_some_and(|name| name == id) {
                found.push(path.clone());
            }
            pending.push(path);
        }
    }
    found
}

fn limits_of(group: &Path) -> Vec<(String, String)> {
    let names = ["pids.max", "memory.max", "memory.limit_in_bytes"];
    let read = |name: &&str| Some((name.to_string(), fs::read_to_string(group.join(name)).ok()?));
    names.iter().filter_map(read).collect()
}

#[test]
fn whoever_is_killed_the_others_work_on_within_their_limits_and_nothing_is_left() {
    let ground = Ground::new();
    let mut dice = Dice::new();
    let work = ["--", "sh", "-c", "while :; do (true); done"];
    for round in 0..rounds() {
        let make = || {
            let made = ground.world.ringwall([&["create"][..], &work].concat());
            made.exits(0).word()
        };
        let ids: Vec<String> = (0..3).map(|_| make()).collect();
        let namespaces = ground.witness.namespaces();
        let before: Vec<_> = ids.iter().map(|id| groups(id)).collect();
        std::thread::sleep(dice.moment(std::time::Duration::from_millis(300)));
        let records = ground.world.sandboxes();
        let record = records.iter().find(|record| record["id"] == ids[0].as_str());
        let keeper = record.expect("it is listed")["owner_pid"].as_i64().expect("a number");
        let victim = match round % 2 {
            0 => i32::try_from(keeper).expect("a process"),
            // Any of them: the three sandboxes are alike.
            _ => ground.wait_for_process("warden").pid,
        };
        send(victim, Signal::KILL);
        let state = |id: &String| {
            let all = ground.world.sandboxes();
            let record = all.iter().find(|record| record["id"] == id.as_str()).cloned();
            record.map(|record| record["state"].as_str().unwrap_or_default().to_owned())
        };
        let hit = eventually("the end of one", || {
            ids.iter().position(|id| state(id).as_deref() != Some("running"))
        });
        for (number, id) in ids.iter().enumerate().filter(|(number, _)| *number != hit) {
            ground.world.ringwall(["exec", id, "true"]).exits(0);
            for group in &before[number] {
                let limits = limits_of(group);
                assert!(limits.iter().all(|(_, limit)| limit.trim() != "max"), "{limits:?}");
            }
        }
        for id in &ids {
            let _ = ground.world.ringwall(["rm", "--force", id]);
        }
        ground.gc();
        ground.is_clean(&namespaces);
    }
}
