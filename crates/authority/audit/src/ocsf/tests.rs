//! Exported events beside the parts of the OCSF schema that they use.

use jsonschema::Validator;

use super::*;
use crate::event::samples::{ids, one_of_each};
use crate::event::{AdmissionDenied, CallEnded, CallStarted, Ids};

fn validator() -> Validator {
    let schema: Value = serde_json::from_str(include_str!("schema-1.7.json")).unwrap();
    jsonschema::validator_for(&schema).unwrap()
}

fn stored(event: Event, ids: Ids) -> Stored {
    Stored { seq: 7, time: 1_763_231_231_123, ids, event, hash: [3; 32], line: String::new() }
}

/// Every kind, with and without ids, and calls of every kind.
fn all() -> Vec<Stored> {
    let calls = [
        CallKind::Exec,
        CallKind::Tool,
        CallKind::FileRead,
        CallKind::FileWrite,
        CallKind::FileDelete,
    ];
    let started = calls.map(|call| CallStarted { call, ..CallStarted::default() });
    let ended = calls.map(|call| CallEnded { call, what: "/a/".into(), ..CallEnded::default() });
    let events = one_of_each()
        .into_iter()
        .chain(started.map(Event::CallStarted))
        .chain(ended.map(Event::CallEnded))
        .chain([Event::Unknown]);
    let with = |event: Event| [stored(event.clone(), ids()), stored(event, Ids::default())];
    events.flat_map(with).collect()
}

#[test]
fn every_kind_of_record_is_a_valid_event() {
    let validator = validator();
    for record in all() {
        let event = event(&record, "host.example");
        let errors: Vec<String> = validator
            .iter_errors(&event)
            .map(|error| format!("{}: {error}", error.instance_path()))
            .collect();
        assert!(errors.is_empty(), "{}: {errors:#?}\n{event:#}", record.event.kind());
    }
}

#[test]
fn the_schema_refuses_what_is_not_an_event() {
    let validator = validator();
    let good = event(&stored(one_of_each().remove(11), ids()), "host");
    assert!(validator.is_valid(&good));
    for (name, value) in [
        ("class_uid", json!(4242)),
        ("type_uid", json!("400101")),
        ("activity_id", json!(77)),
        ("severity_id", json!(42)),
        ("metadata", json!({})),
        ("dst_endpoint", json!({})),
        ("time", json!("yesterday")),
        ("nonsense", json!(1)),
    ] {
        let mut bad = good.clone();
        bad[name] = value;
        assert!(!validator.is_valid(&bad), "{name}");
    }
    let mut without = good;
    without.as_object_mut().unwrap().remove("severity_id");
    assert!(!validator.is_valid(&without));
}

#[test]
fn a_denial_is_a_finding_and_keeps_all_that_was_recorded() {
    let denied = AdmissionDenied { rule: "floor".into(), ..AdmissionDenied::default() };
    let event = event(&stored(Event::AdmissionDenied(denied), ids()), "host");
    assert_eq!(event["class_uid"], 2004);
    assert_eq!(event["metadata"]["correlation_uid"], "task-1");
    assert_eq!(event["unmapped"]["event"]["rule"], "floor");
    assert_eq!(event["unmapped"]["ids"]["sandbox"], "abcdefghijkl");
}
