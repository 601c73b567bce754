//! Events as they are written and read.

use std::collections::BTreeSet;

use super::*;

#[test]
fn every_kind_is_written_and_read_and_named_as_it_is_written() {
    let mut kinds = BTreeSet::new();
    for event in samples::one_of_each() {
        let json = serde_json::to_value(&event).unwrap();
        assert_eq!(json["kind"], event.kind());
        assert_eq!(serde_json::from_value::<Event>(json).unwrap(), event);
        kinds.insert(event.kind());
    }
    // A new kind needs a sample.
    kinds.insert(Event::Unknown.kind());
    assert_eq!(kinds, Event::KINDS.into_iter().collect());
}

#[test]
fn an_event_of_a_later_version_is_read_as_unknown() {
    let event: Event = serde_json::from_str(r#"{"kind":"moon-landed","crew":[1,2]}"#).unwrap();
    assert_eq!(event, Event::Unknown);
}

#[test]
fn ids_that_are_not_known_are_not_written() {
    let json = serde_json::to_string(&Ids::default().task("t").grant("g")).unwrap();
    assert_eq!(json, r#"{"task":"t","grant":"g"}"#);
    assert_eq!(serde_json::from_str::<Ids>("{}").unwrap(), Ids::default());
}
