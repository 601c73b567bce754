//! `ringwall mcp wrap`: somebody else's server behind a wall.

use std::net::TcpListener;

use serde_json::json;

use crate::support::{Agent, Others, World};

/// A server that does whatever it is asked to, and would rather do more.
const SERVER: &str = r#"
import json, os, socket, sys

def act(name, given):
    if name == "read":
        return open(given["path"]).read()
    if name == "write":
        open(given["path"], "w").write(given["text"])
        return "written"
    if name == "connect":
        socket.create_connection((given["host"], given["port"]), timeout=5).close()
        return "connected"
    if name == "environment":
        return json.dumps(dict(os.environ))

for line in sys.stdin:
    message = json.loads(line)
    if "id" not in message:
        continue
    if message["method"] == "initialize":
        result = {"protocolVersion": "2025-11-25", "capabilities": {"tools": {}},
                  "serverInfo": {"name": "greedy", "version": "1"}}
    else:
        params = message["params"]
        try:
            text, failed = act(params["name"], params["arguments"]), False
        except Exception as error:
            text, failed = repr(error), True
        result = {"content": [{"type": "text", "text": text}], "isError": failed}
    print(json.dumps({"jsonrpc": "2.0", "id": message["id"], "result": result}), flush=True)
"#;

fn text(agent: &mut Agent, tool: &str, arguments: serde_json::Value) -> String {
    let result = agent.ask("tools/call", &json!({"name": tool, "arguments": arguments}));
    assert_eq!(result["isError"], false, "{result}");
    result["content"][0]["text"].as_str().expect("text").to_owned()
}

#[test]
fn a_greedy_server_gets_no_further_than_its_wall() {
    let world = World::new();
    world.write("notes.txt", "mine\n");
    world.write("server.py", SERVER);
    std::fs::write(world.home().join("canary"), "secret").expect("a file");
    let project = world.project();
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = listener.local_addr().expect("an address").port();
    let flags = ["mcp", "wrap", "--workspace", ".", "--", "python3", "server.py"];
    let mut command = world.command(flags);
    command.env("API_KEY", "canary-key");
    let mut agent = Agent::of(command);
    // What it is for works, and the host's files stay as they are.
    let notes = project.join("notes.txt");
    assert_eq!(text(&mut agent, "read", json!({"path": notes})), "mine\n");
    text(&mut agent, "write", json!({"path": notes, "text": "theirs\n"}));
    assert_eq!(text(&mut agent, "read", json!({"path": notes})), "theirs\n");
    assert_eq!(world.read("notes.txt"), "mine\n");
    // What it is not for does not.
    let canary = world.home().join("canary");
    agent.failed("read", json!({ "path": canary }));
    agent.failed("write", json!({"path": "/etc/ringwall-canary", "text": "x"}));
    agent.failed("connect", json!({"host": "127.0.0.1", "port": port}));
    agent.failed("connect", json!({"host": "192.0.2.1", "port": 443}));
    let environment = text(&mut agent, "environment", json!({}));
    assert!(!environment.contains("canary-key"), "{environment}");
    assert_eq!(agent.leave(), Some(0));
    // Outside of a wall all of it would have worked.
    assert!(std::net::TcpStream::connect(("127.0.0.1", port)).is_ok());
    assert!(std::fs::read_to_string(canary).is_ok());
    let kept = world.sandboxes();
    let id = kept[0]["id"].as_str().expect("changes are kept");
    let patch = world.ringwall(["diff", id]);
    let patch = String::from_utf8_lossy(&patch.stdout).into_owned();
    assert!(patch.contains("+theirs"), "{patch}");
}

#[test]
fn the_file_server_of_the_protocols_own_project_stays_inside() {
    let Some(others) = Others::found("the_file_server_of_the_protocols_own_project_stays_inside")
    else {
        return;
    };
    let world = World::new();
    world.write("notes.txt", "mine\n");
    std::fs::write(world.home().join("canary"), "secret").expect("a file");
    let place = others.place().to_str().expect("a path").to_owned();
    let node = others.node().to_str().expect("a path").to_owned();
    let server =
        format!("{place}/node_modules/@modelcontextprotocol/server-filesystem/dist/index.js");
    // The server itself would give away the whole machine.
    let flags = [
        "mcp",
        "wrap",
        "--workspace",
        ".",
        "--ro",
        &place,
        "--memory",
        "2G",
        "--",
        &node,
        &server,
        "/",
    ];
    let mut agent = Agent::of(world.command(flags));
    let notes = world.project().join("notes.txt");
    let read = json!({"name": "read_text_file", "arguments": {"path": notes}});
    let read = agent.ask("tools/call", &read);
    assert!(read["content"][0]["text"].as_str().expect("text").contains("mine"), "{read}");
    let write = json!({"path": notes, "content": "theirs\n"});
    let written = agent.ask("tools/call", &json!({"name": "write_file", "arguments": write}));
    assert_ne!(written["isError"], true, "{written}");
    assert_eq!(world.read("notes.txt"), "mine\n");
    for (tool, arguments) in [
        ("read_text_file", json!({"path": world.home().join("canary")})),
        ("write_file", json!({"path": "/etc/ringwall-canary", "content": "x"})),
    ] {
        let asked = json!({"name": tool, "arguments": arguments});
        let result = agent.ask("tools/call", &asked);
        assert_eq!(result["isError"], true, "{tool}: {result}");
    }
    assert!(!std::path::Path::new("/etc/ringwall-canary").exists());
}
