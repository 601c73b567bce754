//! An engine that may open, hold or start too little itself.

use std::process::Command;

use crate::support::{Finished, User, World, is_root};
use ringwall_testkit::ground::Ground;

/// Longer than any run takes that is not stuck.
const PATIENCE: &str = "60";

/// `ringwall run -- true` under limits of its own.
fn run_under(world: &World, limits: &str) -> Finished {
    let wanted = world.command(["run", "--", "true"]);
    let mut command = Command::new("timeout");
    command.args(["-s", "KILL", PATIENCE, "prlimit", limits]);
    command.arg(wanted.get_program()).args(["run", "--", "true"]).env_clear();
    command.envs(wanted.get_envs().filter_map(|(name, value)| Some((name, value?))));
    command.current_dir(world.project());
    world.become_its_user(&mut command);
    let output = command.output().expect("it starts");
    Finished::new(format!("run under {limits}"), output)
}

/// With everything from nothing to plenty: it runs, or is refused in words, and nothing is left.
#[track_caller]
fn runs_or_refuses(world: &World, limits: impl Iterator<Item = String>) -> (usize, usize) {
    let (mut ran, mut refused) = (0, 0);
    for limit in limits {
        let run = run_under(world, &limit);
        match run.code {
            0 => ran += 1,
            125 => {
                assert!(run.err().contains("ringwall: "), "{run:?}");
                refused += 1;
            }
            // The shell, the loader or the kernel gave up before Ringwall ran.
            1 | 2 | 126 | 127 | 134 | 139 => {}
            other => panic!("{other}: {run:?}"),
        }
        assert!(!run.err().contains("panicked"), "{run:?}");
    }
    (ran, refused)
}

#[test]
fn with_too_few_descriptors_a_run_is_refused_and_leaves_nothing() {
    let ground = Ground::new();
    let (ran, refused) =
        runs_or_refuses(&ground.world, (6..80).step_by(4).map(|most| format!("--nofile={most}")));
    assert!(ran > 0 && refused > 0, "{ran} ran, {refused} were refused");
    ground.gc();
    ground.is_clean(&Default::default());
}

#[test]
fn with_too_little_memory_a_run_is_refused_and_leaves_nothing() {
    let ground = Ground::new();
    // The unoptimised program alone has more than fifty.
    let bytes = (22 << 20..112 << 20).step_by(5 << 20);
    let (ran, _) = runs_or_refuses(&ground.world, bytes.map(|most| format!("--as={most}")));
    assert!(ran > 0, "none ran");
    ground.gc();
    ground.is_clean(&Default::default());
}

#[test]
fn with_too_few_processes_a_run_is_refused_and_leaves_nothing() {
    if !is_root() {
        eprintln!("not tested here: needs a user of whom no other process runs");
        return;
    }
    let world = World::of(User::Ordinary);
    let (ran, refused) =
        runs_or_refuses(&world, (1..40).step_by(3).map(|most| format!("--nproc={most}")));
    assert!(ran > 0 && refused > 0, "{ran} ran, {refused} were refused");
    world.ringwall(["gc"]).exits(0);
    assert!(world.sandboxes().is_empty());
}
