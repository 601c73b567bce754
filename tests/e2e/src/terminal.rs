//! `-t`: the job has a terminal, and the caller gets its own back.

use std::thread::sleep;
use std::time::Duration;

use rustix::process::Signal;

use crate::support::{Terminal, World};

#[test]
fn a_job_on_a_terminal_knows_its_size_and_hears_of_changes() {
    let world = World::new();
    let script = "trap 'stty size' WINCH; test -t 0 && test -t 1 && stty size; \
        echo ready; while read -r line; do echo \"got $line\"; done";
    let command = world.command(["run", "-i", "-t", "--", "bash", "-c", script]);
    let mut terminal = Terminal::start(command, 30, 100);
    terminal.shows("30 100");
    terminal.shows("ready");
    assert!(!terminal.is_cooked(), "keys must go to the job one by one");
    terminal.resize(41, 123);
    // A shell that reads runs its trap after the line; the first one may be faster than the news.
    for _ in 0..100 {
        terminal.type_in("\n");
        sleep(Duration::from_millis(50));
        if terminal.screen_text().contains("41 123") {
            break;
        }
    }
    terminal.shows("41 123");
    terminal.type_in("hello\n");
    terminal.shows("got hello");
    // End of input, as typed.
    terminal.type_in("\x04");
    assert_eq!(terminal.ends(), 0);
    assert!(terminal.is_cooked(), "the terminal was not restored");
}

#[test]
fn control_c_is_for_the_job() {
    let world = World::new();
    let script = "trap 'echo caught; exit 5' INT; echo ready; while :; do sleep 0.05; done";
    let command = world.command(["run", "-it", "--", "sh", "-c", script]);
    let mut terminal = Terminal::start(command, 24, 80);
    terminal.shows("ready");
    terminal.type_in("\x03");
    terminal.shows("caught");
    assert_eq!(terminal.ends(), 5);
    assert!(terminal.is_cooked());
}

#[test]
fn the_terminal_is_restored_when_the_command_line_is_told_to_end() {
    let world = World::new();
    let command = world.command(["run", "-it", "--", "sh", "-c", "echo ready; exec sleep 60"]);
    let mut terminal = Terminal::start(command, 24, 80);
    terminal.shows("ready");
    assert!(!terminal.is_cooked());
    terminal.signal(Signal::TERM);
    assert_eq!(terminal.ends(), 137);
    assert!(terminal.is_cooked());
}

#[test]
fn a_terminal_can_be_had_without_one() {
    let world = World::new();
    let run = world.ringwall(["run", "-t", "--", "sh", "-c", "test -t 1 && stty size </dev/tty"]);
    run.exits(0);
    assert_eq!(run.out().trim(), "24 80", "{run:?}");
}

#[test]
fn a_living_sandbox_offers_terminals_too() {
    let world = World::new();
    let id = world.ringwall(["create"]).exits(0).word();
    let command = world.command(["exec", "-it", &id, "sh"]);
    let mut terminal = Terminal::start(command, 24, 80);
    terminal.type_in("echo $((6*7))\n");
    terminal.shows("42");
    terminal.type_in("exit 3\n");
    assert_eq!(terminal.ends(), 3);
    assert!(terminal.is_cooked());
    world.ringwall(["rm", "--force", &id]).exits(0);
}
