//! `gc` beside living sandboxes: it takes what was abandoned and harms nobody.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread::sleep;
use std::time::Duration;

use crate::support::World;
use ringwall_testkit::ground::{Dice, Ground, IMAGE};

const RUNNERS: usize = 4;
const RUNS_EACH: usize = 25;

/// Each with the code and the output that an undisturbed run has.
const RUNS: [(&[&str], i32, &str); 5] = [
    (&["--", "sh", "-c", "echo done; exit 3"], 3, "done\n"),
    (&["--image", IMAGE, "--", "cat", "/etc/motd"], 0, "made for tests\n"),
    (&["--workspace", ".", "--", "cat", "file"], 0, "old\n"),
    (&["--", "sh", "-c", "sleep 0.1; echo slept"], 0, "slept\n"),
    (&["--image", IMAGE, "--", "sh", "-c", "sleep 0.1; echo slept"], 0, "slept\n"),
];

fn gc_until(world: &World, done: &AtomicBool) {
    while !done.load(Ordering::SeqCst) {
        world.ringwall(["gc"]).exits(0);
    }
}

fn run_all(ground: &Ground, runner: usize) {
    for round in 0..RUNS_EACH {
        let (arguments, code, output) = RUNS[(runner + round) % RUNS.len()];
        let run = ground.world.ringwall([&["run"], arguments].concat());
        run.exits(code).prints(output).says_nothing();
    }
}

/// Gives `gc` something to do.
fn kill_some(ground: &Ground, done: &AtomicBool) {
    let mut dice = Dice::new();
    while !done.load(Ordering::SeqCst) {
        let mut child = ground.start(&["run", "--", "sleep", "600"]);
        sleep(dice.moment(Duration::from_millis(100)));
        child.kill().expect("our child");
        child.wait().expect("our child");
    }
}

/// Says that it is done also when a check has failed, or the others would go on for ever.
struct Countdown<'a> {
    left: &'a AtomicUsize,
    done: &'a AtomicBool,
}

impl Drop for Countdown<'_> {
    fn drop(&mut self) {
        if self.left.fetch_sub(1, Ordering::SeqCst) == 1 || std::thread::panicking() {
            self.done.store(true, Ordering::SeqCst);
        }
    }
}

#[test]
fn gc_at_any_moment_harms_no_living_run() {
    let ground = Ground::new();
    // Control groups are shared by all homes of a host, so another home's gc matters as well.
    let elsewhere = World::new();
    let living = ground.world.ringwall(["create"]);
    let living = living.exits(0).word();
    let keep = "echo kept >/tmp/state";
    ground.world.ringwall(["exec", &living, "--", "sh", "-c", keep]).exits(0);
    let (done, left) = (AtomicBool::new(false), AtomicUsize::new(RUNNERS));
    std::thread::scope(|scope| {
        let (ground, done, left) = (&ground, &done, &left);
        for runner in 0..RUNNERS {
            let countdown = Countdown { left, done };
            scope.spawn(move || {
                let _countdown = countdown;
                run_all(ground, runner);
            });
        }
        scope.spawn(move || kill_some(ground, done));
        scope.spawn(move || gc_until(&ground.world, done));
        scope.spawn(move || gc_until(&elsewhere, done));
    });
    let state = ["exec", &living, "--", "cat", "/tmp/state"];
    ground.world.ringwall(state).exits(0).prints("kept\n");
    ground.world.ringwall(["rm", "--force", &living]).exits(0);
    ground.gc();
    ground.is_clean(&std::collections::BTreeSet::new());
}

#[test]
fn gc_never_takes_the_control_groups_parent_from_under_a_starting_run() {
    let ground = Ground::new();
    let elsewhere = World::new();
    let (done, left) = (AtomicBool::new(false), AtomicUsize::new(1));
    std::thread::scope(|scope| {
        let (ground, done, left) = (&ground, &done, &left);
        // One run at a time: between two of them the parent is empty and may be removed.
        scope.spawn(move || {
            let _countdown = Countdown { left, done };
            for _ in 0..100 {
                ground.world.ringwall(["run", "--", "true"]).exits(0);
            }
        });
        scope.spawn(move || gc_until(&ground.world, done));
        scope.spawn(move || gc_until(&elsewhere, done));
    });
    ground.is_clean(&std::collections::BTreeSet::new());
}

#[test]
fn gc_goes_on_past_a_sandbox_that_it_cannot_clean_up_after() {
    let ground = Ground::new();
    let script = ["--", "sh", "-c", "echo new >file"];
    let run = ["run", "--workspace", ".", "-o", "json"];
    let kept = ground.world.ringwall([&run[..], &script].concat());
    let kept = kept.exits(0).json()["id"].as_str().expect("an id").to_owned();
    let journal = format!("sandboxes/{kept}/changes/journal.json");
    let journal = ground.world.home().join(journal);
    std::fs::write(&journal, "not a journal").expect("a file");
    for _ in 0..4 {
        let mut child = ground.start(&["run", "--", "sleep", "600"]);
        ground.wait_for_process("warden");
        child.kill().expect("our child");
        child.wait().expect("our child");
    }
    ground.world.ringwall(["gc"]).is_refused().says(&[&kept]);
    let left = ground.world.sandboxes();
    assert_eq!(left.len(), 1, "{left:?}");
    std::fs::remove_file(&journal).expect("our file");
    assert_eq!(ground.gc(), 0);
    ground.remove_finished();
    ground.is_clean(&std::collections::BTreeSet::new());
}
