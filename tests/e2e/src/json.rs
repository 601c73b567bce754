//! `-o json`: one document for programs.

use crate::support::World;

#[test]
fn one_document_carries_outcome_evidence_and_output() {
    let world = World::new();
    let run = world.sh(&["-o", "json"], r"echo out; printf 'err\377' >&2; exit 3");
    let document = run.exits(3).says_nothing().json();
    assert_eq!(document["exit_code"], 3);
    assert_eq!(document["ending"]["kind"], "exited");
    assert_eq!(document["ending"]["code"], 3);
    assert_eq!(document["wall"], "process");
    assert_eq!(document["stdout"], "out\n");
    assert_eq!(document["stderr"], "err\u{fffd}");
    assert_eq!(document["output_truncated"], false);
    assert_eq!(document["id"].as_str().unwrap().len(), 12);
}

#[test]
fn the_evidence_names_every_layer_and_what_was_seen() {
    let world = World::new();
    let run = world.ringwall(["run", "-o", "json", "--", "true"]);
    let document = run.exits(0).json();
    let ring = &document["evidence"][0];
    assert_eq!(ring["ring"], "process");
    assert!(!ring["checks"].as_array().unwrap().is_empty());
    let facts = &ring["facts"];
    assert_eq!(facts["pid"], 1);
    assert_eq!(facts["no_new_privs"], true);
    assert_eq!(facts["seccomp"]["mode"], 2);
    assert_eq!(facts["capabilities"]["effective"], 0);
    for line in facts["uid_map"].as_array().unwrap() {
        assert_ne!(line["outside"], 0, "a user of the ring is the host's root: {line}");
    }
}

#[test]
fn evidence_can_be_read_by_people_too() {
    let world = World::new();
    let run = world.ringwall(["run", "--evidence", "--", "echo", "hello"]);
    run.exits(0).prints("hello\n").says(&["RING", "LAYER", "seccomp", "LIMIT", "memory", "512M"]);
    assert!(!run.err().contains('\x1b'), "colour in a pipe\n{run:?}");
}

#[test]
fn errors_leave_standard_output_empty() {
    let world = World::new();
    world.ringwall(["run", "-o", "json", "--memory", "0", "--", "true"]).is_refused();
}

#[test]
fn lists_are_json_too() {
    let world = World::new();
    assert_eq!(world.ringwall(["ps", "-o", "json"]).exits(0).json(), serde_json::json!([]));
    assert!(world.ringwall(["gc", "-o", "json"]).exits(0).json().is_object());
    assert!(world.ringwall(["image", "ls", "-o", "json"]).exits(0).json().is_array());
    let doctor = world.ringwall(["doctor", "-o", "json"]);
    assert!(doctor.json().is_object(), "{doctor:?}");
}
