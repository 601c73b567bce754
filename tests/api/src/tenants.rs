//! Tenants see nothing of each other, and get what their grants and budgets allow.

use serde_json::{Value, json};

use crate::sandboxes::{files, sh};
use crate::support::{Answer, Client, Daemon};

const OPENAPI: &str = include_str!("../../../docs/openapi.json");

fn operations() -> Vec<(String, String)> {
    let api: Value = serde_json::from_str(OPENAPI).expect("JSON");
    let mut all = Vec::new();
    for (path, item) in api["paths"].as_object().expect("paths") {
        for method in item.as_object().expect("operations").keys() {
            all.push((method.to_uppercase(), path.clone()));
        }
    }
    assert!(all.len() > 25);
    all
}

/// Something for every route: the ids are those of another tenant's things.
fn ask(client: &mut Client, method: &str, path: &str, ids: &[(&str, &str)]) -> Answer {
    let mut path = path.to_owned();
    let kind = if path.contains("/calls/") { "call" } else { "sandbox" };
    for (name, id) in ids {
        if *name == kind {
            path = path.replace("{id}", id);
        }
    }
    let sandbox = ids.iter().find(|(name, _)| *name == "sandbox").expect("a sandbox").1;
    path = path.replace("{name}", "grep");
    if path.ends_with("/files") || path.ends_with("/directory") {
        path.push_str("?path=/tmp");
    } else if path.ends_with("/calls") || path.ends_with("/audit") {
        path.push_str(&format!("?sandbox={sandbox}"));
    }
    let body = if path.ends_with("/exec") || path.contains("/calls") {
        files("echo here")
    } else if path.ends_with("/call") {
        json!({ "sandbox": sandbox })
    } else if path.ends_with("/runs") {
        json!({ "wall": "process", "kind": "files", "command": sh("ls /tmp") })
    } else {
        json!({})
    };
    let json_type = [("content-type", "application/json")];
    let body = if method == "GET" || method == "DELETE" { String::new() } else { body.to_string() };
    client.send(method, &path, &json_type, body.as_bytes())
}

#[test]
fn on_no_route_is_anything_of_another_tenant_seen() {
    let daemon = Daemon::for_tenants(&[]);
    let (acme, other) = (daemon.grant("acme", &json!({})), daemon.grant("other", &json!({})));
    sees_nothing_of(&daemon, (&acme, "acme"), &other);
    // The name is free for other tenants.
    let named = json!({ "wall": "process", "kind": "files", "name": "secret-name" });
    daemon.holder(&other).post("/v1/sandboxes", &named).is(201);
}

#[test]
fn on_no_route_is_anything_of_another_task_seen() {
    let daemon = Daemon::for_tenants(&[]);
    let one = daemon.grant("acme", &json!({ "task": "task-of-one" }));
    let other = daemon.grant("acme", &json!({ "task": "task-of-another" }));
    sees_nothing_of(&daemon, (&one, "task-of-one"), &other);
}

/// `word` is in nothing that the other grant may see.
fn sees_nothing_of(daemon: &Daemon, (acme, word): (&str, &str), other: &str) {
    let mut client = daemon.holder(acme);
    let asked = json!({ "wall": "process", "kind": "files", "name": "secret-name" });
    let sandbox = client.post("/v1/sandboxes", &asked).is(201).field("id");
    let script = files("echo secret-word > /tmp/secret-file; sleep 1000");
    let call = client.post(&format!("/v1/sandboxes/{sandbox}/calls"), &script);
    let call = call.is(202).field("id");
    let ids = [("sandbox", sandbox.as_str()), ("call", call.as_str())];
    let hidden = [word, "secret-name", "secret-word", "secret-file", "sleep 1000"];
    for (method, path) in operations() {
        if path == "/v1/events" {
            // Goes on for ever: it is followed below.
            continue;
        }
        let mut client = daemon.holder(other);
        let answer = ask(&mut client, &method, &path, &ids);
        assert!(answer.status < 500, "{method} {path}: {} {}", answer.status, answer.text());
        if path.contains("{id}") {
            let refused = [403, 404].contains(&answer.status);
            assert!(refused, "{method} {path}: {} {}", answer.status, answer.text());
            // The same words as for something that never was, but for the name that was given.
            let nothing = [("sandbox", "aaaaaaaaaaaa"), ("call", "aaaaaaaaaaaa")];
            let unknown = ask(&mut client, &method, &path, &nothing);
            let told = unknown
                .text()
                .replace("aaaaaaaaaaaa", ids[usize::from(path.contains("/calls/"))].1);
            assert_eq!(answer.text(), told, "{method} {path}");
        }
        let text = answer.text();
        for word in hidden {
            assert!(!text.contains(word), "{method} {path} shows {word}: {text}");
        }
        let mentions = path.contains("{id}") || path.ends_with("/call");
        assert!(mentions || !text.contains(&sandbox), "{method} {path} shows the id: {text}");
    }
    // The events are the other's own.
    let mut client = daemon.holder(other);
    let unnamed = json!({ "wall": "process", "kind": "files" });
    let own = client.post("/v1/sandboxes", &unnamed).is(201).field("id");
    let events = daemon
        .holder(other)
        .follow("/v1/events", Some("0"), |event| event.2["sandbox"] == own.as_str());
    assert!(events.iter().all(|event| event.2["sandbox"] != sandbox.as_str()));
    // Its owner still has it, whole.
    let mut client = daemon.holder(acme);
    let said =
        client.post(&format!("/v1/sandboxes/{sandbox}/exec"), &files("cat /tmp/secret-file"));
    assert_eq!(said.is(200).json()["stdout"], "secret-word\n");
    assert_eq!(client.get(&format!("/v1/calls/{call}")).is(200).json()["state"], "running");
}

#[test]
fn without_a_good_token_nothing_is_served_over_tcp() {
    let daemon = Daemon::for_tenants(&[]);
    let address = daemon.address();
    let ids = [("sandbox", "aaaaaaaaaaaa"), ("call", "aaaaaaaaaaaa")];
    for (method, path) in operations() {
        let answer = ask(&mut Client::tcp(address, None), &method, &path, &ids);
        if path == "/v1/health" {
            answer.is(200);
        } else {
            answer.is_problem(401, "unauthenticated");
        }
    }
    let token = daemon.grant("acme", &json!({}));
    let mut forged = token.clone();
    forged.replace_range(20..24, "AAAA");
    for wrong in [forged.as_str(), "x", ""] {
        Client::tcp(address, Some(wrong)).get("/v1/grant").is_problem(401, "unauthenticated");
    }
    let grant = daemon.holder(&token).get("/v1/grant").is(200).field("id");
    daemon.client().delete(&format!("/v1/grants/{grant}")).is(204);
    daemon.holder(&token).get("/v1/grant").is_problem(401, "unauthenticated");
}

#[test]
fn a_grant_allows_what_it_says_and_no_path_of_the_host_besides() {
    let daemon = Daemon::for_tenants(&[]);
    let project = daemon.world.project();
    let project = project.to_str().expect("a path");
    let asked = |more: &Value| {
        let mut fields = json!({ "wall": "process", "kind": "files", "command": sh("true") });
        for (name, value) in more.as_object().expect("fields") {
            fields[name] = value.clone();
        }
        fields
    };
    let bare = daemon.grant("acme", &json!({}));
    let mut client = daemon.holder(&bare);
    client.post("/v1/runs", &asked(&json!({}))).is(200);
    let with_workspace = asked(&json!({ "workspace": { "path": project } }));
    client.post("/v1/runs", &with_workspace).is_problem(403, "not-granted");
    let shown = asked(&json!({ "read_only": [daemon.world.path("no-tools")] }));
    client.post("/v1/runs", &shown).is_problem(403, "not-granted");
    // Rights come first: whether there is such a tool is not told.
    client.post("/v1/tools/grep/call", &json!({})).is_problem(403, "not-granted");
    let denied = client.get("/v1/audit?kind=admission-denied").is(200).json();
    assert!(denied.to_string().contains("reading"), "{denied}");
    for path in ["/metrics", "/v1/images", "/v1/policy", "/v1/grants"] {
        client.get(path).is_problem(403, "owner-only");
    }
    let reader = daemon.grant("acme", &json!({ "read": [project] }));
    daemon.holder(&reader).post("/v1/runs", &with_workspace).is(200);
    let shared = asked(&json!({ "workspace": { "path": project, "read_write": true } }));
    daemon.holder(&reader).post("/v1/runs", &shared).is_problem(403, "not-granted");
    // Protected paths are in every directory, or could be made there.
    let writer = daemon.grant("acme", &json!({ "read": [project], "write": [project] }));
    let mut client = daemon.holder(&writer);
    for path in ["/v1/runs", "/v1/sandboxes"] {
        let refused = client.post(path, &shared);
        let refused = refused.is_problem(403, "owner-only").json();
        assert!(refused["detail"].to_string().contains("protected paths"), "{refused}");
    }
}

#[test]
fn a_command_of_no_kind_is_untrusted_work_that_the_grant_must_allow() {
    let daemon = Daemon::for_tenants(&[]);
    let file = daemon.world.path("nobody-home/.config/ringwall/ringwall.toml");
    let policy = std::fs::read_to_string(&file).expect("a policy");
    let open = policy
        .replace("untrusted = [\"vm\", \"vm/container\"]", "untrusted = [\"process\"]")
        .replace("fresh = [\"untrusted\"]", "fresh = []");
    assert!(open.contains("untrusted = [\"process\"]") && open.contains("fresh = []"));
    std::fs::write(&file, open).expect("a policy");
    for (kinds, allowed) in [(json!(["files"]), false), (json!(["files", "untrusted"]), true)] {
        let mut client = daemon.holder(&daemon.grant("acme", &json!({ "kinds": kinds })));
        let made = client.post("/v1/sandboxes", &json!({ "wall": "process", "kind": "files" }));
        let id = made.is(201).field("id");
        client.post(&format!("/v1/sandboxes/{id}/exec"), &files("true")).is(200);
        for path in ["exec", "calls"] {
            let answer = client.post(&format!("/v1/sandboxes/{id}/{path}"), &sh("true"));
            match allowed {
                true => assert!(answer.status < 300, "{path}: {}", answer.text()),
                false => drop(answer.is_problem(403, "not-granted")),
            }
        }
    }
}

#[test]
fn budgets_end_calls_by_name() {
    let daemon = Daemon::for_tenants(&[]);
    daemon.tenants_may_spend(&json!({ "every": { "calls": 5 } }));
    let run = |script: &str, timeout: u64| {
        json!({
            "wall": "process", "kind": "files", "limits": { "timeout_ms": timeout },
            "command": sh(script),
        })
    };
    let two = daemon.grant("acme", &json!({ "budget": { "calls": 2 } }));
    let mut client = daemon.holder(&two);
    for _ in 0..2 {
        client.post("/v1/runs", &run("true", 5000)).is(200);
    }
    client.post("/v1/runs", &run("true", 5000)).is_problem(403, "budget-exhausted");
    let budgets = client.get("/v1/budgets").is(200).json();
    assert!(budgets.to_string().contains("\"limit\":2"), "{budgets}");
    // Time: less than was asked for, and it is said why.
    let short = daemon.grant("acme", &json!({ "budget": { "wall_seconds": 1 } }));
    let stopped = daemon.holder(&short).post("/v1/runs", &run("sleep 60", 20_000)).is(200).json();
    assert_eq!(stopped["ending"], "timeout");
    assert_eq!(stopped["stopped_by"], "budget:wall_seconds");
    let over = daemon.holder(&short).post("/v1/runs", &run("true", 1000));
    over.is_problem(403, "budget-exhausted");
    // The tenant's own budget counts over all its grants.
    let more = daemon.grant("acme", &json!({}));
    let mut client = daemon.holder(&more);
    for _ in 0..2 {
        client.post("/v1/runs", &run("true", 5000)).is(200);
    }
    client.post("/v1/runs", &run("true", 5000)).is_problem(403, "budget-exhausted");
    let free = daemon.grant("other", &json!({}));
    daemon.holder(&free).post("/v1/runs", &run("true", 5000)).is(200);
    // The owner sees all tenants, a tenant itself.
    let all = daemon.client().get("/v1/budgets").is(200).json().to_string();
    assert!(all.contains("tenant:acme") && all.contains("tenant:other"), "{all}");
    let own = client.get("/v1/budgets").is(200).json().to_string();
    assert!(own.contains("tenant:acme") && !own.contains("other"), "{own}");
    let figures = daemon.client().get("/metrics").is(200).text();
    assert!(figures.contains("ringwall_budget_refusals_total{part=\"calls\"}"), "{figures}");
}

#[test]
fn tls_is_spoken_where_there_is_a_certificate() {
    let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).expect("one");
    let place = tempfile::tempdir().expect("a directory");
    let (certificate, key) = (place.path().join("cert.pem"), place.path().join("key.pem"));
    std::fs::write(&certificate, made.cert.pem()).expect("a file");
    std::fs::write(&key, made.signing_key.serialize_pem()).expect("a file");
    let text = |path: &std::path::Path| path.to_str().expect("text").to_owned();
    let (certificate, key) = (text(&certificate), text(&key));
    let daemon = Daemon::for_tenants(&["--tls-certificate", &certificate, "--tls-key", &key]);
    let token = daemon.grant("acme", &json!({}));
    let mut client = Client::tls(daemon.address(), made.cert.der(), &token);
    assert_eq!(client.get("/v1/grant").is(200).field("tenant"), "acme");
    let mut plain = Client::tcp(daemon.address(), Some(&token));
    let refused = plain.try_send("GET", "/v1/grant", &[], b"");
    assert!(refused.is_err());
}
