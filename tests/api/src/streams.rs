//! Calls and events that are followed as they happen.

use base64::Engine as _;
use serde_json::Value;

use crate::sandboxes::{create, sh};
use crate::support::{Daemon, eventually};

fn text(event: &(String, String, Value)) -> String {
    let encoded = event.2["base64"].as_str().expect("bytes");
    let bytes = base64::engine::general_purpose::STANDARD.decode(encoded).expect("base64");
    String::from_utf8(bytes).expect("text")
}

#[test]
fn a_call_is_followed_left_and_followed_on() {
    let daemon = Daemon::start();
    let mut client = daemon.client();
    let id = create(&mut client);
    let script = sh("echo one; while [ ! -e /tmp/go ]; do sleep 0.05; done; echo two >&2; exit 4");
    let call = client.post(&format!("/v1/sandboxes/{id}/calls"), &script).is(202).field("id");
    let path = format!("/v1/calls/{call}/events");
    let first = daemon.client().follow(&path, None, |event| event.1 == "stdout");
    assert_eq!(text(&first[0]), "one\n");
    client.post(&format!("/v1/sandboxes/{id}/exec"), &sh("touch /tmp/go")).is(200);
    let last = first[0].0.clone();
    let rest = daemon.client().follow(&path, Some(&last), |event| event.1 == "ended");
    let kinds: Vec<&str> = rest.iter().map(|event| event.1.as_str()).collect();
    assert_eq!(kinds, ["stderr", "ended"]);
    assert_eq!(text(&rest[0]), "two\n");
    assert_eq!(rest[1].2["exit_code"], 4);
    // All of it once more, though it is over.
    let all = daemon.client().follow(&path, None, |event| event.1 == "ended");
    assert_eq!(all.len(), 3);
    let stored = client.get(&format!("/v1/calls/{call}")).is(200).json();
    assert_eq!((&stored["state"], &stored["result"]["exit_code"]), (&"ended".into(), &4.into()));
    let wrong = [("last-event-id", "x")];
    client.send("GET", &path, &wrong, b"").is_problem(400, "bad-request");
}

#[test]
fn a_call_can_be_killed() {
    let daemon = Daemon::start();
    let mut client = daemon.client();
    let id = create(&mut client);
    let call = client.post(&format!("/v1/sandboxes/{id}/calls"), &sh("sleep 1000"));
    let call = call.is(202).field("id");
    client.delete(&format!("/v1/calls/{call}")).is(204);
    eventually("its end", || {
        let stored = client.get(&format!("/v1/calls/{call}")).is(200).json();
        (stored["state"] == "ended").then(|| assert_eq!(stored["result"]["exit_code"], 137))
    });
    client.delete(&format!("/v1/calls/{call}")).is(204);
}

#[test]
fn events_are_followed_from_where_one_was() {
    let daemon = Daemon::start();
    let mut client = daemon.client();
    let id = create(&mut client);
    client.post(&format!("/v1/sandboxes/{id}/exec"), &sh("true")).is(200);
    client.delete(&format!("/v1/sandboxes/{id}")).is(204);
    let ended = |event: &(String, String, Value)| event.1 == "sandbox.ended";
    let all = daemon.client().follow("/v1/events", Some("0"), ended);
    let kinds: Vec<&str> = all.iter().map(|event| event.1.as_str()).collect();
    assert_eq!(kinds, ["sandbox.created", "call.started", "call.ended", "sandbox.ended"]);
    assert!(all.iter().all(|event| event.2["sandbox"] == id.as_str()));
    let rest = daemon.client().follow("/v1/events", Some(&all[1].0), ended);
    assert_eq!(rest.len(), 2);
}
