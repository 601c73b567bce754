//! REST and MCP decide about paths and walls like the command line.

use serde_json::{Value, json};

use crate::support::{Agent, Daemon};

const RAILS: &str = "@id(\"no-locks\") forbid(principal, action == Action::\"write\", resource)\n\
                     when { resource.path like \"*.lock\" };";

#[test]
fn apply_asks_for_the_paths_that_it_writes_however_they_are_spelled() {
    let daemon = Daemon::for_tenants(&[]);
    let rails = daemon.world.path("nobody-home/.config/ringwall/ringwall.cedar");
    std::fs::write(rails, RAILS).expect("a file");
    let project = daemon.world.project();
    let mut agent = Agent::start(&daemon.world, &[]);
    let id = agent.sandbox(json!({"kind": "files"}));
    let script = "echo x > deps.lock; echo y > code.c; echo z > more.c; echo z > last.c";
    agent.call("sandbox_exec", json!({"sandbox": id, "command": script, "kind": "files"}));
    agent.call("sandbox_stop", json!({"sandbox": id}));
    let whole = |name: &str| project.join(name).display().to_string();
    let mut client = daemon.client();
    let apply = format!("/v1/sandboxes/{id}/apply");
    let (all, top) = (project.display().to_string(), whole("deps.lock"));
    for path in ["deps.lock", "./deps.lock", &top, "./", ".", &all] {
        let refused = client.post(&apply, &json!({"paths": [path]}));
        assert!(refused.is_problem(403, "denied-by-policy").text().contains("no-locks"), "{path}");
        let why = agent.failed("sandbox_fs_apply", json!({"sandbox": id, "paths": [path]}));
        assert!(why.contains("no-locks"), "{path}: {why}");
    }
    client.post(&apply, &json!({})).is_problem(403, "denied-by-policy");
    for outside in ["../code.c", "/etc/passwd"] {
        assert_ne!(client.post(&apply, &json!({"paths": [outside]})).status, 200, "{outside}");
        agent.failed("sandbox_fs_apply", json!({"sandbox": id, "paths": [outside]}));
    }
    assert!(!project.join("code.c").exists(), "nothing was written so far");
    // What may be written is, in each of the spellings.
    let applied = |done: &Value| done["applied"].clone();
    let by_rest = client.post(&apply, &json!({"paths": ["./code.c"]})).is(200).json();
    assert_eq!(applied(&by_rest), json!(["code.c"]));
    let absolute = json!({"sandbox": id, "paths": [whole("more.c")]});
    assert_eq!(applied(&agent.call("sandbox_fs_apply", absolute)), json!(["more.c"]));
    let rest = json!({"sandbox": id, "paths": ["./"], "except": ["./deps.lock"]});
    assert_eq!(applied(&agent.call("sandbox_fs_apply", rest)), json!(["last.c"]));
    assert!(!project.join("deps.lock").exists());
}

#[test]
fn commands_behind_a_ring_for_tools_are_judged_by_the_rings_round_them() {
    let daemon = Daemon::for_tenants(&[]);
    let mut agent = Agent::start(&daemon.world, &[]);
    let asked = |wall: &str, kind: &str| json!({"wall": wall, "kind": kind});
    let code = |wall: &str, kind: &str| {
        let fields = json!({"language": "shell", "code": "echo ran > canary"});
        let mut fields = fields.as_object().cloned().expect("fields");
        fields.extend(asked(wall, kind).as_object().cloned().expect("fields"));
        Value::Object(fields)
    };
    // Where a process is enough, so is one with a ring for tools inside.
    let id = agent.sandbox(asked("process/wasm", "files"));
    agent.call("sandbox_stop", json!({"sandbox": id, "keep": false}));
    // Where it is not, that ring changes nothing.
    for wall in ["process/wasm", "process"] {
        let why = agent.failed("sandbox_create", asked(wall, "untrusted"));
        assert!(why.contains("refused"), "{wall}: {why}");
        let why = agent.failed("sandbox_run_code", code(wall, "untrusted"));
        assert!(why.contains("refused"), "{wall}: {why}");
    }
    daemon.world.write("ringwall.toml", "version = 1\nrisk = \"medium\"\n");
    for wall in ["process/wasm", "process"] {
        let why = agent.failed("sandbox_create", asked(wall, "files"));
        assert!(why.contains("risk-levels.medium"), "{wall}: {why}");
        let why = agent.failed("sandbox_run_code", code(wall, "files"));
        assert!(why.contains("risk-levels.medium"), "{wall}: {why}");
    }
}
