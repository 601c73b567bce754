//! Wardens that are lost, and what that costs.

use std::time::Duration;

use ringwall_spec::ToolLimits;
use rustix::process::{Pid, Signal, kill_process};

use super::*;

fn kill(pid: u32) {
    let pid = Pid::from_raw(i32::try_from(pid).unwrap()).unwrap();
    kill_process(pid, Signal::KILL).unwrap();
}

/// Waits until something is so; what would never be so ends the test run.
fn until(mut so: impl FnMut() -> bool) {
    while !so() {
        std::thread::sleep(Duration::from_millis(5));
    }
}

fn patient(call: ToolCall) -> ToolCall {
    let limits = ToolLimits { time: Duration::from_secs(60), ..ToolLimits::default() };
    ToolCall { limits, ..call }
}

#[test]
fn a_call_whose_warden_is_killed_says_so_and_the_next_one_works() {
    let world = World::new();
    let sleeping = patient(world.command(&guests::sleep(30_000)));
    // Loaded already: a warden that is lost before it runs anything costs nothing.
    world.host.probe(&sleeping.digest, false).unwrap();
    std::thread::scope(|scope| {
        let lost = scope.spawn(|| world.host.call(&sleeping));
        until(|| world.host.calls_under_way() == 1);
        world.host.wardens().into_iter().for_each(kill);
        let lost = lost.join().unwrap();
        assert!(matches!(lost, Err(ToolError::WardenLost)), "{lost:?}");
    });
    world.still_serves();
    assert_eq!(world.host.totals().wardens_lost, 1);
}

#[test]
fn a_killed_warden_costs_no_result_of_another() {
    let world = World::new();
    let sleeping = patient(world.command(&guests::sleep(700)));
    let calls = 12;
    let results = std::thread::scope(|scope| {
        let running: Vec<_> =
            (0..calls).map(|_| scope.spawn(|| world.host.call(&sleeping))).collect();
        until(|| world.host.calls_under_way() == calls);
        kill(world.host.wardens()[0]);
        running.into_iter().map(|call| call.join().unwrap()).collect::<Vec<_>>()
    });
    let lost = results.iter().filter(|result| matches!(result, Err(ToolError::WardenLost))).count();
    let slept = results.iter().flatten().filter(|outcome| outcome.output == b"awake").count();
    // At most one call was alone in the warden that was killed; the others were run again.
    assert!(lost <= 1 && slept + lost == calls, "{lost} lost, {slept} slept");
    assert_eq!(world.host.totals().wardens_lost, 1);
}

#[test]
fn many_calls_share_few_wardens_and_none_waits_for_another() {
    let world = World::new();
    let sleeping = patient(world.command(&guests::sleep(200)));
    std::thread::scope(|scope| {
        let running: Vec<_> =
            (0..100).map(|_| scope.spawn(|| world.host.call(&sleeping))).collect();
        for call in running {
            assert_eq!(call.join().unwrap().unwrap().output, b"awake");
        }
    });
    let cpus = std::thread::available_parallelism().unwrap().get() as u64;
    assert!(world.host.totals().wardens_started <= 2 * cpus);
    assert_eq!(world.host.totals().calls, 100);
}

#[test]
fn a_call_that_computes_does_not_stop_one_that_shares_its_warden() {
    let world = World::new();
    let limits =
        ToolLimits { time: Duration::from_secs(3), fuel: u64::MAX, ..ToolLimits::default() };
    let busy = ToolCall { limits, ..world.command(guests::INFINITE_LOOP) };
    let wardens = 2 * std::thread::available_parallelism().unwrap().get();
    let hello = world.command(guests::HELLO);
    std::thread::scope(|scope| {
        let running: Vec<_> =
            (0..wardens).map(|_| scope.spawn(|| world.host.call(&busy))).collect();
        until(|| world.host.calls_under_way() == wardens);
        // Every warden computes; this call has to share one, and ends long before the others.
        assert_eq!(world.call(&hello).output, b"hello\n");
        assert_eq!(world.host.calls_under_way(), wardens);
        for call in running {
            assert_eq!(call.join().unwrap().unwrap().status, ToolStatus::Timeout);
        }
    });
    assert_eq!(world.host.totals().wardens_lost, 0);
}

#[test]
fn wardens_can_be_kept_ready_and_are_replaced() {
    let world = World::new();
    world.host.keep_ready(1);
    until(|| world.host.wardens().len() == 1);
    let first = world.host.wardens();
    world.still_serves();
    assert_eq!(world.host.wardens(), first);
    kill(first[0]);
    // The first call finds out; from then on another one is ready.
    let call = world.command(guests::HELLO);
    until(|| world.host.call(&call).is_ok());
    assert_ne!(world.host.wardens(), first);
}

#[test]
fn nothing_is_left_of_a_host_that_has_ended() {
    let world = World::new();
    world.still_serves();
    let (wardens, state) = (world.host.wardens(), world.state());
    drop(world.host);
    for pid in wardens {
        // A dead process may wait for a moment to be taken note of.
        let stat = || std::fs::read_to_string(format!("/proc/{pid}/stat"));
        assert!(stat().is_err() || stat().is_ok_and(|stat| stat.contains(") Z ")));
    }
    let entries = std::fs::read_dir(state.join("sandboxes")).unwrap();
    let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let records: Vec<String> = names.filter(|name| !name.starts_with('.')).collect();
    assert_eq!(records, Vec::<String>::new());
}

#[test]
fn what_calls_used_adds_up() {
    let world = World::new();
    let call = world.command(guests::HELLO);
    let (first, second) = (world.call(&call).meter, world.call(&call).meter);
    assert!(first.fuel > 0);
    assert_eq!(first.peak_memory_bytes, 65536);
    assert!(first.host_calls > 0);
    assert_eq!((first.bytes_in, first.bytes_out), (0, 6));
    let totals = world.host.totals();
    assert_eq!((totals.calls, totals.failures), (2, 0));
    assert_eq!(totals.fuel, first.fuel + second.fuel);
    assert_eq!(totals.bytes_out, 12);
}

#[test]
fn a_call_under_way_takes_little_memory() {
    let world = World::new();
    let sleeping = patient(world.command(&guests::sleep(600)));
    let calls = 60;
    let all_at_once = || {
        std::thread::scope(|scope| {
            for _ in 0..calls {
                scope.spawn(|| world.call(&sleeping));
            }
            until(|| world.host.calls_under_way() == calls);
            std::thread::sleep(Duration::from_millis(200));
            world.resident_bytes()
        })
    };
    // The first time raises wardens and maps the tool.
    all_at_once();
    let idle = world.resident_bytes();
    let each = all_at_once().saturating_sub(idle) / calls;
    assert!(each <= 100 << 10, "{each} bytes for each call");
    let wardens = world.host.wardens().len();
    assert!(idle / wardens <= 16 << 20, "{idle} bytes for {wardens} idle wardens");
}
