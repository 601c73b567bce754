//! Sandboxes that the daemon keeps ready.

use serde_json::{Value, json};

use crate::sandboxes::{create, sh};
use crate::support::{Client, Daemon, eventually};

fn figure(client: &mut Client, name: &str) -> u64 {
    let text = client.get("/metrics").is(200).text();
    let line = text.lines().find_map(|line| line.strip_prefix(&format!("{name} ")));
    line.and_then(|value| value.parse().ok()).unwrap_or_else(|| panic!("{name}: {text}"))
}

fn until_ready(client: &mut Client, count: u64) {
    eventually("sandboxes are ready", || {
        (figure(client, "ringwall_warm_ready") == count).then_some(())
    });
}

fn ready(listed: &[Value]) -> Vec<&Value> {
    listed.iter().filter(|record| record["ready"] == true).collect()
}

#[test]
fn sandboxes_are_ready_are_given_away_once_and_end_with_the_daemon() {
    let mut daemon = Daemon::start_with(&["--warm", "process=2"]);
    let mut client = daemon.client();
    until_ready(&mut client, 2);
    // Nobody's: nobody is shown them, and nobody can use them.
    assert_eq!(client.get("/v1/sandboxes").is(200).json()["items"], json!([]));
    let listed = daemon.world.sandboxes();
    let one = ready(&listed)[0]["id"].as_str().expect("an id").to_owned();
    daemon.world.ringwall(["exec", &one, "true"]).exits(126);
    let first = create(&mut client);
    assert!(ready(&listed).iter().any(|record| record["id"] == first), "{first} is another");
    assert_eq!(figure(&mut client, "ringwall_warm_taken"), 1);
    let exec = |client: &mut Client, id: &str, script: &str| -> Value {
        client.post(&format!("/v1/sandboxes/{id}/exec"), &sh(script)).is(200).json()
    };
    assert_eq!(exec(&mut client, &first, "touch /tmp/mark")["exit_code"], 0);
    // The command line sees the same sandbox, as somebody's.
    daemon.world.ringwall(["exec", &first, "test", "-e", "/tmp/mark"]).exits(0);
    until_ready(&mut client, 2);
    client.delete(&format!("/v1/sandboxes/{first}")).is(204);
    for _ in 0..3 {
        let next = create(&mut client);
        assert_ne!(next, first);
        assert_eq!(exec(&mut client, &next, "test ! -e /tmp/mark")["exit_code"], 0);
        client.delete(&format!("/v1/sandboxes/{next}")).is(204);
        until_ready(&mut client, 2);
    }
    // Asked for in other words, it is another sandbox.
    let taken = figure(&mut client, "ringwall_warm_taken");
    let other = json!({ "wall": "process", "limits": { "pids": 17 } });
    let other = client.post("/v1/sandboxes", &other).is(201).field("id");
    assert_eq!(figure(&mut client, "ringwall_warm_taken"), taken);
    daemon.kill();
    eventually("those that were ready end", || {
        let listed = daemon.world.sandboxes();
        (ready(&listed).is_empty()).then_some(())
    });
    // What is somebody's lives on, and the next daemon has it.
    daemon.start_again();
    let mut client = daemon.client();
    until_ready(&mut client, 2);
    assert_eq!(exec(&mut client, &other, "true")["exit_code"], 0);
    client.delete(&format!("/v1/sandboxes/{other}")).is(204);
    assert_eq!(daemon.end(), Some(0));
    eventually("nothing is left", || daemon.world.sandboxes().is_empty().then_some(()));
}

#[test]
fn nothing_is_kept_ready_where_memory_is_wanted() {
    let daemon = Daemon::start_with(&["--warm", "process=4", "--memory", "1G"]);
    let mut client = daemon.client();
    // Each has the usual limit of 512 MiB.
    until_ready(&mut client, 2);
    let admitted = figure(&mut client, "ringwall_memory_admitted_bytes");
    assert!(admitted <= 1 << 30, "{admitted}");
}

#[test]
fn a_network_that_is_asked_for_is_there() {
    let daemon = Daemon::start();
    let mut client = daemon.client();
    let with = |rules: Value| json!({ "wall": "process", "network": { "rules": rules } });
    let asked = with(json!({ "allow": [{ "host": "api.example.com" }] }));
    let made = client.post("/v1/sandboxes", &asked).is(201).field("id");
    let exec = format!("/v1/sandboxes/{made}/exec");
    let told =
        client.post(&exec, &sh("echo $https_proxy; curl -sS https://evil.example.net/ 2>&1"));
    let said = told.is(200).json()["stdout"].as_str().expect("text").to_owned();
    assert!(said.contains("127.0.0.1:3128") && said.contains("403"), "{said}");
    client.delete(&format!("/v1/sandboxes/{made}")).is(204);
    let wrong = with(json!({ "allow": "all" }));
    client.post("/v1/sandboxes", &wrong).is_problem(400, "bad-request");
    // A grant that names no endpoint, and a policy that gives none: there is none.
    let daemon = Daemon::for_tenants(&[]);
    let token = daemon.grant("acme", &json!({}));
    let mut client = daemon.holder(&token);
    let asked = json!({ "kind": "files", "network": { "rules": { "presets": ["open"] } } });
    client.post("/v1/sandboxes", &asked).is_problem(403, "denied-by-policy");
}
