//! Standard streams pass unchanged.

use std::io::Read;
use std::process::Stdio;

use rustix::process::{Pid, Signal, kill_process};

use crate::support::{World, wait_for_end};

#[test]
fn output_and_errors_come_through_byte_by_byte_and_apart() {
    let world = World::new();
    let run = world.sh(&[], r"printf 'a\000\377b'; printf 'c\001' >&2");
    run.exits(0);
    assert_eq!((run.stdout.as_slice(), run.stderr.as_slice()), (&b"a\0\xffb"[..], &b"c\x01"[..]));
}

#[test]
fn a_megabyte_of_output_arrives_whole() {
    let world = World::new();
    let run = world.sh(&[], "head -c 1048576 /dev/zero; head -c 65536 /dev/zero >&2");
    run.exits(0);
    assert_eq!((run.stdout.len(), run.stderr.len()), (1 << 20, 1 << 16));
}

#[test]
fn standard_input_is_passed_on_only_if_asked_for() {
    let world = World::new();
    let input = vec![b'x'; 300_000];
    let with = world.ringwall_with_input(&["run", "-i", "--", "cat"], &input);
    with.exits(0);
    assert!(with.stdout == input, "{} bytes came back", with.stdout.len());
    let without = world.ringwall_with_input(&["run", "--", "cat"], &input);
    without.exits(0).prints("");
}

#[test]
fn a_command_that_does_not_read_its_input_still_ends() {
    let world = World::new();
    let run = world.ringwall_with_input(&["run", "-i", "--", "true"], &vec![0; 4 << 20]);
    run.exits(0).prints("");
}

#[test]
fn a_reader_that_goes_away_ends_the_run_quietly() {
    let world = World::new();
    let mut command = world.command(["run", "--timeout", "60s", "--", "yes"]);
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut first = [0; 2];
    child.stdout.take().unwrap().read_exact(&mut first).unwrap();
    assert_eq!(&first, b"y\n");
    assert_eq!(wait_for_end(&mut child), 141);
    let mut errors = String::new();
    child.stderr.take().unwrap().read_to_string(&mut errors).unwrap();
    assert_eq!(errors, "");
}

#[test]
fn a_reader_that_takes_nothing_holds_up_no_end() {
    let world = World::new();
    let start = |limit: &str| {
        let mut command = world.command(["run", "--timeout", limit, "--", "yes"]);
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
        let mut output = child.stdout.take().unwrap();
        // It has begun, and its output finds no more room soon.
        output.read_exact(&mut [0; 2]).unwrap();
        (child, output)
    };
    let (mut child, _output) = start("2s");
    assert_eq!(wait_for_end(&mut child), 124);
    let (mut child, _output) = start("10m");
    kill_process(Pid::from_child(&child), Signal::TERM).unwrap();
    assert_eq!(wait_for_end(&mut child), 137);
}

#[test]
fn the_environment_is_only_what_was_asked_for() {
    let world = World::new();
    let mut command = world.command(["run", "-e", "ASKED=for=it", "--", "env"]);
    let output = command.env("SECRET_TOKEN", "hunter2").output().unwrap();
    let seen = String::from_utf8(output.stdout).unwrap();
    assert!(seen.contains("ASKED=for=it\n"), "{seen}");
    assert!(!seen.contains("SECRET_TOKEN") && !seen.contains("RINGWALL_HOME"), "{seen}");
}

#[test]
fn the_working_directory_is_the_one_asked_for() {
    let world = World::new();
    world.ringwall(["run", "-w", "/usr/share", "--", "pwd"]).exits(0).prints("/usr/share\n");
    let absent = world.ringwall(["run", "-w", "/no/such/place", "--", "pwd"]);
    absent.exits(125).says(&["/no/such/place"]);
}
