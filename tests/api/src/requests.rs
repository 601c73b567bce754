//! What all requests have in common: errors, keys, pages, figures, and who may connect.

use std::os::unix::fs::MetadataExt;

use serde_json::json;

use crate::sandboxes::{create, sh};
use crate::support::Daemon;

#[test]
fn the_socket_is_its_owners_alone_and_there_is_one_daemon() {
    let daemon = Daemon::start();
    let socket = daemon.world.home().join("api.sock");
    let mode = std::fs::metadata(&socket).expect("a socket").mode();
    assert_eq!(mode & 0o777, 0o600);
    let second = daemon.world.ringwall(["serve"]);
    second.exits(125);
    assert!(second.err().contains("another daemon serves"), "{}", second.err());
    daemon.client().get("/v1/health").is(200);
}

#[test]
fn an_address_beyond_loopback_needs_a_certificate() {
    let world = crate::support::World::new();
    let refused = world.ringwall(["serve", "--listen", "0.0.0.0:0"]);
    refused.exits(125);
    assert!(refused.err().contains("is not loopback"), "{}", refused.err());
}

#[test]
fn errors_are_problems_with_codes() {
    let daemon = Daemon::start();
    let mut client = daemon.client();
    client.get("/nowhere").is_problem(404, "no-such-route");
    client.delete("/v1/health").is_problem(405, "method-not-allowed");
    let json_type = [("content-type", "application/json")];
    client.send("POST", "/v1/sandboxes", &json_type, b"{").is_problem(400, "bad-request");
    client.post("/v1/sandboxes", &json!({ "wal": "process" })).is_problem(400, "bad-request");
    client.post("/v1/sandboxes", &json!({ "wall": "moat" })).is_problem(400, "bad-request");
    client.post("/v1/sandboxes", &json!({ "name": "No Name" })).is_problem(400, "bad-request");
    client.get("/v1/sandboxes?limit=0").is_problem(400, "bad-request");
    client.get("/v1/sandboxes/aaaaaaaaaaaa").is_problem(404, "not-found");
    client.get("/v1/calls/aaaaaaaaaaaa").is_problem(404, "not-found");
    client.get("/v1/calls/aaaaaaaaaaaa/events").is_problem(404, "not-found");
    let relative = json!({ "workspace": { "path": "here" } });
    client.post("/v1/sandboxes", &relative).is_problem(400, "bad-request");
    let too_much = json!({ "limits": { "memory_bytes": 1u64 << 43 } });
    client.post("/v1/sandboxes", &too_much).is_problem(422, "refused");
}

#[test]
fn a_request_with_a_key_is_done_once() {
    let daemon = Daemon::start();
    let mut client = daemon.client();
    let asked = json!({ "wall": "process" });
    let first = client.post_once("/v1/sandboxes", "k1", &asked).is(201).field("id");
    let again = client.post_once("/v1/sandboxes", "k1", &asked).is(201).field("id");
    assert_eq!(first, again);
    assert_eq!(daemon.world.sandboxes().len(), 1);
    let other = json!({ "wall": "process", "name": "x" });
    client.post_once("/v1/sandboxes", "k1", &other).is_problem(409, "key-reused");
    let exec = format!("/v1/sandboxes/{first}/exec");
    let count = sh("echo x >> /tmp/count; wc -l < /tmp/count");
    for _ in 0..3 {
        let said = client.post_once(&exec, "k2", &count).is(200).json();
        assert_eq!(said["stdout"].as_str().expect("text").trim(), "1");
    }
    // A refusal that stays is the answer for good.
    let wrong = json!({ "argv": ["no-such-program"] });
    for _ in 0..2 {
        client.post_once(&exec, "k3", &wrong).is_problem(422, "program-not-found");
    }
    client.post_once(&exec, &"k".repeat(129), &wrong).is_problem(400, "bad-request");
}

#[test]
fn a_key_of_another_task_gives_nothing_of_its_answer() {
    let daemon = Daemon::for_tenants(&[]);
    let token = |task: &str| daemon.grant("acme", &json!({ "task": task }));
    let mut run = json!({ "wall": "process", "kind": "files" });
    run["command"] = sh("cat /proc/sys/kernel/random/uuid");
    let answer = |token: &str, key: &str| {
        let answer = daemon.holder(token).post_once("/v1/runs", key, &run);
        let answer = answer.is(200).json();
        (answer["call"].clone(), answer["stdout"].clone())
    };
    let (first, second) = (token("t-1"), token("t-2"));
    let of_first = answer(&first, "k");
    assert_eq!(answer(&first, "k"), of_first, "its own it gets again");
    let of_second = answer(&second, "k");
    assert!(of_second.0 != of_first.0 && of_second.1 != of_first.1, "{of_first:?} {of_second:?}");
    // Nor does another grant of the same task, or a narrowed one.
    let same_task = token("t-1");
    let narrowed = crate::entrances::narrowed(&daemon, &first, &["--for", "5m"]);
    for other in [same_task, narrowed] {
        assert_ne!(answer(&other, "k").0, of_first.0);
    }
    // The answer does not tell that the key is used: another request under it is done.
    run["command"] = sh("echo else");
    let other = daemon.holder(&second).post_once("/v1/runs", "k", &run);
    other.is_problem(409, "key-reused");
    let third = daemon.holder(&token("t-3")).post_once("/v1/runs", "k", &run).is(200).json();
    assert_eq!(third["stdout"], "else\n");
}

#[test]
fn lists_come_in_pages() {
    let daemon = Daemon::start();
    let mut client = daemon.client();
    let id = create(&mut client);
    for _ in 0..5 {
        client.post(&format!("/v1/sandboxes/{id}/exec"), &sh("true")).is(200);
    }
    let (mut seen, mut path) = (Vec::new(), "/v1/calls?limit=2".to_owned());
    loop {
        let page = client.get(&path).is(200).json();
        let items = page["items"].as_array().expect("a list");
        assert!(items.len() <= 2);
        seen.extend(items.iter().map(|item| item["id"].as_str().expect("an id").to_owned()));
        match page["next"].as_u64() {
            Some(next) => path = format!("/v1/calls?limit=2&cursor={next}"),
            None => break,
        }
    }
    let unique: std::collections::BTreeSet<_> = seen.iter().collect();
    assert_eq!((seen.len(), unique.len()), (5, 5));
}

#[test]
fn figures_and_records_tell_what_was_done() {
    let daemon = Daemon::start();
    let mut client = daemon.client();
    let id = create(&mut client);
    client.post(&format!("/v1/sandboxes/{id}/exec"), &sh("false")).is(200);
    let figures = client.get("/metrics").is(200).text();
    let has = |line: &str| assert!(figures.lines().any(|it| it == line), "{line}\n{figures}");
    has("ringwall_calls_total{kind=\"exec\",result=\"failed\"} 1");
    has("ringwall_sandboxes_living 1");
    has(
        "ringwall_requests_total{method=\"POST\",route=\"/v1/sandboxes/{id}/exec\",status=\"200\"} 1",
    );
    let audit = client.get(&format!("/v1/audit?sandbox={id}")).is(200).json();
    let kinds = audit.to_string();
    assert!(kinds.contains("sandbox-placed") && kinds.contains("call-ended"), "{kinds}");
    daemon.world.ringwall(["audit", "verify"]).exits(0);
    for path in ["/v1/images", "/v1/grants", "/v1/approvals", "/v1/policy", "/v1/budgets"] {
        assert!(client.get(path).is(200).json().is_array(), "{path}");
    }
    client.get("/v1/grant").is_problem(404, "not-found");
}

#[test]
fn a_request_with_a_key_is_done_to_its_end_without_its_client() {
    let daemon = Daemon::start();
    let mut client = daemon.client();
    let id = create(&mut client);
    let exec = format!("/v1/sandboxes/{id}/exec");
    let script = sh("sleep 0.5; echo x >> /tmp/count; cat /tmp/count");
    let mut gone = std::os::unix::net::UnixStream::connect(daemon.world.home().join("api.sock"))
        .expect("a connection");
    let body = script.to_string();
    let request = format!(
        "POST {exec} HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\nidempotency-key: k\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    );
    std::io::Write::write_all(&mut gone, request.as_bytes()).expect("a request");
    crate::support::eventually("the job has begun", || {
        let calls = client.get("/v1/calls").is(200).json();
        (!calls["items"].as_array().expect("a list").is_empty()).then_some(())
    });
    drop(gone);
    let said = crate::support::eventually("the answer", || {
        let answer = client.post_once(&exec, "k", &script);
        (answer.status != 409).then(|| answer.is(200).json())
    });
    assert_eq!(said["stdout"], "x\n");
}
