//! Sandboxes that the daemon keeps ready.

use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use ringwall_permit::{
    CallerName, Issued, Payer, Permit, Purpose, SealKey, SealedFor, SystemCaller,
};
use ringwall_spec::{RingKind, SandboxId, SandboxSpec, Wall, validate};
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

/// A permit for a plain process wall, which is not what the daemon keeps ready.
fn permit() -> Permit {
    Permit::issue(Issued {
        spec: validate(SandboxSpec::new(Wall::single(RingKind::Process))).expect("a spec"),
        decided: None,
        caller: CallerName::System(SystemCaller::Test),
        account: Payer::Owner,
        record: None,
        until: None,
    })
}

fn seal(home: &Path, sandbox: &SandboxId, purpose: Purpose) -> Vec<u8> {
    let key = SealKey::open_or_make(home).expect("a key");
    key.seal(&permit(), SealedFor { sandbox, purpose }, &()).expect("a sealed permit")
}

#[test]
fn a_ready_sandbox_is_given_away_by_no_permit_but_its_own() {
    let elsewhere = tempfile::tempdir().expect("a directory");
    let other: SandboxId = "abcdefghijkl".parse().expect("an id");
    type Attack<'a> = &'a dyn Fn(&Path, &SandboxId) -> Vec<u8>;
    let attacks: [(&str, Attack<'_>); 5] = [
        ("changed", &|_, _| b"null".to_vec()),
        ("another home", &|_, id| seal(elsewhere.path(), id, Purpose::Take)),
        ("another sandbox", &|home, _| seal(home, &other, Purpose::Take)),
        ("another sandbox", &|home, id| seal(home, id, Purpose::Raise)),
        ("than the one that was kept ready", &|home, id| seal(home, id, Purpose::Take)),
    ];
    for (why, attack) in attacks {
        let mut daemon = Daemon::start_with(&["--warm", "process=1"]);
        let mut client = daemon.client();
        until_ready(&mut client, 1);
        let listed = daemon.world.sandboxes();
        let id = ready(&listed)[0]["id"].as_str().expect("an id").to_owned();
        let home = daemon.world.home();
        let sealed = attack(&home, &id.parse().expect("an id"));
        let socket = home.join("sandboxes").join(&id).join("control.sock");
        let keeper = ringwall_wire::Client::connect(UnixStream::connect(socket).expect("a keeper"));
        let keeper = keeper.expect("a connection");
        let mut tries = (0..2).map(|_| {
            let taken = keeper.take(sealed.clone(), Duration::from_secs(10));
            taken.expect_err("a permit that is not good").to_string()
        });
        let (first, second) = (tries.next().expect("one"), tries.next().expect("two"));
        assert!(first.contains(why), "{first}");
        assert!(second.contains("somebody's already"), "there is no second try: {second}");
        // It runs nothing, and nobody gets it.
        daemon.world.ringwall(["exec", &id, "true"]).exits(126);
        assert_ne!(create(&mut client), id);
        drop(keeper);
        daemon.end();
    }
}
