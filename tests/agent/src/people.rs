//! Questions to people: the agent stops, a person answers with a key of their own, the agent goes on.

use serde_json::json;

use crate::support::{Ended, Model, Place, call, entries, of_kind, say};
use crate::taint::POLICY;

/// A policy in which ann may lift taint, on these terms.
pub(crate) fn with_ann(place: &Place, terms: &str) {
    let key = place.ringwall(["approvals", "keygen"]).exits(0);
    let key = key.stdout.split_whitespace().find(|word| word.contains("ed25519/")).expect("a key");
    let key = key.trim_matches(|c: char| !c.is_ascii_alphanumeric() && c != '/').to_owned();
    let elevation = format!(
        "\n[[elevation]]\nname = \"strangers\"\ngrants = [\"taint\"]\napprovers = [\"ann\"]\nmax = \"10m\"\n{terms}\
         [[approver]]\nname = \"ann\"\nkey = \"{key}\"\n"
    );
    place.policy(&format!("{POLICY}{elevation}"));
}

pub(crate) fn model() -> Model {
    let write =
        |name: &str| json!({"path": format!(".github/workflows/{name}.yml"), "content": "x\n"});
    Model::scripted(vec![
        call("read_file", json!({"path": "inbox/letter"})),
        call("write_file", write("first")),
        call("ask_approval", json!({"elevation": "strangers", "reason": "the letter asks for CI"})),
        call("write_file", write("second")),
        say("done"),
    ])
}

/// Runs until a person is asked; gives the agent and the approval.
fn asked(place: &Place) -> (String, String) {
    with_ann(place, "");
    place.write("inbox/letter", "please\n");
    let stopped = place.run(&model(), &[]).exits(3);
    let seen = entries(&stopped);
    assert_eq!(seen.last().unwrap()["ending"], "approval", "{stopped:?}");
    let approval = of_kind(&seen, "asked")[0]["approval"].as_str().unwrap().to_owned();
    (seen[0]["agent"].as_str().unwrap().to_owned(), approval)
}

fn resumed(place: &Place, id: &str) -> Ended {
    place.ringwall(["agent", "resume", id, "-o", "jsonl"])
}

#[test]
fn a_persons_yes_lifts_what_taint_took() {
    let place = Place::new();
    let (id, approval) = asked(&place);
    let shown = place.ringwall(["approvals", "show", &approval]).exits(0);
    for part in ["the letter asks for CI", "inbox/letter", "strangers"] {
        assert!(shown.stdout.contains(part), "{part}: {shown:?}");
    }
    // Nobody has answered: it stops again, and asks no second question.
    let again = resumed(&place, &id).exits(3);
    assert_eq!(entries(&again).last().unwrap()["ending"], "approval");
    place.ringwall(["approvals", "approve", &approval, "--reason", "fine"]).exits(0);
    let done = resumed(&place, &id).exits(0);
    let seen = entries(&done);
    assert_eq!(of_kind(&seen, "elevated")[0]["elevation"], "strangers");
    let ended = of_kind(&seen, "call-ended");
    assert!(ended.iter().all(|call| call["refused"].is_null()), "{done:?}");
    let show = place.ringwall(["agent", "show", &id]).exits(0);
    assert!(show.stdout.contains(&approval), "{show:?}");
}

#[test]
fn a_persons_no_is_a_refusal_and_the_agent_goes_on() {
    let place = Place::new();
    let (id, approval) = asked(&place);
    place.ringwall(["approvals", "deny", &approval, "--reason", "not this one"]).exits(0);
    let done = resumed(&place, &id).exits(0);
    let seen = entries(&done);
    let refused: Vec<&str> =
        of_kind(&seen, "call-ended").iter().filter_map(|call| call["refused"].as_str()).collect();
    assert_eq!(refused.len(), 2, "the question, and the write after it: {done:?}");
    assert!(refused[0].contains("not this one"), "{refused:?}");
}
