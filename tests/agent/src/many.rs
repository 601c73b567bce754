//! Many agents at once: fair, bounded, and with whole journals whatever happens to them.

use std::io::Read;
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::support::{Asked, Model, Place, Reply, call, say};

/// How many there are; a machine that has time can have more.
fn how_many() -> usize {
    std::env::var("RINGWALL_MANY_AGENTS").ok().and_then(|text| text.parse().ok()).unwrap_or(6)
}

const STEPS: usize = 6;
/// Of the supervisor; its sandbox and brain have limits of their own.
const MOST_RESIDENT_KIB: u64 = 200 << 10;

fn busy(asked: &Asked) -> Reply {
    match asked.turns {
        turn if turn < STEPS => {
            call("exec", json!({"command": format!("echo {turn} >> log; sleep 0.05")}))
        }
        _ => say("done"),
    }
}

fn resident_kib(child: &Child) -> u64 {
    let status =
        std::fs::read_to_string(format!("/proc/{}/status", child.id())).unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    line.and_then(|line| line.trim().trim_end_matches(" kB").parse().ok()).unwrap_or(0)
}

#[test]
fn many_at_once_all_come_to_their_end() {
    let model = Model::new(busy);
    let places: Vec<Place> = (0..how_many()).map(|_| Place::new()).collect();
    let begun = Instant::now();
    let children: Vec<Child> = places
        .iter()
        .map(|place| {
            let mut command = place.command(place.run_words(&model, &["--apply"]));
            command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().expect("it starts")
        })
        .collect();
    std::thread::sleep(Duration::from_millis(500));
    let most = children.iter().map(resident_kib).max().unwrap_or(0);
    assert!(most < MOST_RESIDENT_KIB, "an agent has {most} KiB");
    // Each is waited for by itself, so that it is known when it ended.
    let waiting = children.into_iter().map(|mut child| {
        std::thread::spawn(move || {
            let mut printed = String::new();
            child.stdout.take().expect("a pipe").read_to_string(&mut printed).expect("text");
            assert!(child.wait().expect("it ends").success(), "{printed}");
            begun.elapsed()
        })
    });
    let waiting: Vec<_> = waiting.collect();
    let mut ends: Vec<Duration> =
        waiting.into_iter().map(|one| one.join().expect("it worked")).collect();
    ends.sort_unstable();
    let expected: String = (0..STEPS).map(|turn| format!("{turn}\n")).collect();
    for place in &places {
        assert_eq!(place.read("log"), expected);
    }
    eprintln!(
        "{} agents of {STEPS} steps: the first done after {:?}, the middle one {:?}, the last {:?}; \
         the largest supervisor has {most} KiB",
        places.len(),
        ends[0],
        ends[ends.len() / 2],
        ends[ends.len() - 1]
    );
}

#[test]
fn killed_all_at_once_they_have_lost_no_entry() {
    let model = Model::new(busy);
    let places: Vec<Place> = (0..how_many()).map(|_| Place::new()).collect();
    let mut children: Vec<Child> = places
        .iter()
        .map(|place| {
            let mut command = place.command(place.run_words(&model, &[]));
            command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().expect("it starts")
        })
        .collect();
    std::thread::sleep(Duration::from_millis(1500));
    for child in &mut children {
        let _ = child.kill();
    }
    let (mut compared, mut unfinished) = (0, None);
    for (child, place) in children.iter_mut().zip(&places) {
        let mut printed = String::new();
        child.stdout.take().expect("a pipe").read_to_string(&mut printed).expect("text");
        child.wait().expect("it ends");
        let shown: Vec<Value> =
            printed.lines().filter_map(|line| serde_json::from_str(line).ok()).collect();
        let Some(id) = shown.first().and_then(|line| line["agent"].as_str()) else { continue };
        // What was shown had been written down.
        let journal = place.ringwall(["agent", "show", id, "-o", "json"]).exits(0);
        let journal: Value = serde_json::from_str(&journal.stdout).expect("JSON");
        let written = journal["journal"].as_array().expect("lines").len();
        let told = shown.iter().filter(|line| line["kind"] != "ending").count();
        assert!(written >= told, "{written} lines are there and {told} were shown");
        compared += 1;
        let mut lines = journal["journal"].as_array().expect("lines").iter();
        if !lines.any(|line| line["kind"] == "finished") {
            unfinished = unfinished.or(Some((id.to_owned(), place)));
        }
    }
    assert!(compared > 0, "none had begun");
    // One goes on from what it had, to its end; what was under way may be missing, nothing else.
    if let Some((id, place)) = unfinished {
        place.ringwall(["agent", "resume", &id, "-o", "jsonl", "--apply"]).exits(0);
        let written = place.read("log");
        assert!(written.lines().count() >= STEPS - 1, "{written:?}");
    }
}
