//! Tools through the API.

use std::collections::BTreeSet;

use serde_json::json;

use crate::support::Daemon;
use crate::support::tool::{Does, component, manifest};

fn install(daemon: &Daemon, name: &str, does: &Does<'_>) {
    let path = daemon.world.path(format!("{name}.wasm"));
    std::fs::write(&path, component(&manifest(name), does)).expect("a file");
    daemon.world.ringwall(["tool", "add", path.to_str().expect("a path")]).exits(0);
}

#[test]
fn a_tool_is_listed_looked_at_and_called() {
    let daemon = Daemon::for_tenants(&[]);
    install(&daemon, "yes", &Does::Returns("{\"ok\":true}"));
    install(&daemon, "no", &Does::Fails("broken", "it is broken"));
    let mut client = daemon.client();
    let listed = client.get("/v1/tools").is(200).json();
    assert!(listed.to_string().contains("\"yes\""), "{listed}");
    let told = client.get("/v1/tools/yes").is(200).json();
    assert_eq!(told["manifest"]["name"], "yes");
    let called = client.post("/v1/tools/yes/call", &json!({ "input": { "n": 1 } })).is(200).json();
    assert_eq!(called["output"], json!({ "ok": true }));
    assert!(called["meter"]["fuel"].as_u64().expect("fuel") > 0);
    let failed = client.post("/v1/tools/no/call", &json!({})).is(200).json();
    assert_eq!(failed["error"]["code"], "broken");
    let wrong = json!({ "input": { "n": 0 } });
    client.post("/v1/tools/yes/call", &wrong).is_problem(400, "bad-request");
    client.get("/v1/tools/absent").is_problem(404, "not-found");
    // A grant has to name it, and its budget counts.
    let none = daemon.grant("acme", &json!({}));
    let refused = daemon.holder(&none).post("/v1/tools/yes/call", &json!({}));
    refused.is_problem(403, "not-granted");
    let some = daemon.grant("acme", &json!({ "tools": ["yes"], "budget": { "calls": 1 } }));
    let mut client = daemon.holder(&some);
    client.post("/v1/tools/yes/call", &json!({})).is(200);
    client.post("/v1/tools/yes/call", &json!({})).is_problem(403, "budget-exhausted");
}

#[test]
fn a_grant_lets_no_tool_write_to_the_host() {
    let daemon = Daemon::for_tenants(&[]);
    let mut described = manifest("yes");
    described["wants"] = json!({ "dirs": [{ "path": "/work", "access": "rw", "optional": true }] });
    let file = daemon.world.path("yes.wasm");
    std::fs::write(&file, component(&described, &Does::Returns("{\"ok\":true}"))).expect("a file");
    daemon.world.ringwall(["tool", "add", file.to_str().expect("a path")]).exits(0);
    let project = daemon.world.project().canonicalize().expect("a path");
    let below = project.join("new");
    std::fs::create_dir_all(&below).expect("a directory");
    let rights = json!({ "tools": ["yes"], "read": [&project], "write": [&project] });
    let token = daemon.grant("acme", &rights);
    let call = |path: &std::path::Path, write: bool| {
        let dirs = json!([{ "guest": "/work", "path": path, "write": write }]);
        daemon.holder(&token).post("/v1/tools/yes/call", &json!({ "dirs": dirs }))
    };
    call(&project, false).is(200);
    for path in [&project, &below] {
        let refused = call(path, true);
        let told = refused.is_problem(403, "owner-only").json();
        assert!(told["detail"].as_str().is_some_and(|it| it.contains(".git/hooks")), "{told}");
    }
}

#[test]
fn the_command_line_gives_the_same_with_the_daemon_as_without() {
    let mut daemon = Daemon::for_tenants(&[]);
    install(&daemon, "yes", &Does::Returns("{\"ok\":true}"));
    install(&daemon, "no", &Does::Fails("broken", "it is broken"));
    let call = |daemon: &Daemon, line: &[&str]| {
        let mut command = daemon.world.command([&["tool", "call"], line].concat());
        let told = command.env_remove("RINGWALL_TOOLS").output().expect("it can be started");
        (told.status.code(), told.stdout, told.stderr)
    };
    let lines: [&[&str]; 5] =
        [&["yes"], &["no"], &["yes", "-i", "{\"n\":0}"], &["absent"], &["yes", "--fuel", "1"]];
    let served: Vec<_> = lines.iter().map(|line| call(&daemon, line)).collect();
    let counted = daemon.client().get("/metrics").is(200).text();
    assert!(counted.contains("ringwall_calls_total{kind=\"tool\",result=\"ok\"} 1"), "{counted}");
    let with_evidence = call(&daemon, &["yes", "-o", "json"]);
    daemon.end();
    for (line, served) in lines.iter().zip(served) {
        assert_eq!(served, call(&daemon, line), "{line:?}");
    }
    let keys = |bytes: &[u8]| {
        let document: serde_json::Value = serde_json::from_slice(bytes).expect("JSON");
        // Their order means nothing in JSON.
        document.as_object().expect("an object").keys().cloned().collect::<BTreeSet<_>>()
    };
    assert_eq!(keys(&with_evidence.1), keys(&call(&daemon, &["yes", "-o", "json"]).1));
}
