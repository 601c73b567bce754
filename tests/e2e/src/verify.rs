//! `ringwall verify`: walls hold, the attacks can work, and a wall that did not hold is not used.

use std::collections::BTreeSet;

use serde_json::Value;

use crate::support::{User, World, is_root};

/// Each finding of a report with its wall.
fn findings(report: &Value) -> Vec<(String, Value)> {
    let walls = report["walls"].as_array().expect("walls");
    let of = |wall: &Value| -> Vec<(String, Value)> {
        let name = wall["wall"].as_str().expect("a name").to_owned();
        let all = wall["findings"].as_array().expect("findings");
        all.iter().map(|finding| (name.clone(), finding.clone())).collect()
    };
    walls.iter().flat_map(of).collect()
}

fn classes(findings: &[(String, Value)], verdict: &str) -> BTreeSet<String> {
    let of = findings.iter().filter(|(_, finding)| finding["verdict"] == verdict);
    of.filter_map(|(_, finding)| Some(finding["class"].as_str()?.to_owned())).collect()
}

#[track_caller]
fn holds(world: &World) {
    world.put_built_in("fetch");
    let verified = world.ringwall(["verify", "--quick", "-o", "json"]);
    let report = verified.exits(0).json();
    // Which wall is being attacked is for terminals.
    assert!(!verified.err().contains("attack"), "{verified:?}");
    let findings = findings(&report);
    let stopped = |(_, finding): &&(String, Value)| finding["verdict"] == "blocked";
    let not_stopped: Vec<_> = findings.iter().filter(|one| !stopped(one)).collect();
    assert!(not_stopped.is_empty(), "{not_stopped:#?}");
    for (wall, least) in [
        ("process", 340),
        ("container", 340),
        ("wasm", 55),
        ("process/wasm", 55),
        ("container/wasm", 55),
    ] {
        let attacks = findings.iter().filter(|(name, _)| name == wall).count();
        assert!(attacks >= least, "{wall}: {attacks}");
    }
    assert_eq!(classes(&findings, "blocked").len(), 12);
    // Each ring as if it were broken: the next one holds.
    let drills = report["drills"].as_array().expect("drills");
    let posts: BTreeSet<&str> = drills.iter().filter_map(|drill| drill["post"].as_str()).collect();
    let all = ["process", "container", "wasm", "process/wasm", "container/wasm"];
    assert_eq!(posts, all.into_iter().collect());
    for drill in drills {
        let findings = drill["findings"].as_array().expect("findings");
        let stopped = findings.iter().filter(|one| one["verdict"] == "blocked").count();
        assert!(findings.len() >= 320 && stopped == findings.len(), "{drill:#}");
    }
    let skipped = report["skipped"].as_array().expect("a list");
    assert!(skipped.iter().all(|wall| !wall["reason"].as_str().unwrap_or_default().is_empty()));
    // The log has it, and the engine lets the walls be used.
    let told = world.ringwall(["audit", "tail", "--kind", "verify-report"]);
    let text = told.exits(0).out();
    assert!(
        text.contains("wall process passed") && text.contains("wall container passed"),
        "{text}"
    );
    world.sh(&[], "true").exits(0);
}

#[test]
fn no_attack_gets_through_the_quick_walls() {
    holds(&World::new());
}

#[test]
fn no_attack_gets_through_the_walls_of_an_ordinary_user() {
    if is_root() {
        holds(&World::of(User::Ordinary));
    }
}

#[test]
fn without_a_wall_attacks_of_every_class_get_through_and_leave_nothing() {
    let world = World::new();
    let control = world.ringwall(["verify", "--control", "-o", "json"]);
    let report = control.exits(1).json();
    let findings = findings(&report);
    assert_eq!(classes(&findings, "breach").len(), 12, "{findings:#?}");
    let through = findings.iter().filter(|(_, finding)| finding["verdict"] == "breach").count();
    assert!(through >= 150, "{through} got through");
    // It says nothing about walls, and tells no secret.
    world.sh(&[], "true").exits(0);
    assert!(!control.out().contains("secret-"), "{}", control.out());
    let state = std::fs::read_dir(world.home()).expect("a home").flatten();
    let left = state.map(|entry| entry.file_name().to_string_lossy().into_owned());
    let left: Vec<_> = left.filter(|name| name.contains("verify")).collect();
    assert!(left.is_empty(), "{left:?}");
}

#[test]
fn a_wall_that_did_not_hold_is_refused_until_it_does_or_somebody_takes_the_risk() {
    let world = World::new();
    let distrust = || {
        std::fs::write(world.home().join("distrusted-walls"), "process\n").expect("written");
    };
    world.sh(&[], "true").exits(0);
    distrust();
    let fix = ["process", "did not hold", "ringwall verify --wall process", "--accept-risk"];
    world.sh(&[], "true").is_refused().says(&fix);
    world.ringwall(["create"]).is_refused().says(&fix);
    // Not without a reason, which stands in the log.
    let accept = ["verify", "--accept-risk", "process"];
    assert_ne!(world.ringwall(accept).code, 0);
    world.ringwall([&accept[..], &["--reason", "a test"]].concat()).exits(0);
    world.sh(&[], "true").exits(0);
    let told = world.ringwall(["audit", "tail", "--kind", "elevation-granted"]);
    assert!(told.exits(0).out().contains("a test"), "{told:?}");
    // A wall that holds again is used again.
    distrust();
    world.ringwall(["verify", "--wall", "process"]).exits(0);
    world.sh(&[], "true").exits(0);
}

#[test]
fn the_adversary_tells_its_seed_and_plays_only_where_native_programs_run() {
    let world = World::new();
    let played = world.ringwall(["verify", "--adversary", "1", "--seed", "7", "-o", "json"]);
    let report = played.says(&["the seed is 7"]).exits(0).json();
    assert_eq!((&report["seed"], &report["rounds"]), (&7.into(), &1.into()), "{report:#}");
    assert!(report["breach"].is_null(), "{report:#}");
    let wasm = ["verify", "--adversary", "1", "--wall", "wasm"];
    world.ringwall(wasm).is_refused().says(&["wasm", "--wall"]);
    assert_ne!(world.ringwall(["verify", "--seed", "7"]).code, 0);
}

#[test]
fn a_report_is_written_for_people_and_for_programs() {
    let world = World::new();
    let file = world.path("report.json");
    let flags = ["verify", "--wall", "process", "-o", "junit", "--report"];
    let junit = world.ringwall([&flags[..], &[file.to_str().expect("text")]].concat());
    let text = junit.exits(0).out();
    assert!(
        text.contains("<testsuite name=\"process\"") && text.contains("failures=\"0\""),
        "{text}"
    );
    assert!(text.contains("<testsuite name=\"drill process\""), "{text}");
    let report: Value =
        serde_json::from_slice(&std::fs::read(&file).expect("a report")).expect("JSON");
    assert_eq!(report["walls"][0]["wall"], "process");
}
