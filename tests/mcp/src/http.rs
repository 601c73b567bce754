//! `/mcp`: who may speak to it, and what each sees.

use serde_json::{Value, json};

use crate::support::tool::{Does, component, manifest};
use crate::support::{Answer, Client, Daemon};

const BOTH: (&str, &str) = ("accept", "application/json, text/event-stream");
const JSON: (&str, &str) = ("content-type", "application/json");

/// A session over HTTP.
struct Session {
    client: Client,
    id: String,
    last: u64,
}

fn hello() -> Vec<u8> {
    let params = json!({"protocolVersion": "2025-11-25", "capabilities": {},
        "clientInfo": {"name": "test", "version": "1"}});
    json!({"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": params})
        .to_string()
        .into_bytes()
}

impl Session {
    fn begin(mut client: Client) -> Session {
        let answer = client.send("POST", "/mcp", &[BOTH, JSON], &hello());
        answer.is(200);
        let id = answer.headers["mcp-session-id"].clone();
        let mut session = Session { client, id, last: 0 };
        let told = json!({"jsonrpc": "2.0", "method": "notifications/initialized"});
        session.send(&told).is(202);
        session
    }

    fn send(&mut self, message: &Value) -> Answer {
        let id = self.id.clone();
        let headers = [BOTH, JSON, ("mcp-session-id", &id), ("mcp-protocol-version", "2025-11-25")];
        self.client.send("POST", "/mcp", &headers, message.to_string().as_bytes())
    }

    #[track_caller]
    fn ask(&mut self, method: &str, params: Value) -> Value {
        self.last += 1;
        let message =
            json!({"jsonrpc": "2.0", "id": self.last, "method": method, "params": params});
        let answer = self.send(&message);
        answer.is(200);
        let text = answer.text();
        let data = text.lines().filter_map(|line| line.strip_prefix("data:"));
        let mut messages = data.filter_map(|data| serde_json::from_str::<Value>(data.trim()).ok());
        messages.find(|it| it["id"] == self.last).unwrap_or_else(|| panic!("no answer in {text}"))
    }
}

fn install(daemon: &Daemon, name: &str) {
    let path = daemon.world.path(format!("{name}.wasm"));
    let wasm = component(&manifest(name), &Does::Returns("{\"ok\":true}"));
    std::fs::write(&path, wasm).expect("a file");
    daemon.world.ringwall(["tool", "add", path.to_str().expect("a path")]).exits(0);
}

#[test]
fn nobody_speaks_without_a_grant_not_even_the_owner() {
    let daemon = Daemon::for_tenants(&[]);
    let headers = [BOTH, JSON];
    for mut client in [daemon.client(), Client::tcp(daemon.address(), None)] {
        let refused = client.send("POST", "/mcp", &headers, &hello());
        refused.is_problem(401, "unauthenticated");
        assert_eq!(refused.headers["www-authenticate"], "Bearer");
    }
    let forged = daemon.holder("rwg_nonsense").send("POST", "/mcp", &headers, &hello());
    forged.is_problem(401, "unauthenticated");
}

#[test]
fn a_page_in_a_browser_is_refused() {
    let daemon = Daemon::for_tenants(&[]);
    let token = daemon.grant("acme", &json!({}));
    let origin = ("origin", "https://evil.example");
    daemon.holder(&token).send("POST", "/mcp", &[BOTH, JSON, origin], &hello()).is(403);
    Session::begin(daemon.holder(&token));
}

#[test]
fn a_holder_is_offered_and_can_call_what_its_grant_names() {
    let daemon = Daemon::for_tenants(&[]);
    install(&daemon, "yes");
    install(&daemon, "no");
    let token = daemon.grant("acme", &json!({"tools": ["yes"]}));
    let mut session = Session::begin(daemon.holder(&token));
    let tools = session.ask("tools/list", json!({}))["result"]["tools"].clone();
    let names: Vec<&str> =
        tools.as_array().expect("a list").iter().filter_map(|it| it["name"].as_str()).collect();
    assert!(names.contains(&"yes") && !names.contains(&"no"), "{names:?}");
    let called = session.ask("tools/call", json!({"name": "yes", "arguments": {}}));
    assert_eq!(called["result"]["structuredContent"], json!({"ok": true}));
    let refused = session.ask("tools/call", json!({"name": "no", "arguments": {}}));
    assert_eq!(refused["result"]["isError"], true, "{refused}");
    let create =
        json!({"name": "sandbox_create", "arguments": {"kind": "files", "wall": "process"}});
    let made = session.ask("tools/call", create)["result"]["structuredContent"].clone();
    let sandbox = made["sandbox"].as_str().unwrap_or_else(|| panic!("{made}")).to_owned();
    let exec =
        json!({"name": "sandbox_exec", "arguments": {"sandbox": sandbox, "command": "id -u"}});
    let untrusted = session.ask("tools/call", exec.clone());
    assert_eq!(untrusted["result"]["isError"], true, "it names no kind of work: {untrusted}");
    let mut exec = exec;
    exec["arguments"]["kind"] = json!("files");
    let ran = session.ask("tools/call", exec)["result"]["structuredContent"].clone();
    assert_eq!(ran["exit_code"], 0, "{ran}");
    // A directory of the host that the grant does not name.
    let create = json!({"name": "sandbox_create",
        "arguments": {"kind": "files", "wall": "process", "workspace": daemon.world.project()}});
    let refused = session.ask("tools/call", create);
    assert_eq!(refused["result"]["isError"], true, "{refused}");
    let stop = json!({"name": "sandbox_stop", "arguments": {"sandbox": sandbox, "keep": false}});
    assert_eq!(session.ask("tools/call", stop)["result"]["isError"], false);
}

#[test]
fn anothers_sessions_and_sandboxes_are_not_there() {
    let daemon = Daemon::for_tenants(&[]);
    let acme = daemon.grant("acme", &json!({}));
    let evil = daemon.grant("evil", &json!({}));
    let mut session = Session::begin(daemon.holder(&acme));
    let create =
        json!({"name": "sandbox_create", "arguments": {"kind": "files", "wall": "process"}});
    let made = session.ask("tools/call", create)["result"]["structuredContent"].clone();
    let sandbox = made["sandbox"].as_str().unwrap_or_else(|| panic!("{made}")).to_owned();
    let mut thief = Session { client: daemon.holder(&evil), id: session.id.clone(), last: 0 };
    let list = json!({"jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": {}});
    thief.send(&list).is(404);
    let mut other = Session::begin(daemon.holder(&evil));
    let exec = json!({"name": "sandbox_exec", "arguments": {"sandbox": sandbox, "command": "id"}});
    let refused = other.ask("tools/call", exec);
    assert_eq!(refused["result"]["isError"], true, "{refused}");
    let uri = format!("ringwall://sandbox/{sandbox}/files/");
    assert!(other.ask("resources/read", json!({ "uri": uri })).get("error").is_some());
    let listed = other.ask("resources/list", json!({}));
    assert_eq!(listed["result"]["resources"], json!([]));
    let own = session.ask("resources/list", json!({}));
    assert_eq!(own["result"]["resources"].as_array().map(Vec::len), Some(1), "{own}");
}

#[test]
fn a_revoked_grant_ends_its_sessions() {
    let daemon = Daemon::for_tenants(&[]);
    let token = daemon.grant("acme", &json!({}));
    let mut session = Session::begin(daemon.holder(&token));
    session.ask("tools/list", json!({}));
    let grants = daemon.client().get("/v1/grants").is(200).json();
    let id = grants[0]["id"].as_str().expect("an id");
    daemon.client().delete(&format!("/v1/grants/{id}")).is(204);
    let list = json!({"jsonrpc": "2.0", "id": 9, "method": "tools/list", "params": {}});
    session.send(&list).is_problem(401, "unauthenticated");
}
