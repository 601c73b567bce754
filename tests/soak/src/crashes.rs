//! Other ends than the planned one: signals to the command line, and the death of each helper.

use std::io::{BufRead, BufReader};
use std::process::{Child, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use rustix::process::Signal;

use crate::support::{eventually, wait_for_end};
use ringwall_testkit::ground::{Dice, Ground, IMAGE, pid_of, send};

const LAUNCHER: &str = "ringwall-launch";
const WARDEN: &str = "warden";
const SLEEPS: [&str; 2] = ["sleep", "600"];
const FORKS: &str = "(setsid sleep 600 &) ; sleep 600 & echo ready; sleep 600";

/// Starts a run and waits until its job has said that it is there.
fn start_forking(ground: &Ground) -> Child {
    let mut command = ground.world.command(["run", "--", "sh", "-c", FORKS]);
    let mut child = command
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .expect("ringwall can be started");
    let mut line = String::new();
    let output = child.stdout.take().expect("a pipe");
    BufReader::new(output).read_line(&mut line).expect("a line");
    assert_eq!(line, "ready\n");
    child
}

fn create(ground: &Ground, flags: &[&str]) -> String {
    let command = ["--", "sh", "-c", "sleep 600 & sleep 600"];
    let created = ground.world.ringwall([&["create"], flags, &command].concat());
    created.exits(0).word()
}

fn length_of_a_run(ground: &Ground) -> Duration {
    let begun = Instant::now();
    ground.world.ringwall(["run", "--", "true"]).exits(0);
    begun.elapsed()
}

/// What this process ignores, programs that it starts ignore too.
fn is_hang_up_ignored() -> bool {
    let status = std::fs::read_to_string("/proc/self/status").expect("our own status");
    let ignored = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let mask = u64::from_str_radix(ignored.expect("a mask").trim(), 16).expect("a number");
    mask & 1 != 0
}

#[test]
fn a_signal_at_any_moment_ends_a_run_tidily_without_gc() {
    let ground = Ground::new();
    let mut dice = Dice::new();
    let most = length_of_a_run(&ground) * 2;
    // Under `nohup` a run goes on after a hang-up.
    let signals: &[Signal] = match is_hang_up_ignored() {
        true => &[Signal::TERM, Signal::INT],
        false => &[Signal::TERM, Signal::INT, Signal::HUP],
    };
    for round in 0..30 {
        let signal = signals[round % signals.len()];
        let flags: &[&str] = if round % 2 == 0 { &[] } else { &["--image", IMAGE] };
        let mut child = ground.start(&[&["run"], flags, &["--"], &SLEEPS].concat());
        sleep(dice.moment(most));
        let namespaces = ground.witness.namespaces();
        send(pid_of(&child), signal);
        let code = wait_for_end(&mut child);
        assert!([129, 130, 137, 143].contains(&code), "{signal:?}: {code}");
        ground.is_clean(&namespaces);
    }
}

#[test]
fn a_run_needs_its_launcher_no_longer_than_until_the_job_runs() {
    let ground = Ground::new();
    let mut child = start_forking(&ground);
    eventually("the end of the launcher", || ground.find(LAUNCHER).is_none().then_some(()));
    let namespaces = ground.witness.namespaces();
    child.kill().expect("it runs on");
    child.wait().expect("an end");
    // The ring was a child of that command, and goes with it.
    eventually("the end of all", || ground.witness.processes().is_empty().then_some(()));
    assert_eq!(ground.gc(), 1);
    ground.is_clean(&namespaces);
}

#[test]
fn a_launcher_killed_at_any_moment_leaves_nothing() {
    let ground = Ground::new();
    let mut dice = Dice::new();
    let most = length_of_a_run(&ground) / 2;
    let mut failed = 0;
    for round in 0..40 {
        let flags: &[&str] = if round % 2 == 0 { &[] } else { &["--image", IMAGE] };
        let mut child = ground.start(&[&["run"], flags, &["--", "true"]].concat());
        // It is there for some milliseconds only.
        let launcher = loop {
            match (ground.find(LAUNCHER), child.try_wait().expect("a child")) {
                (None, None) => {}
                (found, _) => break found,
            }
        };
        sleep(dice.moment(most));
        let namespaces = ground.witness.namespaces();
        if let Some(launcher) = launcher {
            send(launcher.pid, Signal::KILL);
        }
        match wait_for_end(&mut child) {
            0 => {}
            125 => failed += 1,
            other => panic!("a run without its launcher ended with {other}"),
        }
        ground.is_clean(&namespaces);
    }
    assert!(failed > 0, "no launcher was killed in time");
}

#[test]
fn a_run_whose_warden_is_killed_ends_tidily_without_gc() {
    let ground = Ground::new();
    let mut child = start_forking(&ground);
    let namespaces = ground.witness.namespaces();
    send(ground.wait_for_process(WARDEN).pid, Signal::KILL);
    assert_eq!(wait_for_end(&mut child), 125);
    ground.is_clean(&namespaces);
}

#[test]
fn living_sandboxes_whose_keepers_are_killed_are_gone_after_gc() {
    let ground = Ground::new();
    for flags in [&[][..], &["--image", IMAGE], &["--workspace", "."]] {
        let id = create(&ground, flags);
        let record = &ground.world.sandboxes()[0];
        assert_eq!(record["id"], id.as_str());
        let keeper = record["owner_pid"].as_i64().expect("a number");
        let namespaces = ground.witness.namespaces();
        send(i32::try_from(keeper).expect("a process"), Signal::KILL);
        eventually("the end of the keeper", || {
            let state = ground.world.sandboxes()[0]["state"].clone();
            (state == "abandoned").then_some(())
        });
        assert_eq!(ground.gc(), 1);
        ground.is_clean(&namespaces);
    }
}

#[test]
fn a_living_sandbox_needs_its_launcher_no_longer_than_until_it_is_up() {
    let ground = Ground::new();
    let id = create(&ground, &[]);
    let namespaces = ground.witness.namespaces();
    eventually("the end of the launcher", || ground.find(LAUNCHER).is_none().then_some(()));
    ground.world.ringwall(["exec", &id, "--", "true"]).exits(0);
    ground.world.ringwall(["rm", "--force", &id]).exits(0);
    ground.is_clean(&namespaces);
}

#[test]
fn a_create_killed_at_any_moment_leaves_a_sandbox_that_is_listed_or_nothing() {
    let ground = Ground::new();
    let mut dice = Dice::new();
    let most = length_of_a_run(&ground) * 2;
    for _ in 0..20 {
        let mut child = ground.start(&["create", "--", "sleep", "600"]);
        sleep(dice.moment(most));
        let namespaces = ground.witness.namespaces();
        child.kill().expect("our child");
        child.wait().expect("our child");
        // A keeper that cannot tell anybody ends; one that has told lives and is listed.
        eventually("nothing, or a listed sandbox", || {
            if ground.witness.processes().is_empty() {
                return Some(());
            }
            let all = ground.world.sandboxes();
            all.iter().any(|record| record["state"] == "running").then_some(())
        });
        ground.gc();
        eventually("the end of what is listed", || {
            for record in ground.world.sandboxes() {
                // It may end on its own between being listed and being removed.
                let id = record["id"].as_str().expect("an id");
                let _ = ground.world.ringwall(["rm", "--force", id]);
            }
            ground.witness.processes().is_empty().then_some(())
        });
        ground.gc();
        ground.is_clean(&namespaces);
    }
}
