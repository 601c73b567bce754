//! Signals to the command line reach the job, and a killed command line leaves nothing for long.

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};

use rustix::process::{Pid, Signal, kill_process};

use crate::support::{World, eventually, wait_for_end};

/// Starts a job and waits for its first line.
fn start(world: &World, script: &str) -> Child {
    let mut command = world.command(["run", "--timeout", "60s", "--", "sh", "-c", script]);
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap());
    let mut line = String::new();
    lines.read_line(&mut line).unwrap();
    assert_eq!(line, "ready\n");
    child.stdout = Some(lines.into_inner());
    child
}

fn send(child: &Child, signal: Signal) {
    kill_process(Pid::from_raw(i32::try_from(child.id()).unwrap()).unwrap(), signal).unwrap();
}

#[test]
fn an_interrupt_goes_to_the_job_first() {
    let world = World::new();
    let mut child =
        start(&world, "trap 'echo cleaning; exit 7' INT; echo ready; while :; do sleep 0.05; done");
    send(&child, Signal::INT);
    assert_eq!(wait_for_end(&mut child), 7);
    assert_eq!(std::io::read_to_string(child.stdout.take().unwrap()).unwrap(), "cleaning\n");
}

#[test]
fn a_job_that_ignores_the_first_interrupt_is_killed_by_the_second() {
    let world = World::new();
    let mut child = start(&world, "trap 'echo no' INT; echo ready; while :; do sleep 0.05; done");
    send(&child, Signal::INT);
    let mut lines = BufReader::new(child.stdout.take().unwrap());
    let mut line = String::new();
    lines.read_line(&mut line).unwrap();
    assert_eq!(line, "no\n");
    send(&child, Signal::INT);
    assert_eq!(wait_for_end(&mut child), 137);
}

#[test]
fn a_request_to_terminate_ends_the_job_at_once_and_tidily() {
    let world = World::new();
    let mut child = start(&world, "trap '' TERM; echo ready; while :; do sleep 0.05; done");
    send(&child, Signal::TERM);
    assert_eq!(wait_for_end(&mut child), 137);
    assert!(world.sandboxes().is_empty());
}

#[test]
fn a_killed_command_line_takes_its_job_along_and_gc_removes_the_rest() {
    let world = World::new();
    let marker = "141421356";
    let mut child = start(&world, &format!("echo ready; exec sleep {marker}"));
    child.kill().unwrap();
    child.wait().unwrap();
    let running = || {
        std::fs::read_dir("/proc").unwrap().filter_map(Result::ok).any(|entry| {
            let line = std::fs::read(entry.path().join("cmdline")).unwrap_or_default();
            line.split(|byte| *byte == 0).any(|argument| argument == marker.as_bytes())
        })
    };
    world.ringwall(["gc"]).exits(0);
    eventually("the end of the job", || (!running()).then_some(()));
    world.ringwall(["gc"]).exits(0);
    assert!(world.sandboxes().is_empty());
}

#[test]
fn a_hang_up_that_nohup_set_aside_ends_no_job() {
    let world = World::new();
    let plain = world.command(["run", "--", "sh", "-c", "echo ready; sleep 1; echo done"]);
    let mut command = Command::new("/usr/bin/env");
    command.arg("--ignore-signal=HUP").arg(plain.get_program()).args(plain.get_args()).env_clear();
    command.envs(plain.get_envs().filter_map(|(name, value)| Some((name, value?))));
    command.current_dir(world.project()).stdin(Stdio::null()).stdout(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap());
    let mut line = String::new();
    lines.read_line(&mut line).unwrap();
    send(&child, Signal::HUP);
    assert_eq!(wait_for_end(&mut child), 0);
    assert_eq!(std::io::read_to_string(lines).unwrap(), "done\n");
}
