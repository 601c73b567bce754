//! What a manifest must say, and how people hear what is wrong with theirs.

use serde_json::{Value, json};

use super::*;
use crate::testing::{manifest, manifest_with};

fn told(manifest: &Value) -> String {
    Manifest::parse(manifest.to_string().as_bytes()).unwrap_err().to_string()
}

#[test]
fn a_manifest_is_read_and_what_it_leaves_out_is_the_careful_choice() {
    let parsed = Manifest::parse(manifest().to_string().as_bytes()).unwrap();
    assert_eq!((parsed.name.as_str(), parsed.kind), ("count", Kind::Component));
    assert_eq!((parsed.risk, parsed.determinism), (Risk::Untrusted, Determinism::Ambient));
    let again = serde_json::to_vec(&parsed).unwrap();
    assert_eq!(Manifest::parse(&again).unwrap(), parsed);
}

#[test]
fn unknown_keys_are_refused_wherever_they_are() {
    for place in ["/colour", "/wants/files", "/wants/dirs/0/mode", "/limits", "/examples/0/note"] {
        let value = if place == "/limits" { json!({ "memory_mb": 1 }) } else { json!(1) };
        let told = told(&manifest_with(place, value));
        assert!(told.contains("unknown field"), "{place}: {told}");
    }
}

#[test]
fn what_is_wrong_is_named_with_its_place() {
    let wrong = [
        ("/schema", json!(2)),
        ("/name", json!("Count")),
        ("/name", json!("9lives")),
        ("/name", json!("a".repeat(65))),
        ("/name", json!("../count")),
        ("/version", json!("1.0")),
        ("/summary", json!("")),
        ("/summary", json!("two\nlines")),
        ("/summary", json!("orders \u{1b}[2J")),
        ("/limits", json!({ "fuel": 0 })),
        ("/command", json!({ "args": [] })),
        ("/wants/dirs/0/path", json!("work")),
        ("/wants/dirs/0/path", json!("/")),
        ("/wants/dirs/0/path", json!("/data/../etc")),
        ("/wants/dirs/0/path", json!("/data/")),
        ("/wants/dirs/0/path", json!("/proc/self")),
        ("/wants/http", json!(["https://example.com/"])),
        ("/wants/http", json!(["example.com:0"])),
        ("/wants/env", json!(["A=B"])),
        ("/wants/env", json!(["A", "A"])),
    ];
    for (place, value) in wrong {
        let told = told(&manifest_with(place, value.clone()));
        assert!(told.contains(&format!("wrong at {place}")), "{place} {value}: {told}");
    }
}

#[test]
fn directories_that_overlap_are_refused() {
    let dir = |path: &str| json!({ "path": path, "access": "ro" });
    for (one, other) in [("/work", "/work"), ("/data", "/data/src"), ("/data/src", "/data")] {
        let told = told(&manifest_with("/wants/dirs", json!([dir(one), dir(other)])));
        assert!(told.contains("overlap"), "{told}");
    }
    let apart = manifest_with("/wants/dirs", json!([dir("/work"), dir("/workshop")]));
    assert!(Manifest::parse(apart.to_string().as_bytes()).is_ok());
}

#[test]
fn a_program_must_say_how_it_is_called() {
    let told = told(&manifest_with("/kind", json!("command")));
    assert!(told.contains("/command") && told.contains("needs one"), "{told}");
}

#[test]
fn hosts_may_have_a_port_and_a_wildcard() {
    let hosts = json!(["api.example.com", "*.example.com", "localhost:8080"]);
    let manifest = manifest_with("/wants/http", hosts);
    assert!(Manifest::parse(manifest.to_string().as_bytes()).is_ok());
}

#[test]
fn a_flood_is_not_parsed() {
    let flood = vec![b' '; MAX_MANIFEST_BYTES + 1];
    assert!(matches!(Manifest::parse(&flood), Err(ManifestError::TooLarge(_))));
}
