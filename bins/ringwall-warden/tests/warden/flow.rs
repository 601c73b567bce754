//! Nothing that a program or a slow reader does makes the warden's memory grow.

use std::time::Duration;

use ringwall_wire::{ProcessEvent, StartProcess};

use crate::harness::{RunningWarden, finish, next, request};

/// The window of a stream, a pipe and a few buffers; far less than what is pumped through.
const MEMORY_MAX: u64 = 8 << 20;

fn memory_of(pid: u32) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    let kib: u64 = line.trim().trim_end_matches(" kB").trim().parse().unwrap();
    kib << 10
}

#[test]
fn a_flood_with_a_slow_reader_stays_bounded_and_complete() {
    let warden = RunningWarden::start();
    let before = memory_of(warden.pid());
    let mut job = warden.job(&["/bin/sh", "-c", "head -c 52428800 /dev/zero"]);
    let mut received = 0;
    let mut naps = 0;
    let report = loop {
        match next(&mut job) {
            ProcessEvent::Stdout(bytes) => {
                received += bytes.len();
                // Slow at first, so that the program has to wait for us.
                if naps < 20 {
                    naps += 1;
                    std::thread::sleep(Duration::from_millis(10));
                }
            }
            ProcessEvent::Stderr(bytes) => panic!("{bytes:?}"),
            ProcessEvent::Exited(report) => break report,
        }
    };
    assert_eq!(received, 50 << 20);
    assert_eq!(report.how, ringwall_wire::ExitHow::Code(0));
    let grown = memory_of(warden.pid()) - before;
    assert!(grown < MEMORY_MAX, "grew by {grown} bytes");
}

#[test]
fn a_job_that_nobody_reads_does_not_hold_up_others() {
    let warden = RunningWarden::start();
    let flooding = warden.job(&["yes"]);
    std::thread::sleep(Duration::from_millis(50));
    for _ in 0..20 {
        assert_eq!(finish(warden.job(&["true"])).code(), Some(0));
    }
    assert!(memory_of(warden.pid()) < 16 << 20);
    drop(flooding);
    assert_eq!(finish(warden.job(&["true"])).code(), Some(0));
}

#[test]
fn large_input_goes_through_a_program_and_back() {
    let warden = RunningWarden::start();
    let job = warden.client.start(&StartProcess { stdin: true, ..request(&["cat"]) }).unwrap();
    let input = job.input();
    let data: Vec<u8> = (0..8 << 20).map(|n: u32| (n % 251) as u8).collect();
    let expected = data.clone();
    let writer = std::thread::spawn(move || {
        input.write_all(&data).unwrap();
        input.close();
    });
    let finished = finish(job);
    writer.join().unwrap();
    assert!(finished.stdout == expected, "{} bytes came back", finished.stdout.len());
    assert!(memory_of(warden.pid()) < 16 << 20);
}

#[test]
fn a_large_input_for_a_program_that_is_slow_to_read_stays_bounded() {
    let warden = RunningWarden::start();
    let argv = ["/bin/sh", "-c", "sleep 0.3; wc -c"];
    let job = warden.client.start(&StartProcess { stdin: true, ..request(&argv) }).unwrap();
    let input = job.input();
    let writer = std::thread::spawn(move || {
        input.write_all(&vec![1; 4 << 20]).unwrap();
        input.close();
    });
    assert_eq!(finish(job).text().trim(), "4194304");
    writer.join().unwrap();
    assert!(memory_of(warden.pid()) < 16 << 20);
}

#[test]
fn many_jobs_talk_at_the_same_time() {
    let warden = RunningWarden::start();
    let clients = (0..16).map(|number| {
        let client = warden.client.clone();
        std::thread::spawn(move || {
            for round in 0..10 {
                let script =
                    format!("head -c 100000 /dev/zero; echo {number}-{round} >&2; exit {number}");
                let finished = finish(client.start(&request(&["/bin/sh", "-c", &script])).unwrap());
                assert_eq!(finished.stdout.len(), 100_000);
                assert_eq!(finished.stderr, format!("{number}-{round}\n").into_bytes());
                assert_eq!(finished.code(), Some(number));
            }
        })
    });
    for client in clients.collect::<Vec<_>>() {
        client.join().unwrap();
    }
}

#[test]
fn an_idle_warden_is_small() {
    let warden = RunningWarden::start();
    finish(warden.job(&["true"]));
    let rollup = std::fs::read_to_string(format!("/proc/{}/smaps_rollup", warden.pid()));
    let Ok(rollup) = rollup else {
        // Only root may look into a warden.
        return;
    };
    // Not "private": pages of a freshly built program file count there too.
    let own = rollup.lines().find_map(|line| line.strip_prefix("Anonymous:")).unwrap();
    let kib: u64 = own.trim().trim_end_matches(" kB").trim().parse().unwrap();
    assert!(kib < 1024, "{kib} KiB of its own");
}
