//! A ring inside the warden's ring, spoken to through the warden.

use ringwall_linux::launch::encode_steps;
use ringwall_linux::seccomp;
use ringwall_linux::step::{Slot, Step};
use ringwall_wire::{Client, ErrorCode, ProcessEvent};

use crate::harness::{
    PATIENCE, RunningWarden, code, finish, is_alive, next, read_until, request, wait_until,
};

/// One more filter and nothing else: needs no privileges.
fn steps(program: &str) -> Vec<u8> {
    steps_with(Step::Seccomp, program)
}

fn steps_with(filter: Step, program: &str) -> Vec<u8> {
    let exec = Step::Exec {
        program: program.into(),
        arguments: Vec::new(),
        environment: Vec::new(),
        descriptors: vec![Slot::passed(0)],
        open_files: None,
    };
    encode_steps(&[Step::NoNewPrivileges, filter, exec]).unwrap()
}

fn raise_in(outer: &Client) -> Client {
    raise_with(outer, Step::Seccomp)
}

fn raise_with(outer: &Client, filter: Step) -> Client {
    let steps = steps_with(filter, env!("CARGO_BIN_EXE_ringwall-warden"));
    outer.raise(steps).unwrap().connect().unwrap()
}

#[test]
fn an_inner_ring_answers_through_the_outer_one() {
    let outer = RunningWarden::start();
    let inner = raise_in(&outer.client);
    let facts = inner.facts(PATIENCE).unwrap();
    assert_eq!(facts.seccomp.fingerprint, seccomp::JOB_FINGERPRINT);
    assert_ne!(facts.pid, outer.pid());
    assert_eq!(outer.client.facts(PATIENCE).unwrap().seccomp.fingerprint, 0);
    let finished = finish(inner.start(&request(&["/bin/sh", "-c", "echo in; exit 3"])).unwrap());
    assert_eq!((finished.text(), finished.code()), ("in\n", Some(3)));
    assert_eq!(outer.shell("exit 2").code(), Some(2));
}

#[test]
fn rings_nest_and_carry_floods() {
    let outer = RunningWarden::start();
    // A ring without this filter takes no other ring in.
    let middle = raise_with(&outer.client, Step::SeccompNesting);
    let inner = raise_in(&middle);
    let mut job = inner.start(&request(&["head", "-c", "4000000", "/dev/zero"])).unwrap();
    let mut received = 0;
    loop {
        match next(&mut job) {
            ProcessEvent::Stdout(bytes) => received += bytes.len(),
            ProcessEvent::Stderr(bytes) => panic!("{bytes:?}"),
            ProcessEvent::Exited(_) => break,
        }
    }
    assert_eq!(received, 4_000_000);
}

#[test]
fn an_inner_ring_ends_with_its_connection_and_takes_its_jobs_along() {
    let outer = RunningWarden::start();
    let inner = raise_in(&outer.client);
    let warden = inner.facts(PATIENCE).unwrap().pid;
    let script = "setsid sleep 1000 & echo $!; wait";
    let mut job = inner.start(&request(&["/bin/sh", "-c", script])).unwrap();
    let background: u32 = read_until(&mut job, "\n").trim().parse().unwrap();
    assert!(is_alive(warden) && is_alive(background));
    drop(job);
    drop(inner);
    assert!(wait_until(|| !is_alive(warden) && !is_alive(background)));
    assert_eq!(outer.shell("exit 0").code(), Some(0));
}

#[test]
fn steps_that_cannot_be_taken_are_told() {
    let outer = RunningWarden::start();
    assert_eq!(code(outer.client.raise(b"nonsense".to_vec())), ErrorCode::System);
    assert_eq!(code(outer.client.raise(steps("/no/such/warden"))), ErrorCode::System);
    assert_eq!(outer.shell("exit 0").code(), Some(0));
}

#[test]
fn an_inner_ring_that_ends_by_itself_closes_the_tunnel() {
    let outer = RunningWarden::start();
    let inner = raise_in(&outer.client);
    inner.shutdown(PATIENCE).unwrap();
    assert!(wait_until(|| inner.stat(b"/").is_err()));
    assert_eq!(outer.shell("exit 0").code(), Some(0));
}
