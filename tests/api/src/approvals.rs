//! What the policy refuses to a holder and a person allows, over the API: asked, decided, used, ended; and
//! everybody who is not that person.

use std::fs;
use std::sync::Barrier;

use serde_json::{Value, json};

use crate::sandboxes::{files, sh};
use crate::support::tool::{Does, component, manifest};
use crate::support::{Answer, Client, Daemon, eventually};

/// What the person says of it, in all tests.
const YES: &str = "the release needs it";

/// A daemon whose policy gives work with files only, and lets Ann allow more.
pub(crate) fn ground() -> Daemon {
    let daemon = Daemon::for_tenants(&[]);
    let key = daemon.world.ringwall(["approvals", "keygen"]).exits(0).word();
    let file = daemon.world.path("nobody-home/.config/ringwall/ringwall.toml");
    let policy = fs::read_to_string(&file).expect("a policy");
    let policy = policy
        .replace(
            "[trust-levels.medium]\n",
            "[trust-levels.medium]\nkinds = [\"files\", \"compute\"]\n",
        )
        .replace("tools = \"approved\"\napply = true", "tools = \"approved\"")
        .replace("trust = \"medium\"", "trust = \"medium\"\nphase = \"plan\"");
    assert!(policy.contains("kinds = ") && policy.contains("phase = ") && policy.contains("apply"));
    let phases =
        "\n[phases.plan]\nwrite = [\"./**\"]\nnext = []\n[phases.check]\nwrite = []\nnext = []\n";
    let elevations = [("builds", "run:build"), ("tools", "call:*"), ("changes", "apply")];
    let elevations = elevations.into_iter().chain([("checks", "phase:check")]).map(|(name, gives)| {
        format!(
            "\n[[elevation]]\nname = \"{name}\"\ngrants = [\"{gives}\"]\napprovers = [\"ann\"]\n\
             max = \"10m\"\nsingle-use = true\n"
        )
    });
    let tool = "\n[[tool]]\nnames = [\"maybe\"]\nkind = \"compute\"\n";
    let ann = format!("\n[[approver]]\nname = \"ann\"\nkey = \"{key}\"\n");
    fs::write(&file, policy + phases + tool + &elevations.collect::<String>() + &ann)
        .expect("a policy");
    daemon
}

/// The token of one who may ask for builds.
pub(crate) fn builder(daemon: &Daemon) -> String {
    daemon.grant("acme", &json!({ "kinds": ["files", "build"] }))
}

pub(crate) fn build() -> Value {
    json!({ "wall": "process", "kind": "build" })
}

/// The question that a refusal was made.
#[track_caller]
pub(crate) fn asked(refused: &Answer) -> String {
    let problem = refused.is_problem(403, "approval-required").json();
    assert!(refused.headers.contains_key("retry-after"), "{:?}", refused.headers);
    let id = problem["approval"].as_str().unwrap_or_else(|| panic!("{problem}")).to_owned();
    assert!(problem["detail"].as_str().is_some_and(|words| words.contains(&id)), "{problem}");
    id
}

#[track_caller]
fn approve(daemon: &Daemon, id: &str, more: &Value) -> Value {
    let mut fields = json!({ "reason": YES });
    for (name, value) in more.as_object().expect("fields") {
        fields[name] = value.clone();
    }
    let decided = daemon.client().post(&format!("/v1/approvals/{id}/approve"), &fields);
    decided.is(200).json()
}

fn state(daemon: &Daemon, id: &str) -> String {
    daemon.client().get(&format!("/v1/approvals/{id}")).is(200).field("state")
}

fn events(daemon: &Daemon, kind: &str) -> usize {
    let log = daemon.client().get(&format!("/v1/audit?kind={kind}")).is(200).json();
    log.as_array().expect("a list").len()
}

#[test]
fn a_person_says_yes_and_the_same_request_goes_through_once() {
    let daemon = ground();
    let token = builder(&daemon);
    let mut holder = daemon.holder(&token);
    let first = holder.post_once("/v1/sandboxes", "k-1", &build());
    let id = asked(&first);
    assert_eq!(first.json()["elevation_hint"], "builds");
    let page = format!("http://{}/approvals/{id}", daemon.address());
    assert_eq!(first.json()["approval_url"], page);
    assert_eq!(asked(&holder.post("/v1/sandboxes", &build())), id, "one question");
    let shown = holder.get(&format!("/v1/approvals/{id}")).is(200).json();
    assert_eq!((&shown["state"], &shown["single_use"]), (&json!("pending"), &json!(true)));
    assert_eq!((&shown["asked_by"], &shown["url"]), (&json!("an agent"), &json!(page)));
    assert_eq!(shown["action"]["resource"], "build process", "{shown}");
    let decided = approve(&daemon, &id, &json!({ "action_sha256": shown["action_sha256"] }));
    assert_eq!(decided["state"], "approved");
    assert_eq!(decided["decision"]["approver"], "ann");
    assert_eq!(decided["decision"]["reason"], YES);
    // Other parameters, another name, a command: each is another question.
    let others = [
        json!({ "limits": { "memory_bytes": 64 << 20 } }),
        json!({ "name": "web" }),
        json!({ "command": sh("true") }),
    ];
    let mut ids = vec![id.clone()];
    for more in &others {
        let mut other = build();
        for (name, value) in more.as_object().expect("fields") {
            other[name] = value.clone();
        }
        let id = asked(&holder.post("/v1/sandboxes", &other));
        assert!(!ids.contains(&id), "{more}");
        ids.push(id);
    }
    // Nor is it for another grant, of whatever tenant.
    for tenant in ["acme", "other"] {
        let other = daemon.grant(tenant, &json!({ "kinds": ["files", "build"] }));
        assert_ne!(asked(&daemon.holder(&other).post("/v1/sandboxes", &build())), id);
    }
    // The key of the first request was not used up by the question.
    let made = holder.post_once("/v1/sandboxes", "k-1", &build()).is(201).field("id");
    let again = asked(&holder.post("/v1/sandboxes", &build()));
    assert!(!ids.contains(&again), "it was for one time");
    assert_eq!(events(&daemon, "approval-used"), 1);
    assert_eq!(events(&daemon, "approval-returned"), 0, "the sandbox lives");
    holder.delete(&format!("/v1/sandboxes/{made}")).is(204);
    assert_eq!(events(&daemon, "approval-returned"), 1);
    assert_eq!(state(&daemon, &id), "over");
    daemon.world.ringwall(["audit", "verify"]).exits(0);
}

#[test]
fn a_persons_no_is_told_with_its_reason() {
    let daemon = ground();
    let token = builder(&daemon);
    let mut holder = daemon.holder(&token);
    let id = asked(&holder.post("/v1/sandboxes", &build()));
    let no = json!({ "reason": "not from this branch" });
    daemon.client().post(&format!("/v1/approvals/{id}/deny"), &no).is(200);
    let told = holder.get(&format!("/v1/approvals/{id}")).is(200).json();
    assert_eq!(told["state"], "denied");
    assert_eq!(told["decision"]["reason"], "not from this branch");
    holder.post("/v1/sandboxes", &build()).is(403);
    let late = json!({ "reason": YES });
    let late = daemon.client().post(&format!("/v1/approvals/{id}/approve"), &late);
    late.is_problem(409, "already-decided");
}

#[test]
fn whoever_carries_a_grant_decides_nothing() {
    let daemon = ground();
    let token = builder(&daemon);
    let id = asked(&daemon.holder(&token).post("/v1/sandboxes", &build()));
    let yes = json!({ "reason": "mine" });
    let other = daemon.grant("other", &json!({ "kinds": ["files", "build"] }));
    let narrow = ["grant", "narrow", "--kind", "build"];
    let narrowed = daemon.world.ringwall_with_input(&narrow, token.as_bytes()).exits(0).word();
    for token in [&token, &other, &narrowed] {
        // Over TCP, and over the owner's own socket.
        for mut client in [daemon.holder(token), daemon.client().with_token(token)] {
            for verb in ["approve", "deny"] {
                let path = format!("/v1/approvals/{id}/{verb}");
                client.post(&path, &yes).is_problem(403, "approver-only");
                // The same for one that never was.
                let path = format!("/v1/approvals/apr-000000000000/{verb}");
                client.post(&path, &yes).is_problem(403, "approver-only");
            }
            client.post("/v1/approvals/page", &json!({})).is_problem(403, "approver-only");
        }
    }
    let mut nobody = Client::tcp(daemon.address(), None);
    for path in [&format!("/v1/approvals/{id}/approve"), "/v1/approvals/page"] {
        nobody.post(path, &yes).is_problem(401, "unauthenticated");
    }
    let denied = daemon.client().get("/v1/audit?kind=admission-denied").is(200).text();
    assert!(denied.contains("whoever carries a grant cannot decide"), "{denied}");
    // What is another tenant's, or another task's, is not there.
    let elsewhere = daemon.grant("acme", &json!({ "task": "t-2", "kinds": ["files", "build"] }));
    for token in [&other, &elsewhere] {
        let mut client = daemon.holder(token);
        client.get(&format!("/v1/approvals/{id}")).is_problem(404, "not-found");
        assert_eq!(client.get("/v1/approvals").is(200).json(), json!([]));
    }
    let listed = daemon.holder(&narrowed).get("/v1/approvals").is(200).json();
    assert_eq!(listed[0]["id"], id.as_str(), "of the same task");
    assert_eq!(state(&daemon, &id), "pending");
}

#[test]
fn only_a_key_that_the_policy_names_decides_and_only_on_what_was_shown() {
    let daemon = ground();
    let token = builder(&daemon);
    let id = asked(&daemon.holder(&token).post("/v1/sandboxes", &build()));
    let path = format!("/v1/approvals/{id}/approve");
    let own = daemon.world.path("own.key");
    let own = own.to_str().expect("a path");
    daemon.world.ringwall(["approvals", "keygen", "--key", own]).exits(0);
    let seal = daemon.world.home().join("keys/approvals.seal");
    let cases = [
        (json!({ "reason": YES, "key": own }), 403, "not-an-approver"),
        (json!({ "reason": YES, "key": "/absent" }), 422, "refused"),
        (json!({ "reason": YES, "key": "relative" }), 400, "bad-request"),
        (json!({ "reason": YES, "key": seal }), 422, "refused"),
        (json!({ "reason": " " }), 400, "bad-request"),
        (json!({}), 400, "bad-request"),
        (json!({ "reason": YES, "seconds": 0 }), 400, "bad-request"),
        (json!({ "reason": YES, "seconds": 601 }), 400, "bad-request"),
        (json!({ "reason": YES, "action_sha256": "0" }), 400, "bad-request"),
    ];
    for (fields, status, code) in cases {
        daemon.client().post(&path, &fields).is_problem(status, code);
    }
    let unknown = daemon.client().post("/v1/approvals/apr-000000000000/approve", &json!({}));
    unknown.is_problem(404, "not-found");
    assert_eq!(state(&daemon, &id), "pending");
    approve(&daemon, &id, &json!({ "seconds": 600 }));
}

#[test]
fn of_many_at_once_one_decides_and_one_has_the_use() {
    const MANY: usize = 6;
    let daemon = ground();
    let token = builder(&daemon);
    let id = asked(&daemon.holder(&token).post("/v1/sandboxes", &build()));
    let path = format!("/v1/approvals/{id}/approve");
    let together = |ask: &(dyn Fn() -> u16 + Sync)| -> Vec<u16> {
        let begin = Barrier::new(MANY);
        std::thread::scope(|scope| {
            let begun: Vec<_> = (0..MANY)
                .map(|_| {
                    scope.spawn(|| {
                        begin.wait();
                        ask()
                    })
                })
                .collect();
            begun.into_iter().map(|thread| thread.join().expect("an answer")).collect()
        })
    };
    let count = |all: &[u16], status: u16| all.iter().filter(|one| **one == status).count();
    let yes = json!({ "reason": YES });
    let decided = together(&|| daemon.client().post(&path, &yes).status);
    assert_eq!((count(&decided, 200), count(&decided, 409)), (1, MANY - 1), "{decided:?}");
    let run = json!({ "wall": "process", "kind": "build", "command": sh("true") });
    let id = asked(&daemon.holder(&token).post("/v1/runs", &run));
    approve(&daemon, &id, &json!({}));
    let used = together(&|| daemon.holder(&token).post("/v1/runs", &run).status);
    assert_eq!((count(&used, 200), count(&used, 403)), (1, MANY - 1), "{used:?}");
    assert_eq!(events(&daemon, "approval-approved"), 2);
    assert_eq!(events(&daemon, "approval-used"), 1);
}

#[test]
fn after_its_end_a_yes_is_worth_nothing() {
    let daemon = ground();
    let token = builder(&daemon);
    let mut holder = daemon.holder(&token);
    let id = asked(&holder.post("/v1/sandboxes", &build()));
    approve(&daemon, &id, &json!({ "seconds": 1 }));
    eventually("its end", || (state(&daemon, &id) == "over").then_some(()));
    assert_ne!(asked(&holder.post("/v1/sandboxes", &build())), id);
    // Nobody used it, and still its end is written down, by the daemon itself.
    eventually("the record of it", || (events(&daemon, "approval-returned") == 1).then_some(()));
    // A question ends with the grant that it was asked with.
    let brief = json!({ "kinds": ["files", "build"], "lifetime_seconds": 2 });
    let brief = daemon.grant("acme", &brief);
    let id = asked(&daemon.holder(&brief).post("/v1/sandboxes", &build()));
    eventually("its end", || (state(&daemon, &id) == "lapsed").then_some(()));
    let late =
        daemon.client().post(&format!("/v1/approvals/{id}/approve"), &json!({ "reason": YES }));
    late.is_problem(409, "already-decided");
    // What goes ahead by a yes stops when that ends.
    let run = json!({ "wall": "process", "kind": "build", "command": sh("sleep 60") });
    let id = asked(&holder.post("/v1/runs", &run));
    approve(&daemon, &id, &json!({ "seconds": 2 }));
    assert_eq!(holder.post("/v1/runs", &run).is(200).json()["ending"], "timeout");
}

#[test]
fn a_command_is_allowed_in_one_sandbox_and_in_these_words() {
    let daemon = ground();
    let token = builder(&daemon);
    let mut holder = daemon.holder(&token);
    let asks = json!({ "wall": "process", "kind": "files" });
    let mut made = || holder.post("/v1/sandboxes", &asks).is(201).field("id");
    let (one, two) = (made(), made());
    let exec = |id: &str, more: &Value| {
        let mut fields = sh("echo built");
        fields["kind"] = json!("build");
        for (name, value) in more.as_object().expect("fields") {
            fields[name] = value.clone();
        }
        daemon.holder(&token).post(&format!("/v1/sandboxes/{id}/exec"), &fields)
    };
    let id = asked(&exec(&one, &json!({})));
    let shown = daemon.client().get(&format!("/v1/approvals/{id}")).is(200).json();
    assert_eq!(
        (&shown["action"]["action"], &shown["action"]["sandbox"]),
        (&json!("exec"), &json!(one))
    );
    approve(&daemon, &id, &json!({}));
    let mut ids = vec![id];
    let others = [
        (&two, json!({})),
        (&one, json!({ "argv": ["sh", "-c", "echo else"] })),
        (&one, json!({ "env": { "LD_PRELOAD": "/tmp/x" } })),
        (&one, json!({ "cwd": "/tmp" })),
        (&one, json!({ "stdin": "more" })),
        (&one, json!({ "stdin": "less" })),
        (&one, json!({ "timeout_ms": 1000 })),
    ];
    for (sandbox, more) in others {
        let id = asked(&exec(sandbox, &more));
        assert!(!ids.contains(&id), "{more}");
        ids.push(id);
    }
    assert_eq!(exec(&one, &json!({})).is(200).json()["stdout"], "built\n");
    assert!(!ids.contains(&asked(&exec(&one, &json!({})))), "once");
    assert_eq!(events(&daemon, "approval-returned"), 1);
}

#[test]
fn tools_changes_and_phases_are_asked_for_and_allowed_too() {
    let daemon = ground();
    let wasm = component(&manifest("maybe"), &Does::Returns("{\"ok\":true}"));
    let path = daemon.world.path("maybe.wasm");
    fs::write(&path, wasm).expect("a file");
    daemon.world.ringwall(["tool", "add", path.to_str().expect("a path")]).exits(0);
    daemon.world.write("a.txt", "old\n");
    let project = daemon.world.project();
    let rights = json!({
        "tools": ["maybe"], "read": [project], "write": [project], "phases": ["check"],
        "budget": { "calls": 3 },
    });
    let token = daemon.grant("acme", &rights);
    let mut holder = daemon.holder(&token);
    // Each is refused, asked for, allowed, done, and refused again.
    let mut goes = |path: &str, body: &Value, other: &Value| -> Value {
        let id = asked(&holder.post(path, body));
        approve(&daemon, &id, &json!({}));
        assert_ne!(asked(&holder.post(path, other)), id, "{path}");
        let done = holder.post(path, body).is(200).json();
        assert_eq!(state(&daemon, &id), "over", "{path}");
        done
    };
    let called = goes("/v1/tools/maybe/call", &json!({}), &json!({ "seed": 1 }));
    assert_eq!(called["output"], json!({ "ok": true }));
    let asks = json!({ "wall": "process", "kind": "files", "workspace": { "path": project } });
    let id = daemon.holder(&token).post("/v1/sandboxes", &asks).is(201).field("id");
    let at = |what: &str| format!("/v1/sandboxes/{id}/{what}");
    daemon.holder(&token).post(&at("exec"), &files("echo new > a.txt; echo b > b.txt")).is(200);
    daemon
        .holder(&token)
        .post(&at("phase"), &json!({ "to": "plan" }))
        .is_problem(403, "not-granted");
    let to = json!({ "to": "check" });
    let question = asked(&daemon.holder(&token).post(&at("phase"), &to));
    // The command line asks the same.
    let file = daemon.world.path("token");
    fs::write(&file, &token).expect("a file");
    let line = ["phase", &id, "check", "--grant", file.to_str().expect("a path")];
    daemon.world.ringwall(line).is_refused().says(&[&question]);
    approve(&daemon, &question, &json!({}));
    assert_eq!(daemon.holder(&token).post(&at("phase"), &to).is(200).json()["phase"], "check");
    assert_eq!(daemon.holder(&token).get(&at("phase")).is(200).json()["phase"], "check");
    daemon.holder(&token).delete(&format!("/v1/sandboxes/{id}?keep=true")).is(204);
    let all = json!({ "paths": ["a.txt"] });
    let applied = goes(&at("apply"), &all, &json!({ "paths": ["b.txt"] }));
    assert_eq!(applied["applied"], json!(["a.txt"]));
    assert_eq!(daemon.world.read("a.txt"), "new\n");
    // What was refused was not paid for: of two calls, two were made.
    let spent = daemon.holder(&token).post("/v1/tools/maybe/call", &json!({}));
    spent.is_problem(403, "budget-exhausted");
}

#[test]
fn the_command_line_asks_the_same_question_and_takes_the_same_answer() {
    let daemon = ground();
    let token = builder(&daemon);
    let file = daemon.world.path("token");
    fs::write(&file, &token).expect("a file");
    let file = file.to_str().expect("a path");
    let run = json!({ "wall": "process", "kind": "build", "command": sh("echo built") });
    let id = asked(&daemon.holder(&token).post("/v1/runs", &run));
    let line = ["run", "--grant", file, "--wall", "process", "--kind", "build"];
    let words = ["--", "sh", "-c", "echo built"];
    let refused = daemon.world.ringwall([&line[..], &words].concat());
    assert!(refused.is_refused().err().contains(&id), "{}", refused.err());
    let variable = daemon.world.ringwall([&line[..], &["--env", "A=1"], &words].concat());
    assert!(!variable.is_refused().err().contains(&id), "{}", variable.err());
    let yes = ["approvals", "approve", &id, "--reason", YES];
    daemon.world.ringwall(yes).exits(0);
    assert_eq!(daemon.holder(&token).post("/v1/runs", &run).is(200).json()["stdout"], "built\n");
    daemon.world.ringwall([&line[..], &words].concat()).is_refused();
}
