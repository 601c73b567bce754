//! Holders of grants have bounds in the daemon: threads, memory for requests, and the time of their grant. The
//! owner, housekeeping and other tenants are served meanwhile.

use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use serde_json::{Value, json};

use crate::entrances::{narrowed, plain};
use crate::sandboxes::files;
use crate::support::tool::{Does, component, manifest};
use crate::support::{Daemon, eventually};

const MIB: usize = 1 << 20;
/// More than a daemon with one job ever has threads for one tenant.
const MANY: usize = 150;

/// A daemon whose pool of threads is small.
fn narrow_daemon() -> Daemon {
    Daemon::for_tenants(&["--jobs", "1", "--jobs-per-tenant", "1"])
}

/// Sends the head of a request, and of its body only this.
fn begin(daemon: &Daemon, token: &str, line: &str, (length, body): (usize, &[u8])) -> TcpStream {
    let mut stream = TcpStream::connect(daemon.address()).expect("the daemon listens");
    stream.set_read_timeout(Some(Duration::from_secs(120))).expect("a timeout");
    let head = format!(
        "{line} HTTP/1.1\r\nhost: localhost\r\nauthorization: Bearer {token}\r\n\
         content-type: application/json\r\ncontent-length: {length}\r\n\r\n"
    );
    stream.write_all(head.as_bytes()).expect("the daemon reads");
    // The daemon does not read a refused body to its end.
    let _ = stream.write_all(body);
    stream
}

/// All that comes until the daemon ends it.
fn rest_of(mut stream: TcpStream) -> Vec<u8> {
    let mut all = Vec::new();
    match stream.read_to_end(&mut all) {
        Ok(_) => all,
        Err(error) if error.kind() == ErrorKind::ConnectionReset => all,
        Err(error) => panic!("the daemon does not end it: {error}"),
    }
}

/// The status of the answer.
fn status(mut stream: TcpStream) -> String {
    let mut head = [0; 12];
    stream.read_exact(&mut head).expect("an answer");
    String::from_utf8_lossy(&head[9..]).into_owned()
}

fn revoke(daemon: &Daemon, token: &str) {
    let grant = daemon.holder(token).get("/v1/grant").is(200).field("id");
    daemon.client().delete(&format!("/v1/grants/{grant}")).is(204);
}

fn has_ended(daemon: &Daemon, id: &str) {
    eventually("the sandbox has ended", || {
        let seen = daemon.client().get(&format!("/v1/sandboxes/{id}")).is(200).json();
        (seen["state"] == "ended").then_some(())
    });
}

fn denials(daemon: &Daemon) -> String {
    daemon.client().get("/v1/audit?kind=admission-denied").is(200).text()
}

/// The daemon serves everybody while one tenant has these under way, and ends them with their grant.
fn all_others_are_served(daemon: &Daemon, token: &str, id: &str) {
    for _ in 0..20 {
        daemon.client().get(&format!("/v1/sandboxes/{id}")).is(200);
        daemon.client().get("/v1/health").is(200);
    }
    let other = daemon.grant("other", &json!({}));
    let mut client = daemon.holder(&other);
    let own = client.post("/v1/sandboxes", &plain()).is(201).field("id");
    let place = format!("/v1/sandboxes/{own}/files?path=/tmp/b");
    client.send("PUT", &place, &[], b"here").is(204);
    assert_eq!(client.get(&place).is(200).text(), "here");
    // The tenant itself can look at what it has.
    daemon.holder(token).get(&format!("/v1/sandboxes/{id}")).is(200);
    revoke(daemon, token);
    has_ended(daemon, id);
}

#[test]
fn files_that_never_come_keep_only_their_own_tenant_waiting() {
    let daemon = narrow_daemon();
    let token = daemon.grant("acme", &json!({}));
    let id = daemon.holder(&token).post("/v1/sandboxes", &plain()).is(201).field("id");
    let line = format!("PUT /v1/sandboxes/{id}/files?path=/tmp/a");
    let open: Vec<_> = (0..MANY).map(|_| begin(&daemon, &token, &line, (1, b""))).collect();
    all_others_are_served(&daemon, &token, &id);
    drop(open);
}

#[test]
fn files_that_are_not_read_keep_only_their_own_tenant_waiting() {
    let daemon = narrow_daemon();
    let token = daemon.grant("acme", &json!({}));
    let mut holder = daemon.holder(&token);
    let id = holder.post("/v1/sandboxes", &plain()).is(201).field("id");
    let made = files("head -c 33554432 /dev/zero > /tmp/a");
    let made = holder.post(&format!("/v1/sandboxes/{id}/exec"), &made).is(200).json();
    assert_eq!(made["exit_code"], 0);
    let line = format!("GET /v1/sandboxes/{id}/files?path=/tmp/a");
    let open: Vec<_> = (0..MANY).map(|_| begin(&daemon, &token, &line, (0, b""))).collect();
    all_others_are_served(&daemon, &token, &id);
    drop(open);
}

#[test]
fn a_file_on_its_way_ends_with_its_grant_and_is_not_taken_for_whole() {
    let daemon = narrow_daemon();
    let token = daemon.grant("acme", &json!({}));
    let mut holder = daemon.holder(&token);
    let id = holder.post("/v1/sandboxes", &plain()).is(201).field("id");
    let script = files("head -c 33554432 /dev/zero > /tmp/a");
    holder.post(&format!("/v1/sandboxes/{id}/exec"), &script).is(200);
    // The sandbox is of the whole grant, and does not end with this one.
    let less = daemon.grant("acme", &json!({}));
    let line = format!("GET /v1/sandboxes/{id}/files?path=/tmp/a");
    let mut read = begin(&daemon, &less, &line, (0, b""));
    let line = format!("PUT /v1/sandboxes/{id}/files?path=/tmp/b");
    let written = begin(&daemon, &less, &line, (9, b"half"));
    let mut first = [0; 15];
    read.read_exact(&mut first).expect("it has begun");
    assert_eq!(&first, b"HTTP/1.1 200 OK");
    eventually("the file has begun", || {
        let place = format!("/v1/sandboxes/{id}/files?path=/tmp/b");
        (daemon.client().get(&place).status == 200).then_some(())
    });
    revoke(&daemon, &less);
    assert_eq!(status(written), "401");
    let read = rest_of(read);
    assert!(read.len() < 32 * MIB && !read.ends_with(b"\r\n0\r\n\r\n"), "{} bytes", read.len());
    let denied = denials(&daemon);
    for what in ["reading a file of", "writing a file of"] {
        assert!(denied.contains(&format!("{what} {id}")), "{denied}");
    }
    daemon.holder(&token).get(&format!("/v1/sandboxes/{id}")).is(200);
}

#[test]
fn who_follows_all_events_is_in_the_record_when_the_grant_ends() {
    let daemon = Daemon::for_tenants(&[]);
    let token = daemon.grant("acme", &json!({}));
    let mut follower = begin(&daemon, &token, "GET /v1/events", (0, b""));
    let mut first = [0; 15];
    follower.read_exact(&mut first).expect("it has begun");
    revoke(&daemon, &token);
    rest_of(follower);
    let denied = denials(&daemon);
    assert!(denied.contains("following all events"), "{denied}");
}

#[test]
fn only_what_can_be_long_may_be_long() {
    let daemon = Daemon::for_tenants(&[]);
    let token = daemon.grant("acme", &json!({}));
    let mut holder = daemon.holder(&token);
    let id = holder.post("/v1/sandboxes", &plain()).is(201).field("id");
    // Standard input is.
    let mut long = files("wc -c");
    long["stdin"] = "x".repeat(3 * MIB).into();
    let said = holder.post(&format!("/v1/sandboxes/{id}/exec"), &long).is(200).json();
    assert_eq!(said["stdout"].as_str().expect("a text").trim(), (3 * MIB).to_string());
    for (line, length) in [
        ("POST /v1/sandboxes".to_owned(), 2 * MIB),
        (format!("POST /v1/sandboxes/{id}/apply"), 2 * MIB),
        ("POST /v1/runs".to_owned(), 18 * MIB),
        (format!("POST /v1/sandboxes/{id}/exec"), 18 * MIB),
        ("POST /mcp".to_owned(), 18 * MIB),
    ] {
        assert_eq!(status(begin(&daemon, &token, &line, (length, b""))), "413", "{line}");
    }
    // Rights come before a long body.
    let other = daemon.grant("other", &json!({}));
    let smaller = daemon.grant("acme", &json!({ "kinds": [] }));
    for way in ["exec", "calls"] {
        let line = format!("POST /v1/sandboxes/{id}/{way}");
        for (token, code) in [(&other, "404"), (&smaller, "403")] {
            assert_eq!(status(begin(&daemon, token, &line, (3 * MIB, b""))), code, "{way}");
        }
    }
}

#[test]
fn bodies_that_wait_for_their_end_take_no_more_than_their_tenants_room() {
    let daemon = Daemon::for_tenants(&[]);
    let token = daemon.grant("acme", &json!({}));
    let half = vec![b' '; 16 * MIB - 1];
    let fill = |way: &str| begin(&daemon, &token, &format!("POST {way}"), (16 * MIB, &half));
    let mut open: Vec<_> = ["/v1/runs", "/mcp", "/v1/runs", "/mcp"].map(fill).into();
    let kind = [("content-type", "application/json")];
    let busy = eventually("the room is taken", || {
        let answer = daemon.holder(&token).send("POST", "/v1/runs", &kind, &[b' '; 100]);
        if answer.status != 429 {
            // This one may have taken the place of a long one that was not all there.
            open.push(fill("/v1/runs"));
        }
        (answer.status == 429).then_some(answer)
    });
    busy.is_problem(429, "busy");
    let run = json!({ "wall": "process", "kind": "files", "command": files("true") });
    // Another tenant has room, and so has the owner.
    let other = daemon.grant("other", &json!({}));
    daemon.holder(&other).post("/v1/runs", &run).is(200);
    daemon.client().post("/v1/runs", &run).is(200);
    drop(open);
    eventually("the room is there again", || {
        (daemon.holder(&token).post("/v1/runs", &run).status == 200).then_some(())
    });
}

#[test]
fn what_an_agent_sends_is_bounded_before_anything_parses_it() {
    let daemon = Daemon::for_tenants(&[]);
    let none = daemon.grant("acme", &json!({ "kinds": [], "walls": [] }));
    let call = |zeros: usize| {
        let arguments = json!({ "x": vec![0; zeros] });
        let params = json!({ "name": "grep", "arguments": arguments });
        json!({ "jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params })
    };
    let send = |message: &Value| daemon.holder(&none).post("/mcp", message);
    send(&call(200_000)).is_problem(413, "too-large");
    assert_ne!(send(&call(1000)).status, 413);
    // In one text there may be as much as a tool takes.
    let text = json!({ "jsonrpc": "2.0", "id": 1, "method": "ping", "x": "[0,".repeat(MIB) });
    assert_ne!(send(&text).status, 413);
}

#[test]
fn no_call_of_a_tool_outlives_its_grant() {
    let daemon = Daemon::for_tenants(&[]);
    let path = daemon.world.path("yes.wasm");
    std::fs::write(&path, component(&manifest("yes"), &Does::Loops)).expect("a file");
    daemon.world.ringwall(["tool", "add", path.to_str().expect("a path")]).exits(0);
    let walls = json!(["process", "process/wasm"]);
    let token = daemon.grant("acme", &json!({ "tools": ["yes"], "walls": walls }));
    let made = json!({ "wall": "process/wasm", "kind": "files" });
    let id = daemon.holder(&token).post("/v1/sandboxes", &made).is(201).field("id");
    // As long as a call may take at most, which is longer than a client here waits.
    let most = json!({ "time_ms": 300_000, "fuel": 1u64 << 50 });
    for place in [json!(null), json!(id)] {
        let call = json!({ "limits": most, "sandbox": place });
        // It expires.
        let short = narrowed(&daemon, &token, &["--for", "2s"]);
        let ended = daemon.holder(&short).post("/v1/tools/yes/call", &call);
        assert!(ended.status == 401 || ended.json()["status"] == "timeout", "{}", ended.text());
        // It is revoked.
        let other = daemon.grant("acme", &json!({ "tools": ["yes"], "walls": walls }));
        let ended = std::thread::scope(|scope| {
            let calls = scope.spawn(|| daemon.holder(&other).post("/v1/tools/yes/call", &call));
            eventually("the call has begun", || {
                let calls = daemon.client().get("/v1/calls").is(200).json();
                let running = |it: &Value| it["kind"] == "tool" && it["state"] == "running";
                calls["items"].as_array().expect("a list").iter().any(running).then_some(())
            });
            revoke(&daemon, &other);
            calls.join().expect("it ends")
        });
        ended.is_problem(401, "unauthenticated");
        assert!(denials(&daemon).contains("a call of yes"));
    }
    // Both wardens serve the next call.
    let call = json!({ "limits": { "time_ms": 50 } });
    let said = daemon.holder(&token).post("/v1/tools/yes/call", &call).is(200).json();
    assert_eq!(said["status"], "timeout", "{said}");
    // At the command line, without the daemon.
    let short = narrowed(&daemon, &token, &["--for", "2s"]);
    daemon.world.write("token", short);
    let file = daemon.world.path("token");
    let line =
        ["tool", "call", "yes", "--timeout", "300s", "--fuel", "1125899906842624", "--grant"];
    let mut command = daemon.world.command(line);
    command.env_remove("RINGWALL_TOOLS").arg(file);
    let code = command.output().expect("it can be started").status.code();
    assert_ne!(code, Some(0));
}

#[test]
fn a_killed_command_takes_with_it_what_made_a_session_of_its_own() {
    let daemon = Daemon::for_tenants(&[]);
    let token = daemon.grant("acme", &json!({}));
    let id = daemon.holder(&token).post("/v1/sandboxes", &plain()).is(201).field("id");
    let less = daemon.grant("acme", &json!({}));
    let script = files("setsid sleep 4242 & sleep 4243 & wait");
    let calls = format!("/v1/sandboxes/{id}/calls");
    let call = daemon.holder(&less).post(&calls, &script).is(202).field("id");
    let sleeping = || {
        let look = "for at in /proc/[0-9]*; do tr '\\0' ' ' < $at/cmdline; echo; done | grep -c '^sleep 424[23]'";
        let exec = format!("/v1/sandboxes/{id}/exec");
        let seen = daemon.holder(&token).post(&exec, &files(look)).is(200).json();
        seen["stdout"].as_str().expect("a text").trim().to_owned()
    };
    eventually("both have begun", || (sleeping() == "2").then_some(()));
    revoke(&daemon, &less);
    eventually("its grant has ended it", || {
        let seen = daemon.holder(&token).get(&format!("/v1/calls/{call}")).is(200).json();
        (seen["state"] == "ended").then_some(())
    });
    eventually("nothing of it is left", || (sleeping() == "0").then_some(()));
}
