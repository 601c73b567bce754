//! `ringwall mcp` as a client that speaks by hand meets it.

use serde_json::{Value, json};

use crate::support::tool::{Does, component, manifest};
use crate::support::{Agent, Daemon, World, eventually};

fn install(world: &World, name: &str, does: &Does<'_>) {
    let path = world.path(format!("{name}.wasm"));
    std::fs::write(&path, component(&manifest(name), does)).expect("a file");
    world.ringwall(["tool", "add", path.to_str().expect("a path")]).exits(0);
}

#[test]
fn a_task_is_done_from_beginning_to_end() {
    let daemon = Daemon::start();
    daemon.world.write("poem.txt", "roses are red\n");
    let mut agent = Agent::start(&daemon.world, &[]);
    let made = agent.call("sandbox_create", json!({"name": "task"}));
    assert_eq!(made["wall"], "process");
    let line =
        json!({"sandbox": "task", "command": "cat poem.txt; echo violets >> poem.txt; exit 3"});
    let ran = agent.call("sandbox_exec", line);
    assert_eq!(ran["stdout"], "roses are red\n");
    assert_eq!((&ran["exit_code"], &ran["ending"]), (&json!(3), &json!("exited")));
    assert_eq!(ran["wall"], "process");
    let project = daemon.world.project();
    let new = project.join("new.txt");
    let write = json!({"sandbox": "task", "path": new, "text": "new\n"});
    assert_eq!(agent.call("sandbox_fs_write", write)["bytes"], 4);
    let read = json!({"sandbox": "task", "path": new, "offset": 1, "max_bytes": 2});
    let read = agent.call("sandbox_fs_read", read);
    assert_eq!((&read["text"], &read["more"]), (&json!("ew"), &json!(true)));
    let listed = agent.call("sandbox_fs_list", json!({"sandbox": "task", "path": project}));
    assert!(listed["entries"].to_string().contains("new.txt"), "{listed}");
    // Nothing is written to the host, and nothing is shown, before the sandbox has ended.
    let early = agent.failed("sandbox_fs_diff", json!({"sandbox": "task"}));
    assert!(early.contains("sandbox_stop"), "{early}");
    assert_eq!(agent.call("sandbox_stop", json!({"sandbox": "task"}))["kept"], true);
    let patch = agent.call("sandbox_fs_diff", json!({"sandbox": "task"}));
    assert!(patch["patch"].as_str().expect("a patch").contains("+violets"), "{patch}");
    assert_eq!(daemon.world.read("poem.txt"), "roses are red\n");
    let only = json!({"sandbox": "task", "paths": ["poem.txt"]});
    assert_eq!(agent.call("sandbox_fs_apply", only)["applied"], json!(["poem.txt"]));
    assert_eq!(daemon.world.read("poem.txt"), "roses are red\nviolets\n");
    assert!(!new.exists());
}

#[test]
fn results_say_where_they_ran_and_whose_words_they_are() {
    let daemon = Daemon::start();
    let mut agent = Agent::start(&daemon.world, &[]);
    let code = json!({"language": "shell", "code": "echo out; echo err >&2"});
    let asked = json!({"name": "sandbox_run_code", "arguments": code});
    let result = agent.ask("tools/call", &asked);
    assert_eq!(result["structuredContent"]["stdout"], "out\n");
    assert_eq!(result["structuredContent"]["stderr"], "err\n");
    assert_eq!(result["structuredContent"]["wall"], "process");
    assert_eq!(result["_meta"]["ringwall/wall"], "process");
    assert_eq!(result["_meta"]["ringwall/untrusted"], true);
    assert!(daemon.world.sandboxes().is_empty(), "a fresh wall is gone afterwards");
}

#[test]
fn tools_in_wasm_are_offered_as_they_describe_themselves() {
    let daemon = Daemon::start();
    install(&daemon.world, "yes", &Does::Returns("{\"ok\":true}"));
    install(&daemon.world, "no", &Does::Fails("broken", "it is broken"));
    let mut agent = Agent::start(&daemon.world, &[]);
    let tools = agent.tools();
    let yes = tools.iter().find(|tool| tool["name"] == "yes").expect("it is offered");
    assert_eq!(yes["description"], "A test");
    assert_eq!(yes["inputSchema"], manifest("yes")["input"]);
    assert_eq!(yes["outputSchema"], manifest("yes")["output"]);
    assert_eq!(yes["annotations"]["readOnlyHint"], true);
    let result = agent.ask("tools/call", &json!({"name": "yes", "arguments": {"n": 2}}));
    assert_eq!(result["structuredContent"], json!({"ok": true}));
    assert_eq!(result["_meta"]["ringwall/wall"], "wasm");
    let why = agent.failed("no", json!({}));
    assert!(why.contains("it is broken") && why.contains("wasm"), "{why}");
    agent.failed("yes", json!({"n": 0}));
    let unknown = agent.refused("tools/call", &json!({"name": "absent", "arguments": {}}));
    assert!(unknown.contains("no tool"), "{unknown}");
}

#[test]
fn what_is_not_offered_cannot_be_called_either() {
    let daemon = Daemon::start();
    install(&daemon.world, "yes", &Does::Returns("{\"ok\":true}"));
    let mut agent = Agent::start(&daemon.world, &["--tools", "sandbox_fs_*,sandbox_create"]);
    let names = agent.tool_names();
    assert!(names.iter().all(|name| name.starts_with("sandbox_fs_") || name == "sandbox_create"));
    assert_eq!(names.len(), 6, "{names:?}");
    for tool in ["sandbox_exec", "sandbox_run_code", "yes", "approve", "grant"] {
        let why = agent.refused("tools/call", &json!({"name": tool, "arguments": {}}));
        assert!(why.contains("not offered"), "{why}");
    }
}

#[test]
fn an_agent_stays_in_its_workspace_and_its_sandboxes() {
    let daemon = Daemon::start();
    daemon.world.write("sub/file", "x");
    let mut agent = Agent::start(&daemon.world, &[]);
    for outside in ["/", "/etc", "..", daemon.world.home().to_str().expect("text")] {
        let why = agent.failed("sandbox_create", json!({"workspace": outside}));
        assert!(why.contains("not in the workspace"), "{why}");
    }
    let made = agent.call("sandbox_create", json!({"workspace": "sub"}));
    assert!(made["workspace"].as_str().expect("a path").ends_with("project/sub"), "{made}");
    // Another's sandbox is none of its business, though both ask the same daemon as its owner.
    let mut other = Agent::start(&daemon.world, &[]);
    let theirs = other.sandbox(json!({}));
    for (tool, more) in [
        ("sandbox_exec", json!({"command": "true"})),
        ("sandbox_fs_read", json!({"path": "/etc/hostname"})),
        ("sandbox_stop", json!({})),
        ("sandbox_fs_apply", json!({})),
    ] {
        let mut arguments = more;
        arguments["sandbox"] = json!(theirs);
        let why = agent.failed(tool, arguments);
        assert!(why.contains("no sandbox"), "{tool}: {why}");
    }
    let uri = format!("ringwall://sandbox/{theirs}/files/etc/hostname");
    agent.refused("resources/read", &json!({ "uri": uri }));
    // Protected paths and force are for people.
    for field in ["allow_protected", "force"] {
        let why = agent.failed("sandbox_fs_apply", json!({"sandbox": theirs, field: true}));
        assert!(why.contains("arguments are wrong"), "{why}");
    }
}

/// A workspace is judged by its path on the host, however far down an agent begins.
#[test]
fn an_agent_whose_workspace_is_a_protected_or_hidden_directory_gets_no_further() {
    let daemon = Daemon::start();
    let world = &daemon.world;
    world.write(".git/HEAD", "ref: refs/heads/main\n");
    world.write(".git/hooks/pre-commit", "mine\n");
    world.write(".github/workflows/ci.yml", "mine\n");
    world.write(".aws/credentials", "SECRET-OF-THE-HOME");
    let flag = |path: &str| {
        let path = world.project().join(path);
        ["--workspace".to_owned(), path.to_str().expect("text").to_owned()]
    };
    for (place, file) in [(".github", "workflows/ci.yml"), (".git/hooks", "pre-commit")] {
        for own in [false, true] {
            // As the agent's choice in its workspace, or as the workspace that a person gave it.
            let flags = flag(if own { place } else { "." });
            let mut agent = Agent::start(world, &flags.each_ref().map(String::as_str));
            let asked = if own { json!({}) } else { json!({"workspace": place}) };
            let sandbox = agent.sandbox(asked);
            let line = json!({"sandbox": sandbox, "command": format!("echo theirs >{file}")});
            assert_eq!(agent.call("sandbox_exec", line)["exit_code"], 0);
            agent.call("sandbox_stop", json!({"sandbox": sandbox}));
            let why = agent.failed("sandbox_fs_apply", json!({"sandbox": sandbox}));
            assert!(why.contains("protected"), "{place}: {why}");
            assert_eq!(world.read(&format!("{place}/{file}")), "mine\n");
        }
    }
    for own in [false, true] {
        let flags = flag(if own { ".aws" } else { "." });
        let mut agent = Agent::start(world, &flags.each_ref().map(String::as_str));
        let asked = if own { json!({}) } else { json!({"workspace": ".aws"}) };
        let why = agent.failed("sandbox_create", asked);
        assert!(why.contains("hidden"), "{why}");
    }
}

#[test]
fn the_wall_that_a_person_settled_is_not_the_agents_to_choose() {
    let daemon = Daemon::start();
    let mut agent = Agent::start(&daemon.world, &["--wall", "process/wasm", "--no-workspace"]);
    let tools = agent.tools();
    let create = tools.iter().find(|tool| tool["name"] == "sandbox_create").expect("it is there");
    assert!(create["inputSchema"]["properties"].get("wall").is_none());
    let why = agent.failed("sandbox_create", json!({"wall": "process"}));
    assert!(why.contains("process/wasm"), "{why}");
    assert_eq!(agent.call("sandbox_create", json!({}))["wall"], "process/wasm");
    let why = agent.failed("sandbox_create", json!({"workspace": "/tmp"}));
    assert!(why.contains("no workspace"), "{why}");
}

#[test]
fn progress_is_told_and_a_cancelled_command_is_ended() {
    let daemon = Daemon::start();
    let mut agent = Agent::start(&daemon.world, &[]);
    let sandbox = agent.sandbox(json!({}));
    let line = "echo begun; sleep 4321";
    let params = json!({"name": "sandbox_exec", "arguments": {"sandbox": sandbox, "command": line},
        "_meta": {"progressToken": "p1"}});
    let call = agent.begin("tools/call", &params);
    let note = agent.next_note();
    assert_eq!(note["method"], "notifications/progress", "{note}");
    assert_eq!(note["params"]["progressToken"], "p1");
    assert_eq!(note["params"]["message"], "begun");
    let sleepers = |agent: &mut Agent| {
        let look = "cat /proc/[0-9]*/cmdline | tr '\\0' ' ' | grep -c 'sleep [4]321' || true";
        agent.call("sandbox_exec", json!({"sandbox": sandbox, "command": look}))["stdout"].clone()
    };
    assert_ne!(sleepers(&mut agent), "0\n");
    agent.tell("notifications/cancelled", &json!({"requestId": call, "reason": "enough"}));
    eventually("the command has ended", || (sleepers(&mut agent) == "0\n").then_some(()));
}

#[test]
fn a_session_that_ends_ends_what_it_started_and_keeps_the_work() {
    let daemon = Daemon::start();
    let mut agent = Agent::start(&daemon.world, &[]);
    let sandbox = agent.sandbox(json!({}));
    let arguments = json!({"sandbox": sandbox, "command": "echo work > done.txt"});
    agent.call("sandbox_exec", arguments);
    agent.begin(
        "tools/call",
        &json!({"name": "sandbox_exec",
        "arguments": {"sandbox": sandbox, "command": "sleep 1000"}}),
    );
    assert_eq!(agent.leave(), Some(0));
    let left = daemon.world.sandboxes();
    assert!(left.iter().all(|record| record["state"] != "running"), "{left:?}");
    let patch = daemon.world.ringwall(["diff", &sandbox]);
    patch.exits(0);
    let patch = String::from_utf8_lossy(&patch.stdout).into_owned();
    assert!(patch.contains("+work"), "{patch}");
    daemon.world.ringwall(["rm", &sandbox]).exits(0);
}

#[test]
fn files_and_logs_can_be_read_as_resources() {
    let daemon = Daemon::start();
    daemon.world.write("a file.txt", "content");
    let mut agent = Agent::start(&daemon.world, &[]);
    let sandbox = agent.sandbox(json!({}));
    let listed = agent.ask("resources/list", &json!({}));
    let uri = listed["resources"][0]["uri"].as_str().expect("a resource").to_owned();
    assert_eq!(uri, format!("ringwall://sandbox/{sandbox}/files/"));
    let root = agent.ask("resources/read", &json!({ "uri": uri }));
    assert!(root["contents"][0]["text"].as_str().expect("text").contains("etc/\n"), "{root}");
    let path = format!("{}/a%20file.txt", daemon.world.project().display());
    let uri = format!("ringwall://sandbox/{sandbox}/files{path}");
    let file = agent.ask("resources/read", &json!({ "uri": uri }));
    assert_eq!(file["contents"][0]["text"], "content");
    let exec = json!({"sandbox": sandbox, "command": "echo written"});
    let call = agent.call("sandbox_exec", exec)["call"].as_str().expect("an id").to_owned();
    let uri = format!("ringwall://call/{call}/log");
    let log = agent.ask("resources/read", &json!({ "uri": uri }));
    assert_eq!(log["contents"][0]["text"], "written\n");
    let templates = agent.ask("resources/templates/list", &json!({}));
    assert_eq!(templates["resourceTemplates"].as_array().map(Vec::len), Some(2));
    for wrong in
        ["file:///etc/passwd", "ringwall://sandbox/x/files/etc/passwd", "ringwall://call/x/log"]
    {
        agent.refused("resources/read", &json!({ "uri": wrong }));
    }
}

#[test]
fn with_a_grant_the_agent_has_what_the_grant_says() {
    let daemon = Daemon::for_tenants(&[]);
    install(&daemon.world, "yes", &Does::Returns("{\"ok\":true}"));
    install(&daemon.world, "no", &Does::Fails("broken", "it is broken"));
    let token = daemon.grant("acme", &json!({"tools": ["yes"], "budget": {"calls": 2}}));
    let file = daemon.world.path("token");
    std::fs::write(&file, &token).expect("a file");
    let flags = ["--no-workspace", "--grant", file.to_str().expect("a path")];
    let mut agent = Agent::start(&daemon.world, &flags);
    let names = agent.tool_names();
    assert!(names.contains(&"yes".to_owned()) && !names.contains(&"no".to_owned()), "{names:?}");
    let why = agent.failed("no", json!({}));
    assert!(why.contains("not-granted"), "{why}");
    assert_eq!(agent.call("yes", json!({})), json!({"ok": true}));
    agent.call("yes", json!({}));
    let why = agent.failed("yes", json!({}));
    assert!(why.contains("budget-exhausted"), "{why}");
}

#[test]
fn a_daemon_is_started_where_none_answers_and_serves_the_next_one_too() {
    let world = World::new();
    // As on a machine that never saw Ringwall.
    std::fs::remove_dir(world.home()).expect("an empty directory");
    let mut agent = Agent::start(&world, &[]);
    let mut second = Agent::start(&world, &[]);
    let ran = json!({"language": "shell", "code": "echo hello"});
    assert_eq!(agent.call("sandbox_run_code", ran.clone())["stdout"], "hello\n");
    assert_eq!(agent.leave(), Some(0));
    assert_eq!(second.call("sandbox_run_code", ran.clone())["stdout"], "hello\n");
    // Killed under it, the daemon is started anew.
    let daemon = daemon_of(&world);
    rustix::process::kill_process(daemon, rustix::process::Signal::KILL).expect("it is there");
    eventually("the daemon is gone or another one is there", || {
        let gone = std::os::unix::net::UnixStream::connect(world.home().join("api.sock")).is_err();
        (gone || daemon_of(&world) != daemon).then_some(())
    });
    assert_eq!(second.call("sandbox_run_code", ran)["stdout"], "hello\n");
    assert_eq!(second.leave(), Some(0));
    rustix::process::kill_process(daemon_of(&world), rustix::process::Signal::TERM)
        .expect("it is there");
    let socket = world.home().join("api.sock");
    eventually("the daemon ends in order", || (!socket.exists()).then_some(()));
    let _ = world.command(["gc"]).output();
}

fn daemon_of(world: &World) -> rustix::process::Pid {
    let stream = std::os::unix::net::UnixStream::connect(world.home().join("api.sock"));
    let peer = rustix::net::sockopt::socket_peercred(stream.expect("a daemon answers"));
    peer.expect("it is known").pid
}

#[test]
fn text_that_is_no_request_does_no_harm() {
    let daemon = Daemon::start();
    let mut agent = Agent::start(&daemon.world, &[]);
    for arguments in [
        json!({"sandbox": "../../v1/grants", "path": "/"}),
        json!({"sandbox": "x", "path": "\u{0}"}),
        json!({"path": "/etc"}),
        Value::Null,
    ] {
        let params = json!({"name": "sandbox_fs_list", "arguments": arguments});
        let id = agent.begin("tools/call", &params);
        let answer = agent.answer(id);
        let refused = answer.get("error").is_some() || answer["result"]["isError"] == true;
        assert!(refused, "{answer}");
    }
    assert!(agent.tool_names().contains(&"sandbox_exec".to_owned()));
}
