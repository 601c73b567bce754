//! Sandboxes end with their grant, also without a daemon.

use std::fs;

use serde_json::Value;

use crate::granted::Place;
use crate::support::eventually;

/// A sandbox that runs for as long as it may, by the grant in this file.
fn create(place: &Place, token: &str) -> String {
    let line = ["create", "--grant", token, "--wall", "process", "--kind", "files"];
    let line = [&line[..], &["--no-workspace", "--timeout", "9m", "--", "sleep", "500"]].concat();
    place.world.ringwall(line).exits(0).word()
}

fn is_running(place: &Place, id: &str) -> bool {
    let sandboxes = place.world.sandboxes();
    let found = sandboxes.iter().find(|it| it["id"] == id).expect("it is known");
    found["outcome"].is_null()
}

fn records(place: &Place) -> Vec<Value> {
    let log = fs::read_to_string(place.world.home().join("audit/log")).expect("a log");
    log.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect()
}

/// The record of this kind about this sandbox.
fn record(place: &Place, id: &str, kind: &str) -> Value {
    let of_it = |it: &Value| it["ids"]["sandbox"] == id && it["event"]["kind"] == kind;
    let found = records(place).into_iter().find(of_it);
    found.unwrap_or_else(|| panic!("no {kind} of {id}"))
}

#[test]
fn a_sandbox_ends_with_its_grant_where_no_daemon_runs() {
    let place = Place::new(&["files"]);
    let token = place.token.to_str().expect("a path").to_owned();
    let listed = place.world.ringwall(["grant", "ls", "-o", "json"]).exits(0).json();
    let grant = listed[0]["id"].as_str().expect("an id").to_owned();
    // One of a grant that was narrowed from it, one of another grant, and one of the owner.
    let text = fs::read(&token).expect("a token");
    let narrow = ["grant", "narrow", "--for", "30m"];
    let narrowed = place.world.ringwall_with_input(&narrow, &text).exits(0).out();
    let smaller = place.world.path("smaller").display().to_string();
    fs::write(&smaller, narrowed).expect("a file");
    let ends = [create(&place, &token), create(&place, &smaller)];
    place.grant(&["files"]);
    let other = create(&place, &token);
    let line = ["create", "--kind", "files", "--no-workspace", "--", "sleep", "500"];
    let owners = place.world.ringwall(line).exits(0).word();
    place.world.ringwall(["grant", "revoke", &grant]).exits(0);
    for id in &ends {
        eventually("it has ended", || (!is_running(&place, id)).then_some(()));
        let denied = record(&place, id, "admission-denied");
        assert_eq!(denied["event"]["action"], "go on");
        // The permit names the record of the decision.
        let placed = record(&place, id, "sandbox-placed")["seq"].clone();
        let why = denied["event"]["reason"].as_str().expect("words");
        assert!(why.contains("revoked") && why.contains(&format!("record {placed}")), "{denied}");
    }
    assert!(is_running(&place, &other) && is_running(&place, &owners));
    place.world.ringwall(["audit", "verify"]).exits(0);
}
