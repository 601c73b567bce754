//! The exit code is the command's own, or one that says why there is none.

use std::fs;
use std::os::unix::fs::symlink;

use crate::support::{Finished, World};

#[test]
fn the_code_of_the_command_is_passed_on() {
    let world = World::new();
    for code in [0, 1, 42, 255] {
        world.sh(&[], &format!("exit {code}")).exits(code).prints("").says_nothing();
    }
}

#[test]
fn a_command_killed_by_a_signal_gives_128_and_the_signal() {
    let world = World::new();
    world.sh(&[], "kill -SEGV $$").exits(128 + 11);
    world.sh(&[], "kill -KILL $$").exits(137);
}

#[test]
fn a_command_that_does_not_exist_gives_127_and_one_that_cannot_run_126() {
    let world = World::new();
    let absent = world.ringwall(["run", "--", "no-such-program-here"]);
    absent.exits(127).prints("").says(&["ringwall: ", "no-such-program-here"]);
    let plain = world.ringwall(["run", "--", "/etc/passwd"]);
    plain.exits(126).prints("").says(&["ringwall: ", "/etc/passwd"]);
}

#[test]
fn the_time_limit_gives_124_and_says_which_flag_raises_it() {
    let world = World::new();
    let late = world.sh(&["--timeout", "300ms"], "echo before; sleep 60; echo after");
    late.exits(124).prints("before\n").says(&["300ms", "--timeout"]);
}

#[test]
fn ringwall_itself_fails_with_125() {
    let world = World::new();
    world.ringwall(["run", "--memory", "lots", "--", "true"]).is_refused();
}

#[test]
fn a_gateway_that_never_answers_ends_a_run_and_a_create_with_125() {
    let world = World::new();
    let programs = world.path("programs");
    fs::create_dir(&programs).expect("a directory");
    for name in ["ringwall-launcher", "ringwall-warden"] {
        symlink(world.programs().join(name), programs.join(name)).expect("a link");
    }
    // It takes every order and says nothing to it.
    fs::copy("/bin/cat", programs.join("ringwall-gateway")).expect("a program");
    let end = |line: &[&str]| {
        let line = [line, &["--net", "example.com", "--", "true"]].concat();
        let output = world.command(&line).env("RINGWALL_PROGRAMS", &programs).output();
        Finished::new(line.join(" "), output.expect("ringwall can be started"))
    };
    std::thread::scope(|scope| {
        let created = scope.spawn(|| end(&["create"]));
        for finished in [end(&["run"]), created.join().expect("an end")] {
            finished.is_refused().says(&["gateway", "does not answer", "ringwall gc"]);
        }
    });
    assert!(world.sandboxes().is_empty());
}
