//! Every limit holds, and a reached one is named.

use std::time::{Duration, Instant};

use crate::support::World;

#[test]
fn too_much_memory_ends_as_oom_with_the_peak() {
    let world = World::new();
    let script = "x=xxxxxxxx; while :; do x=$x$x; done";
    let run = world.sh(&["--memory", "32M"], script);
    run.exits(137).says(&["out of memory", "32M", "--memory"]);
    let run = world.sh(&["--memory", "32M", "-o", "json"], script);
    let outcome = run.exits(137).json();
    assert_eq!(outcome["ending"]["kind"], "oom");
    let peak = outcome["usage"]["peak_memory_bytes"].as_u64().expect("the peak");
    assert!((16 << 20..=40 << 20).contains(&peak), "{peak}");
}

#[test]
fn a_fork_bomb_is_contained_and_everything_is_killed() {
    let world = World::new();
    let started = Instant::now();
    let run = world.sh(
        &["--pids", "32", "--timeout", "1s"],
        "bomb() { bomb | bomb & }; (bomb) 2>/dev/null; while :; do :; done",
    );
    run.exits(124);
    assert!(started.elapsed() < Duration::from_secs(20), "{:?}", started.elapsed());
}

#[test]
fn the_time_limit_reaches_daemons_that_left_their_session() {
    let world = World::new();
    let marker = "271828182";
    let script = format!("setsid sh -c 'sleep {marker} & sleep {marker}' & sleep 60");
    world.sh(&["--timeout", "500ms"], &script).exits(124);
    assert!(!is_running(marker), "a daemon survived its sandbox");
}

#[test]
fn what_the_command_left_running_dies_with_the_sandbox() {
    let world = World::new();
    let marker = "314159265";
    let script = format!("setsid sleep {marker} >/dev/null 2>&1 </dev/null & exit 0");
    world.sh(&[], &script).exits(0);
    assert!(!is_running(marker), "a process survived its sandbox");
}

#[test]
fn more_output_than_allowed_ends_the_run() {
    let world = World::new();
    let run = world.sh(&["--output-limit", "64K"], "yes");
    run.exits(137).says(&["64K", "--output-limit"]);
    assert!(run.stdout.len() <= 64 << 10, "{} bytes came out", run.stdout.len());
}

#[test]
fn disk_bytes_and_inodes_are_capped() {
    let world = World::new();
    let fill = world.sh(&["--disk", "4M"], "dd if=/dev/zero of=/tmp/fill bs=1M count=64");
    fill.exits(1).says(&["No space left"]);
    let many = "cd /tmp; i=0; while [ $i -lt 2000 ]; do : >f$i || exit 9; i=$((i+1)); done";
    let inodes = world.sh(&["--inodes", "128"], many);
    assert_ne!(inodes.code, 0, "{inodes:?}");
}

#[test]
fn open_files_are_capped() {
    let world = World::new();
    world.sh(&["--open-files", "20"], "ulimit -n; ulimit -Hn").exits(0).prints("20\n20\n");
}

#[test]
fn half_a_cpu_takes_twice_as_long() {
    let world = World::new();
    let run = world.sh(&["--cpus", "0.2", "--timeout", "1s", "-o", "json"], "while :; do :; done");
    let usage = run.exits(124).json()["usage"].clone();
    let cpu = usage["cpu_ms"].as_u64().expect("the CPU time");
    assert!(cpu < 600, "0.2 CPUs used {cpu} ms in a second");
}

#[test]
fn the_outcome_says_by_which_means_each_limit_was_kept() {
    let world = World::new();
    let run = world.ringwall(["run", "-o", "json", "--", "true"]);
    let outcome = run.exits(0).json();
    let kept: Vec<&str> = outcome["limits"]
        .as_array()
        .unwrap()
        .iter()
        .map(|l| l["limit"].as_str().unwrap())
        .collect();
    for limit in ["timeout", "memory", "cpu", "pids", "disk", "inodes", "output", "open-files"] {
        assert!(kept.contains(&limit), "{limit} is missing from {kept:?}");
    }
    assert!(outcome["limits"].as_array().unwrap().iter().all(|l| l["means"].is_string()));
}

/// Whether any process of the machine has this word on its command line.
fn is_running(word: &str) -> bool {
    std::fs::read_dir("/proc").unwrap().filter_map(Result::ok).any(|entry| {
        let line = std::fs::read(entry.path().join("cmdline")).unwrap_or_default();
        line.split(|byte| *byte == 0).any(|argument| argument == word.as_bytes())
    })
}
