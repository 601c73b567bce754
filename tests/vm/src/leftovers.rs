//! However many guests there were and however they ended, nothing is left of them.

use std::thread::sleep;
use std::time::{Duration, Instant};

use crate::site::{Site, WALLS};
use ringwall_testkit::ground::Dice;

const PARALLEL: usize = 8;
/// How long a guest may outlive the command that it was for.
const SOON: Duration = Duration::from_secs(5);

/// Ringwall promises 100; with `RINGWALL_VM_RUNS=100` this test runs so many.
fn sequential() -> usize {
    let asked = std::env::var("RINGWALL_VM_RUNS").ok();
    asked.map_or(5, |number| number.parse().expect("RINGWALL_VM_RUNS is a number"))
}

#[test]
fn one_guest_after_the_other_leaves_the_host_as_it_was() {
    let site = Site::new();
    for round in 0..sequential() {
        let wall = WALLS[round % WALLS.len()];
        let flags: &[&str] = if round % 2 == 0 { &[] } else { &["--workspace", "."] };
        site.run_in(wall, flags, "exit 7").exits(7).says_nothing();
        assert!(site.monitors().is_empty(), "round {round}");
    }
    site.is_clean();
}

#[test]
fn eight_guests_at_once_leave_the_host_as_it_was() {
    let site = Site::new();
    std::thread::scope(|scope| {
        for round in 0..PARALLEL {
            let site = &site;
            scope.spawn(move || {
                let script = format!("echo {round}; cat /proc/sys/kernel/random/boot_id");
                let flags = ["--memory", "128M", "--timeout", "100s"];
                let run = site.run_in(WALLS[round % WALLS.len()], &flags, &script);
                assert!(run.exits(0).out().starts_with(&format!("{round}\n")), "{run:?}");
            });
        }
    });
    site.is_clean();
}

#[test]
fn a_killed_run_takes_its_guest_along() {
    let site = Site::new();
    let mut child = site.start(&[], "sleep 600");
    let namespaces = site.ground.witness.namespaces();
    child.kill().expect("our child");
    child.wait().expect("our child");
    let killed = Instant::now();
    site.sees_monitors_end();
    assert!(killed.elapsed() < SOON, "{:?}", killed.elapsed());
    assert_eq!(site.ground.gc(), 1);
    site.is_clean_of(&namespaces);
}

#[test]
fn a_run_killed_while_its_guest_boots_takes_it_along() {
    let site = Site::new();
    let mut dice = Dice::new();
    for _ in 0..3 {
        let line = crate::site::run_line("vm", &[], &["sleep", "600"]);
        let mut child = site.command(line).spawn().expect("ringwall can be started");
        site.monitor();
        sleep(dice.moment(Duration::from_millis(800)));
        let namespaces = site.ground.witness.namespaces();
        child.kill().expect("our child");
        child.wait().expect("our child");
        let killed = Instant::now();
        site.sees_monitors_end();
        assert!(killed.elapsed() < SOON, "{:?}", killed.elapsed());
        site.ground.gc();
        site.is_clean_of(&namespaces);
    }
}

#[test]
fn a_living_guest_goes_with_its_keeper() {
    let site = Site::new();
    let living = site.create("vm/container", &[]);
    let namespaces = site.ground.witness.namespaces();
    let keeper = site.ground.world.sandboxes()[0]["owner_pid"].as_i64().expect("a number");
    let keeper = i32::try_from(keeper).expect("a process");
    ringwall_testkit::ground::send(keeper, rustix::process::Signal::KILL);
    site.sees_monitors_end();
    site.ground.gc();
    living.exec("true").exits(125);
    site.is_clean_of(&namespaces);
}
