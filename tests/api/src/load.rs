//! Many clients at once: everybody is served or told to come again, and the daemon stays small.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use serde_json::json;

use crate::sandboxes::{create, sh};
use crate::support::Daemon;

fn number(name: &str, usual: usize) -> usize {
    std::env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(usual)
}

fn resident(daemon: &Daemon) -> u64 {
    let text = std::fs::read_to_string(format!("/proc/{}/statm", daemon.pid())).expect("it runs");
    text.split(' ').nth(1).and_then(|pages| pages.parse::<u64>().ok()).expect("pages") * 4096
}

/// With `RINGWALL_LOAD_CLIENTS=200 RINGWALL_LOAD_JOBS=20000` this is the load that the daemon must
/// bear; without, a smaller one of the same shape. It tells what it saw.
#[test]
fn many_clients_get_answers_or_are_told_to_come_again() {
    let (clients, jobs) = (number("RINGWALL_LOAD_CLIENTS", 40), number("RINGWALL_LOAD_JOBS", 800));
    let daemon = Daemon::start_with(&["--jobs", "8"]);
    let sandbox = create(&mut daemon.client());
    let exec = format!("/v1/sandboxes/{sandbox}/exec");
    let run = json!({
        "wall": "process", "limits": { "memory_bytes": 64 << 20 }, "command": sh("true"),
    });
    let (next, refused, peak) = (AtomicUsize::new(0), AtomicUsize::new(0), AtomicUsize::new(0));
    let begun = Instant::now();
    let times: Vec<Duration> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..clients)
            .map(|_| {
                scope.spawn(|| {
                    let mut client = daemon.client();
                    let mut times = Vec::new();
                    loop {
                        let job = next.fetch_add(1, Ordering::SeqCst);
                        if job >= jobs {
                            return times;
                        }
                        let asked = Instant::now();
                        loop {
                            // One in ten behind a wall of its own.
                            let answer = match job % 10 {
                                0 => client.post("/v1/runs", &run),
                                _ => client.post(&exec, &sh("true")),
                            };
                            if answer.status == 429 {
                                assert_eq!(answer.headers["retry-after"], "1");
                                refused.fetch_add(1, Ordering::SeqCst);
                                std::thread::sleep(Duration::from_millis(100));
                                continue;
                            }
                            assert_eq!(answer.is(200).json()["exit_code"], 0, "{}", answer.text());
                            break;
                        }
                        times.push(asked.elapsed());
                        if job % 100 == 0 {
                            let now = usize::try_from(resident(&daemon)).expect("small");
                            peak.fetch_max(now, Ordering::SeqCst);
                        }
                    }
                })
            })
            .collect();
        threads.into_iter().flat_map(|thread| thread.join().expect("a client")).collect()
    });
    assert_eq!(times.len(), jobs);
    let mut times = times;
    times.sort();
    let at = |share: usize| times[(times.len() * share / 100).min(times.len() - 1)];
    let peak = peak.into_inner() >> 20;
    let told = format!(
        "{clients} clients, {jobs} jobs in {:?}: p50 {:?}, p99 {:?}, {} times told to come again, at most {peak} MiB",
        begun.elapsed(),
        at(50),
        at(99),
        refused.into_inner(),
    );
    std::io::Write::write_all(&mut std::io::stderr(), told.as_bytes()).expect("somebody reads");
    assert!(peak < 256, "{told}");
    assert_eq!(daemon.world.sandboxes().len(), 1, "runs left something");
}
