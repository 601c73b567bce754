//! Guests that end or hang by themselves: a typed outcome in bounded time, and nothing left.

use std::process::Child;
use std::time::{Duration, Instant};

use rustix::process::Signal;

use crate::site::{Site, output_of};
use crate::support::{Finished, eventually};
use ringwall_testkit::ground::send;

/// The guest's kernel gives up as soon as memory runs out. Root in the guest may ask for that.
const PANIC: &str = "echo 2 >/proc/sys/vm/panic_on_oom; exec busybox tail /dev/zero";
const REBOOT: &str = "busybox reboot -f; sleep 600";
/// Far more than any of this takes, far less than for ever.
const BOUND: Duration = Duration::from_secs(60);

fn end_of(child: Child) -> Finished {
    Finished::new("the run that was started".into(), output_of(child))
}

fn is_lost(site: &Site, script: &str) {
    let began = Instant::now();
    let flags = ["--memory", "128M", "--timeout", "10m", "-o", "json"];
    let lost = site.run(&flags, script);
    assert_eq!(lost.exits(137).json()["ending"]["kind"], "guest-lost");
    assert!(began.elapsed() < BOUND, "{:?}", began.elapsed());
    site.is_clean();
}

#[test]
fn a_guest_whose_kernel_panics_is_lost() {
    is_lost(&Site::new(), PANIC);
}

#[test]
fn a_guest_that_reboots_is_lost() {
    let site = Site::new();
    is_lost(&site, REBOOT);
    let lost = site.run(&["--memory", "128M", "--timeout", "10m"], REBOOT);
    lost.exits(137).says(&["the microVM ended by itself"]);
}

#[test]
fn a_guest_that_halts_says_no_more_and_ends_by_the_time_limit() {
    let site = Site::new();
    site.run(&["--timeout", "3s"], "busybox halt -f; sleep 600").exits(124);
    site.is_clean();
}

#[test]
fn a_run_whose_monitor_is_killed_is_lost() {
    let site = Site::new();
    let child = site.start(&["--timeout", "10m"], "sleep 600");
    let namespaces = site.ground.witness.namespaces();
    let began = Instant::now();
    send(site.monitor().pid, Signal::KILL);
    end_of(child).exits(137).says(&["the microVM ended by itself"]);
    assert!(began.elapsed() < BOUND, "{:?}", began.elapsed());
    site.is_clean_of(&namespaces);
}

#[test]
fn a_run_that_loses_its_guest_says_that_the_changes_are_lost_with_it() {
    let site = Site::new();
    let began = Instant::now();
    let flags = ["--workspace", ".", "--timeout", "10m"];
    let lost = site.run(&flags, "echo new >file; busybox reboot -f; sleep 600");
    lost.exits(137).says(&["the microVM ended by itself", "they are lost"]);
    assert!(began.elapsed() < BOUND, "{:?}", began.elapsed());
    site.is_clean();
}

#[test]
fn a_guest_that_stands_still_with_changes_ends_by_the_time_limit_all_the_same() {
    let site = Site::new();
    let began = Instant::now();
    let flags = ["--workspace", ".", "--timeout", "4s"];
    let child = site.start(&flags, "echo new >file; sleep 600");
    let namespaces = site.ground.witness.namespaces();
    send(site.monitor().pid, Signal::STOP);
    end_of(child).exits(124).says(&["--timeout", "they are lost"]);
    assert!(began.elapsed() < BOUND, "{:?}", began.elapsed());
    site.is_clean_of(&namespaces);
}

#[test]
fn a_guest_that_stands_still_ends_by_the_time_limit() {
    let site = Site::new();
    let began = Instant::now();
    let child = site.start(&["--timeout", "4s"], "sleep 600");
    let namespaces = site.ground.witness.namespaces();
    send(site.monitor().pid, Signal::STOP);
    end_of(child).exits(124).says(&["4s", "--timeout"]);
    assert!(began.elapsed() < BOUND, "{:?}", began.elapsed());
    site.is_clean_of(&namespaces);
}

#[test]
fn a_guest_whose_processors_are_all_busy_ends_by_the_time_limit() {
    let site = Site::new();
    let began = Instant::now();
    let spin = "for i in 1 2 3 4 5 6 7 8; do (while :; do :; done) & done; wait";
    site.run(&["--cpus", "2", "--timeout", "3s"], spin).exits(124);
    assert!(began.elapsed() < BOUND, "{:?}", began.elapsed());
    site.is_clean();
}

#[test]
fn a_living_guest_that_is_lost_is_finished_and_can_be_removed() {
    let site = Site::new();
    let killed = site.create("vm", &[]);
    let namespaces = site.ground.witness.namespaces();
    send(site.monitor().pid, Signal::KILL);
    is_finished(&site, &killed.id);
    killed.exec("true").exits(125);
    killed.remove();
    site.is_clean_of(&namespaces);

    let rebooted = site.create("vm", &[]);
    let began = Instant::now();
    assert_ne!(rebooted.exec(REBOOT).code, 0);
    is_finished(&site, &rebooted.id);
    assert!(began.elapsed() < BOUND, "{:?}", began.elapsed());
    rebooted.remove();
    site.is_clean();
}

#[track_caller]
fn is_finished(site: &Site, id: &str) {
    eventually("a finished sandbox", || {
        let all = site.ground.world.sandboxes();
        let state = all.iter().find(|record| record["id"] == id).map(|record| &record["state"]);
        state.is_none_or(|state| state == "finished").then_some(())
    });
}

#[test]
fn a_living_guest_that_stands_still_can_be_removed() {
    let site = Site::new();
    let living = site.create("vm", &[]);
    let namespaces = site.ground.witness.namespaces();
    send(site.monitor().pid, Signal::STOP);
    let began = Instant::now();
    let line = ["exec", "--timeout", "2s", &living.id, "--", "true"];
    assert_ne!(site.ringwall(&line).code, 0);
    living.remove();
    assert!(began.elapsed() < BOUND, "{:?}", began.elapsed());
    site.is_clean_of(&namespaces);
}
