//! Nobody gets more by way of an entrance than grant, policy and people give: attacks of a security review,
//! each with what the legitimate holder may do beside it.

use std::io::Read;
use std::net::TcpStream;

use serde_json::{Value, json};

use crate::approvals::{asked, builder, ground};
use crate::sandboxes::{files, sh};
use crate::support::{Client, Daemon, eventually};
use crate::terminal::{BINARY, Socket, TEXT};

pub(crate) fn plain() -> Value {
    json!({ "wall": "process", "kind": "files" })
}

/// What is left of a grant, by the holder alone.
pub(crate) fn narrowed(daemon: &Daemon, token: &str, flags: &[&str]) -> String {
    let line = [&["grant", "narrow"], flags].concat();
    daemon.world.ringwall_with_input(&line, token.as_bytes()).exits(0).word()
}

/// Every way to do something in a sandbox that lives.
fn ways(client: &mut Client, id: &str) -> Vec<(&'static str, u16)> {
    let at = |what: &str| format!("/v1/sandboxes/{id}/{what}");
    let file = at("files?path=/tmp/file");
    vec![
        ("exec", client.post(&at("exec"), &files("cat secret")).status),
        ("calls", client.post(&at("calls"), &files("cat secret")).status),
        ("read", client.get(&file).status),
        ("write", client.send("PUT", &file, &[], b"x").status),
        ("remove", client.delete(&file).status),
        ("list", client.get(&at("directory?path=/tmp")).status),
        ("diff", client.get(&at("diff")).status),
        ("apply", client.post(&at("apply"), &json!({})).status),
        ("phase", client.post(&at("phase"), &json!({ "to": "x" })).status),
        ("attach", client.get(&at("attach")).status),
        ("terminal", client.get(&at("terminal")).status),
        ("delete", client.delete(&format!("/v1/sandboxes/{id}")).status),
    ]
}

#[test]
fn a_smaller_grant_gets_nothing_by_way_of_a_larger_ones_sandbox() {
    let daemon = Daemon::for_tenants(&[]);
    daemon.world.write("secret", "only the first task may read this\n");
    let project = daemon.world.project();
    let whole = daemon.grant("acme", &json!({ "read": [project] }));
    let mut asked = plain();
    asked["workspace"] = json!({ "path": project });
    let id = daemon.holder(&whole).post("/v1/sandboxes", &asked).is(201).field("id");
    let lists = ["tools", "read", "write", "endpoints", "secrets", "phases", "kinds", "walls"];
    let none: Vec<&str> = lists.iter().flat_map(|list| ["--none", list]).collect();
    let smaller = [
        ("nothing at all", narrowed(&daemon, &whole, &none)),
        ("no paths", narrowed(&daemon, &whole, &["--none", "read"])),
        ("no walls", narrowed(&daemon, &whole, &["--none", "walls"])),
        ("another task", daemon.grant("acme", &json!({ "task": "t-2", "read": [project] }))),
        ("another grant without the path", daemon.grant("acme", &json!({}))),
    ];
    // To another task, it is not there.
    let expected = |what: &str| if what == "another task" { 404 } else { 403 };
    for (what, token) in &smaller {
        for (way, status) in ways(&mut daemon.holder(token), &id) {
            assert_eq!(status, expected(what), "{what}: {way}");
        }
    }
    let denied = daemon.client().get("/v1/audit?kind=admission-denied").is(200).text();
    assert!(denied.contains("reading"), "{denied}");
    // The holder itself, one of as much, and the owner are not kept out.
    let equal = daemon.grant("acme", &json!({ "read": [project] }));
    let exec = format!("/v1/sandboxes/{id}/exec");
    for token in [&whole, &equal] {
        let said = daemon.holder(token).post(&exec, &files("cat secret")).is(200).json();
        assert_eq!(said["stdout"], "only the first task may read this\n");
    }
    assert_eq!(daemon.client().post(&exec, &sh("true")).is(200).json()["exit_code"], 0);
    // A call can be followed and ended by those who may use its sandbox.
    let call =
        daemon.holder(&whole).post(&format!("/v1/sandboxes/{id}/calls"), &files("sleep 1000"));
    let call = format!("/v1/calls/{}", call.is(202).field("id"));
    for (what, token) in &smaller {
        let mut client = daemon.holder(token);
        assert_eq!(client.get(&format!("{call}/events")).status, expected(what), "{what}");
        assert_eq!(client.delete(&call).status, expected(what), "{what}");
    }
    daemon.holder(&equal).delete(&call).is(204);
    daemon.holder(&whole).delete(&format!("/v1/sandboxes/{id}")).is(204);
}

#[test]
fn a_command_that_names_no_kind_of_work_is_untrusted() {
    let daemon = Daemon::for_tenants(&[]);
    let token = daemon.grant("acme", &json!({ "kinds": ["files", "untrusted"] }));
    let mut client = daemon.holder(&token);
    let id = client.post("/v1/sandboxes", &plain()).is(201).field("id");
    let exec = format!("/v1/sandboxes/{id}/exec");
    client.post(&exec, &files("echo ran")).is(200);
    client.post(&exec, &sh("echo ran")).is_problem(403, "denied-by-policy");
    for kind in ["", "nobody-knows", "Files"] {
        let mut fields = sh("echo ran");
        fields["kind"] = json!(kind);
        let refused = client.post(&exec, &fields);
        assert_eq!(refused.status, 403, "{kind:?}: {}", refused.text());
    }
    // A kind that the policy allows there and the grant does not.
    let narrow = narrowed(&daemon, &token, &["--kind", "untrusted"]);
    daemon.holder(&narrow).post(&exec, &files("echo ran")).is_problem(403, "not-granted");
}

#[test]
fn the_owners_names_are_its_own() {
    let daemon = Daemon::for_tenants(&[]);
    let mut owner = daemon.client();
    let named = |name: &str| json!({ "wall": "process", "kind": "files", "name": name });
    let web = owner.post("/v1/sandboxes", &named("web")).is(201).field("id");
    let token = daemon.grant("mallory", &json!({}));
    let mut mallory = daemon.holder(&token);
    let theirs = mallory.post("/v1/sandboxes", &named("web")).is(201).field("id");
    assert_ne!(web, theirs);
    assert_eq!(owner.get("/v1/sandboxes/web").is(200).field("id"), web);
    assert_eq!(mallory.get("/v1/sandboxes/web").is(200).field("id"), theirs);
    owner.post("/v1/sandboxes/web/exec", &files("touch /tmp/of-the-owner")).is(200);
    let file = format!("/v1/sandboxes/{theirs}/files?path=/tmp/of-the-owner");
    mallory.get(&file).is_problem(404, "not-found");
    // At the command line, too, with the daemon and without it.
    for (how, file) in [("on", "by-the-daemon"), ("off", "alone")] {
        let touch = format!("test -e /tmp/of-the-owner && touch /tmp/{file}");
        let exec = |name: &str, script: &str| {
            let mut command = daemon.world.command(["exec", name, "--", "sh", "-c", script]);
            if how == "off" {
                command.env("RINGWALL_DAEMON", how);
            }
            command.output().expect("it can be started")
        };
        let ran = exec("web", &touch);
        assert!(ran.status.success(), "{how}: {ran:?}");
        let path = |id: &str| format!("/v1/sandboxes/{id}/files?path=/tmp/{file}");
        owner.get(&path(&web)).is(200);
        mallory.get(&path(&theirs)).is_problem(404, "not-found");
    }
    // By its id the owner sees it; by a name that only mallory has, not.
    owner.get(&format!("/v1/sandboxes/{theirs}")).is(200);
    mallory.post("/v1/sandboxes", &named("release")).is(201);
    for off in [false, true] {
        let mut command = daemon.world.command(["exec", "release", "--", "touch", "/tmp/found"]);
        if off {
            command.env("RINGWALL_DAEMON", "off");
        }
        let ran = command.output().expect("it can be started");
        assert_eq!(ran.status.code(), Some(125), "{ran:?}");
    }
    owner.get("/v1/sandboxes/release").is_problem(404, "not-found");
    // No name looks like an id.
    for like_id in [web.as_str(), "abcdefghijkl", "234567234567"] {
        mallory.post("/v1/sandboxes", &named(like_id)).is_problem(400, "bad-request");
    }
}

/// A shell of a holder's, that has shown something.
fn shell(daemon: &Daemon, token: &str, id: &str) -> Socket {
    let mut shell = Socket::open_as(daemon, &format!("/v1/sandboxes/{id}/terminal"), Some(token));
    let command = json!({ "argv": ["sh"], "kind": "files" });
    let opening = json!({ "command": command, "rows": 9, "columns": 80 });
    shell.send(TEXT, opening.to_string().as_bytes());
    shell.send(BINARY, b"echo be''gun\n");
    shell.until("begun");
    shell
}

/// Reads until the daemon ends it.
fn end_of(mut shell: Socket) -> String {
    loop {
        let (kind, bytes) = shell.receive();
        if kind == TEXT {
            return String::from_utf8_lossy(&bytes).into_owned();
        }
    }
}

#[test]
fn what_runs_under_a_grant_ends_with_it() {
    let daemon = Daemon::for_tenants(&[]);
    let token = daemon.grant("acme", &json!({}));
    let id = daemon.holder(&token).post("/v1/sandboxes", &plain()).is(201).field("id");
    let calls = format!("/v1/sandboxes/{id}/calls");
    let call = daemon.holder(&token).post(&calls, &files("sleep 1000")).is(202).field("id");
    // A narrowed one expires first, and takes its shell with it and nothing else.
    let short = narrowed(&daemon, &token, &["--for", "3s"]);
    let told = end_of(shell(&daemon, &short, &id));
    assert!(told.contains("ending"), "{told}");
    assert_eq!(daemon.holder(&token).get(&format!("/v1/calls/{call}")).field("state"), "running");
    // The grant itself is revoked: shell, call, followers and sandbox end.
    let shell = shell(&daemon, &token, &id);
    let follower = daemon.holder(&token);
    let following = std::thread::scope(|scope| {
        let path = format!("/v1/calls/{call}/events");
        let follows = scope.spawn(move || follower.follow(&path, None, |_| false));
        let grant = daemon.holder(&token).get("/v1/grant").is(200).field("id");
        daemon.client().delete(&format!("/v1/grants/{grant}")).is(204);
        follows.join().expect("it ends")
    });
    drop(following);
    end_of(shell);
    eventually("the sandbox has ended", || {
        let seen = daemon.client().get(&format!("/v1/sandboxes/{id}")).is(200).json();
        (seen["state"] == "ended").then_some(())
    });
    let denied = daemon.client().get("/v1/audit?kind=admission-denied").is(200).text();
    assert!(denied.contains("go on") && denied.contains(&id), "{denied}");
    daemon.world.ringwall(["audit", "verify"]).exits(0);
}

#[test]
fn an_approval_is_of_what_a_command_reads_and_where_it_sits() {
    let daemon = ground();
    let token = builder(&daemon);
    let mut holder = daemon.holder(&token);
    let id = holder.post("/v1/sandboxes", &plain()).is(201).field("id");
    let ask = json!({ "argv": ["sh"], "kind": "build" });
    let question = asked(&holder.post(&format!("/v1/sandboxes/{id}/exec"), &ask));
    let shown = daemon.client().get(&format!("/v1/approvals/{question}")).is(200).json();
    let parameters = &shown["action"]["parameters"];
    assert_eq!((&parameters["input"], &parameters["terminal"]), (&json!("none"), &json!("no")));
    let yes = json!({ "reason": "it reads nothing" });
    daemon.client().post(&format!("/v1/approvals/{question}/approve"), &yes).is(200);
    let answer = |path: &str, opening: Value| {
        let path = format!("/v1/sandboxes/{id}/{path}");
        let mut socket = Socket::open_as(&daemon, &path, Some(&token));
        socket.send(TEXT, opening.to_string().as_bytes());
        end_of(socket)
    };
    // The same words with input, on a terminal, or on one that says it has none.
    let size = json!({ "rows": 9, "columns": 80 });
    let others = [
        answer("attach", json!({ "ask": ask, "stdin": true })),
        answer("attach", json!({ "ask": ask, "stdin": false, "terminal": size })),
        answer("terminal", json!({ "command": ask, "rows": 9, "columns": 80 })),
    ];
    for told in others {
        assert!(told.contains("approval-required") && !told.contains(&question), "{told}");
    }
    let mut more = ask.clone();
    more["stdin"] = json!("echo nobody-was-shown-this");
    assert_ne!(asked(&holder.post(&format!("/v1/sandboxes/{id}/exec"), &more)), question);
    // By the way that could feed it, saying that it will not, and then feeding it all the same.
    let path = format!("/v1/sandboxes/{id}/attach");
    let mut socket = Socket::open_as(&daemon, &path, Some(&token));
    let opening = json!({ "ask": ask, "stdin": false });
    socket.send(TEXT, opening.to_string().as_bytes());
    socket.send(BINARY, b"echo ty''ped\n");
    let mut shown = String::new();
    while !shown.contains("ended") {
        shown.push_str(&String::from_utf8_lossy(&socket.receive().1));
    }
    assert!(shown.contains("started") && !shown.contains("typed"), "{shown}");
}

#[test]
fn a_phase_is_not_had_by_naming_it() {
    let daemon = ground();
    let in_phase = |phase: &str| json!({ "wall": "process", "kind": "files", "phase": phase, "command": sh("true") });
    let token = daemon.grant("acme", &json!({}));
    let mut holder = daemon.holder(&token);
    for path in ["/v1/sandboxes", "/v1/runs"] {
        holder.post(path, &in_phase("check")).is_problem(403, "not-granted");
        assert!(holder.post(path, &in_phase("plan")).status < 300, "the first one");
    }
    let token = daemon.grant("acme", &json!({ "phases": ["check"] }));
    daemon.holder(&token).post("/v1/runs", &in_phase("check")).is(200);
}

#[test]
fn protected_paths_are_the_owners_to_write_back() {
    let daemon = Daemon::for_tenants(&[]);
    let project = daemon.world.project();
    let token = daemon.grant("acme", &json!({ "read": [project], "write": [project] }));
    let mut holder = daemon.holder(&token);
    let mut asked = plain();
    asked["workspace"] = json!({ "path": project });
    let id = holder.post("/v1/sandboxes", &asked).is(201).field("id");
    let script = files("mkdir -p .github/workflows; echo x > .github/workflows/ci.yml");
    holder.post(&format!("/v1/sandboxes/{id}/exec"), &script).is(200);
    holder.delete(&format!("/v1/sandboxes/{id}?keep=true")).is(204);
    let apply = format!("/v1/sandboxes/{id}/apply");
    for names in [json!([".github/workflows/ci.yml"]), json!(["."]), json!(["no-such"])] {
        let fields = json!({ "allow_protected": names });
        holder.post(&apply, &fields).is_problem(403, "owner-only");
    }
    assert!(!project.join(".github").exists());
}

fn figure(client: &mut Client, part: &str, which: &str) -> u64 {
    let budgets = client.get("/v1/budgets").is(200).json();
    let all = budgets[0]["spent"].as_array().expect("a list").clone();
    let found = all.iter().find(|it| it["dimension"] == part).expect("a part");
    found[which].as_u64().expect("a number")
}

#[test]
fn a_sandbox_pays_for_as_long_as_it_lives() {
    let daemon = Daemon::for_tenants(&[]);
    let token = daemon.grant("acme", &json!({ "budget": { "wall_seconds": 60, "calls": 10 } }));
    let mut holder = daemon.holder(&token);
    let mut asked = plain();
    asked["command"] = sh("while :; do :; done");
    let id = holder.post("/v1/sandboxes", &asked).is(201).field("id");
    // What it could use until its end is taken, so nothing else runs beside it for nothing.
    assert_eq!(figure(&mut holder, "wall_seconds", "reserved"), 60);
    holder.post("/v1/sandboxes", &plain()).is_problem(403, "budget-exhausted");
    // A command in it is one call, whatever it leaves behind.
    let exec = format!("/v1/sandboxes/{id}/exec");
    holder.post(&exec, &files("sleep 1; (sleep 1000 &)")).is(200);
    holder.delete(&format!("/v1/sandboxes/{id}")).is(204);
    let spent = figure(&mut holder, "wall_seconds", "spent");
    assert!((1..60).contains(&spent), "{spent}");
    assert!(figure(&mut holder, "cpu_seconds", "spent") >= 1);
    assert_eq!(figure(&mut holder, "calls", "spent"), 2);
    for part in ["wall_seconds", "cpu_seconds", "memory_mib_seconds", "calls"] {
        assert_eq!(figure(&mut holder, part, "reserved"), 0, "{part}");
    }
    // It ends where the budget does.
    let short = daemon.grant("acme", &json!({ "budget": { "wall_seconds": 2 } }));
    let id = daemon.holder(&short).post("/v1/sandboxes", &asked).is(201).field("id");
    eventually("its end", || {
        let seen = daemon.client().get(&format!("/v1/sandboxes/{id}")).is(200).json();
        (seen["state"] == "ended").then_some(())
    });
    daemon.holder(&short).post("/v1/sandboxes", &plain()).is_problem(403, "budget-exhausted");
}

#[test]
fn a_body_costs_no_more_than_its_sender_may_have() {
    let daemon = Daemon::for_tenants(&[]);
    let token = daemon.grant("acme", &json!({}));
    let mut holder = daemon.holder(&token);
    let many = |count: usize| format!("{{\"input\":{{\"x\":[{}0]}}}}", "0,".repeat(count));
    let json_type = [("content-type", "application/json")];
    let mut call = |name: &str, body: &str| {
        holder.send("POST", &format!("/v1/tools/{name}/call"), &json_type, body.as_bytes())
    };
    // Without the right nothing of it is read.
    call("grep", "this is no JSON").is_problem(403, "not-granted");
    call("grep@1.0.0", &many(10)).is_problem(403, "not-granted");
    let some = daemon.grant("acme", &json!({ "tools": ["grep"] }));
    let body = many(1_000_000);
    let mut other = daemon.holder(&some);
    let refused = other.send("POST", "/v1/tools/grep/call", &json_type, body.as_bytes());
    refused.is_problem(413, "too-large");
    for path in ["/v1/runs", "/v1/sandboxes"] {
        let refused = other.send("POST", path, &json_type, body.as_bytes());
        refused.is_problem(413, "too-large");
    }
}

#[test]
fn whether_a_path_exists_is_told_to_those_who_may_read_it() {
    let daemon = Daemon::for_tenants(&[]);
    let token = daemon.grant("acme", &json!({}));
    let mut holder = daemon.holder(&token);
    let there = daemon.world.project().display().to_string();
    let absent = daemon.world.path("no-such-thing").display().to_string();
    let link = daemon.world.path("link").display().to_string();
    std::os::unix::fs::symlink("/nowhere", &link).expect("a link");
    let mut told = |path: &str| {
        let workspace = json!({ "wall": "process", "kind": "files", "command": sh("true"),
            "workspace": { "path": path } });
        let shown = json!({ "wall": "process", "kind": "files", "command": sh("true"),
            "read_only": [path] });
        let answers = [holder.post("/v1/runs", &workspace), holder.post("/v1/runs", &shown)];
        answers.map(|answer| {
            answer.is_problem(403, "not-granted");
            answer.text().replace(path, "PATH")
        })
    };
    let first = told(&there);
    for path in [absent.as_str(), &link, "/root", "/etc/shadow"] {
        assert_eq!(told(path), first, "{path}");
    }
}

#[test]
fn silent_connections_do_not_keep_the_owner_out() {
    // Files for both ends of as many connections as the daemon serves at once, and more.
    let most = rustix::process::getrlimit(rustix::process::Resource::Nofile);
    let raised = rustix::process::Rlimit { current: most.maximum, maximum: most.maximum };
    rustix::process::setrlimit(rustix::process::Resource::Nofile, raised).expect("more files");
    let daemon = Daemon::for_tenants(&[]);
    let address = daemon.address();
    let silent: Vec<TcpStream> =
        (0..1100).map(|_| TcpStream::connect(address).expect("it listens")).collect();
    daemon.client().get("/v1/health").is(200);
    // Had the owner waited for room, the first of them would have been closed by then.
    let mut first = &silent[0];
    first.set_nonblocking(true).expect("a setting");
    let waits = first.read(&mut [0]).expect_err("it is open");
    assert_eq!(waits.kind(), std::io::ErrorKind::WouldBlock);
}
