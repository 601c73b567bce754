//! `kill -9` of the command line at any moment of a run leaves nothing, once `gc` was there.

use std::os::unix::process::ExitStatusExt;
use std::thread::sleep;
use std::time::{Duration, Instant};

use crate::support::is_root;
use ringwall_testkit::ground::{Dice, Ground, IMAGE};

const KILLS: usize = 200;
const KILLS_AS_ORDINARY_USER: usize = 40;
/// The number of a job that takes longest, with changes to keep.
const CHANGING: usize = 3;

const FORKS: &str = "(setsid sleep 600 &) ; sleep 600 & (sleep 600; true) & sleep 600";
const FORKS_ALL_THE_TIME: &str = "while :; do (setsid true &); sleep 600 & done";
const FORKS_IN_IMAGE: &str =
    "(/bin/busybox setsid sleep 600 &) ; sleep 600 & (sleep 600; true) & sleep 600";
/// Enough to be in the middle of keeping them now and then.
const CHANGES: &str = "echo new >file; rm -r sub; mkdir more; i=0
    while [ $i -lt 150 ]; do echo $i >more/$i; i=$((i+1)); done";
const CHANGES_AND_STAYS: &str = "echo new >file; rm -r sub; exec sleep 600";

/// What is run: flags and script.
const JOBS: [(&[&str], &str); 10] = [
    (&[], "true"),
    (&[], FORKS),
    (&["--pids", "50"], FORKS_ALL_THE_TIME),
    (&["--workspace", "."], CHANGES),
    (&["--workspace", "."], CHANGES_AND_STAYS),
    (&["--image", IMAGE], "true"),
    (&["--image", IMAGE], FORKS_IN_IMAGE),
    (&["--image", IMAGE, "--workspace", "."], CHANGES),
    (&["--image", IMAGE, "--workspace", "."], CHANGES_AND_STAYS),
    (&["--image", IMAGE, "--wall", "container/process"], "sleep 600"),
];

fn arguments(job: usize) -> Vec<&'static str> {
    let (flags, script) = JOBS[job % JOBS.len()];
    [&["run", "--timeout", "60s"], flags, &["--", "sh", "-c", script]].concat()
}

/// How long a run takes here and now, with changes to keep.
fn length_of_a_run(ground: &Ground) -> Duration {
    let times = (0..5).map(|_| {
        let begun = Instant::now();
        ground.world.ringwall(arguments(CHANGING)).exits(0);
        begun.elapsed()
    });
    let longest = times.max().expect("five");
    ground.remove_finished();
    longest
}

/// Kills `jobs` in turn and looks whether anything is left after each.
fn kill_at_any_moment(ground: &Ground, kills: usize, jobs: &[usize]) {
    let mut dice = Dice::new();
    let most = length_of_a_run(ground).mul_f64(1.2);
    let (mut in_time, mut abandoned) = (0, 0);
    for round in 0..kills {
        let job = jobs[round % jobs.len()];
        let moment = dice.moment(most);
        let mut child = ground.start(&arguments(job));
        sleep(moment);
        let namespaces = ground.witness.namespaces();
        child.kill().expect("our child");
        let status = child.wait().expect("our child");
        in_time += usize::from(status.signal() == Some(9));
        abandoned += ground.gc();
        eprintln!("round {round}: job {job} killed after {moment:?} of {most:?}: {status}");
        // What ended in order before the kill has kept its changes.
        ground.remove_finished();
        ground.is_clean(&namespaces);
    }
    // Otherwise the moments were badly chosen and this proved little.
    assert!(in_time >= kills / 2, "only {in_time} kills were in time");
    assert!(abandoned >= 8, "only {abandoned} sandboxes were abandoned");
}

#[test]
fn a_run_killed_at_any_moment_leaves_nothing_after_gc() {
    let all: Vec<usize> = (0..JOBS.len()).collect();
    kill_at_any_moment(&Ground::new(), KILLS, &all);
}

#[test]
fn a_run_of_an_ordinary_user_killed_at_any_moment_leaves_nothing_after_gc() {
    if !is_root() {
        // Then the test above is this one.
        return;
    }
    let without_image = [0, 1, 2, 3, 4];
    kill_at_any_moment(&Ground::of_ordinary_user(), KILLS_AS_ORDINARY_USER, &without_image);
}

#[test]
fn a_pile_of_killed_runs_is_cleared_by_one_gc() {
    let ground = Ground::new();
    let mut dice = Dice::new();
    let most = length_of_a_run(&ground) * 3;
    let children: Vec<_> = (0..24).map(|round| ground.start(&arguments(round))).collect();
    let mut namespaces = ground.witness.namespaces();
    for mut child in children {
        sleep(dice.moment(most / 24));
        namespaces.append(&mut ground.witness.namespaces());
        child.kill().expect("our child");
        child.wait().expect("our child");
    }
    ground.gc();
    ground.remove_finished();
    ground.is_clean(&namespaces);
}
