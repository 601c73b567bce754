//! Many runs, one after the other and side by side, leave the host as it was.

use std::collections::BTreeSet;

use crate::support::Finished;
use ringwall_testkit::ground::{Ground, IMAGE};

const SEQUENTIAL: usize = 500;
const PARALLEL: usize = 64;

/// Walls, workspaces and endings take turns.
fn run(ground: &Ground, round: usize) -> Finished {
    let arguments: &[&str] = match round % 5 {
        0 => &["run", "--", "true"],
        1 => &["run", "--image", IMAGE, "--", "true"],
        2 => &["run", "--workspace", ".", "--", "cat", "file"],
        3 => &["run", "--image", IMAGE, "--workspace", ".", "--", "cat", "file"],
        _ => &["run", "--", "sh", "-c", "setsid sleep 600 & sleep 600 & exit 0"],
    };
    ground.world.ringwall(arguments)
}

#[test]
fn five_hundred_runs_leave_the_host_as_it_was() {
    let ground = Ground::new();
    for round in 0..SEQUENTIAL {
        run(&ground, round).exits(0).says_nothing();
    }
    ground.is_clean(&BTreeSet::new());
}

#[test]
fn sixty_four_runs_at_once_leave_the_host_as_it_was() {
    let ground = Ground::new();
    std::thread::scope(|scope| {
        for round in 0..PARALLEL {
            let ground = &ground;
            scope.spawn(move || run(ground, round).exits(0).says_nothing().clone());
        }
    });
    ground.is_clean(&BTreeSet::new());
}
