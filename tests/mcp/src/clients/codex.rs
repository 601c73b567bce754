//! OpenAI's Codex drives `ringwall mcp`. The agent is the real one; what its model says is written here.

use std::io::{BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener};
use std::process::Stdio;
use std::sync::{Arc, Mutex};
use std::thread;

use serde_json::{Value, json};

use super::server;
use crate::support::{Daemon, Others, read_request};

/// A model on loopback that answers each request by what was done before.
struct Model {
    address: SocketAddr,
    requests: Arc<Mutex<Vec<Value>>>,
}

impl Model {
    fn start() -> Model {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("an address");
        let requests = Arc::new(Mutex::new(Vec::new()));
        let seen = Arc::clone(&requests);
        thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                let seen = Arc::clone(&seen);
                thread::spawn(move || answer(stream, &seen, &next));
            }
        });
        Model { address, requests }
    }
}

/// Answers one request, with what `script` makes of it.
pub(crate) fn answer(
    stream: impl Read + Write,
    seen: &Mutex<Vec<Value>>,
    script: &dyn Fn(&Value) -> Value,
) -> Option<String> {
    let mut reader = BufReader::new(stream);
    let (head, body) = read_request(&mut reader)?;
    let stream = reader.get_mut();
    if !head.starts_with("POST /v1/responses") {
        let none = "HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\nconnection: close\r\n\r\n";
        stream.write_all(none.as_bytes()).and_then(|()| stream.flush()).ok()?;
        return Some(head);
    }
    let request: Value = serde_json::from_slice(&body).ok()?;
    let item = script(&request);
    seen.lock().ok()?.push(request);
    let done = json!({"type": "response.completed", "response": {"id": "r", "usage": {
        "input_tokens": 1, "output_tokens": 1, "total_tokens": 2,
        "input_tokens_details": {"cached_tokens": 0},
        "output_tokens_details": {"reasoning_tokens": 0}}}});
    let events = [
        json!({"type": "response.created", "response": {"id": "r"}}),
        json!({"type": "response.output_item.done", "output_index": 0, "item": item}),
        done,
    ];
    let text: String = events
        .iter()
        .map(|event| format!("event: {}\ndata: {event}\n\n", event["type"].as_str().unwrap_or("")))
        .collect();
    let good = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n";
    let good = format!("{good}content-length: {}\r\n\r\n", text.len());
    stream.write_all([&good[..], &text].concat().as_bytes()).and_then(|()| stream.flush()).ok()?;
    Some(head)
}

/// What the model does next: one call after the other, then a last word.
fn next(request: &Value) -> Value {
    let items = request["input"].as_array().cloned().unwrap_or_default();
    let outputs: Vec<String> = items
        .iter()
        .filter(|item| item["type"] == "function_call_output")
        .map(|item| item["output"].to_string())
        .collect();
    let sandbox = outputs.first().and_then(|text| {
        let rest = text.split("sandbox").nth(1)?;
        let id: String = rest
            .chars()
            .skip_while(|c| !c.is_ascii_alphanumeric())
            .take_while(char::is_ascii_alphanumeric)
            .collect();
        Some(id)
    });
    let sandbox = sandbox.unwrap_or_default();
    let script = [
        ("sandbox_create", json!({})),
        (
            "sandbox_exec",
            json!({"sandbox": sandbox, "command": "echo from codex > made.txt; cat task.txt"}),
        ),
        ("sandbox_stop", json!({"sandbox": sandbox})),
        ("sandbox_fs_apply", json!({"sandbox": sandbox})),
    ];
    let Some((tool, arguments)) = script.get(outputs.len()) else {
        return json!({"type": "message", "role": "assistant", "id": "m",
            "content": [{"type": "output_text", "text": "the task is done"}]});
    };
    let (namespace, name) = offered(request, tool);
    let mut call = json!({"type": "function_call", "id": format!("f{}", outputs.len()),
        "call_id": format!("c{}", outputs.len()), "name": name, "arguments": arguments.to_string()});
    if let Some(namespace) = namespace {
        call["namespace"] = json!(namespace);
    }
    call
}

/// The name under which the agent offers our tool to its model.
fn offered(request: &Value, tool: &str) -> (Option<String>, String) {
    for entry in request["tools"].as_array().into_iter().flatten() {
        let name = entry["name"].as_str().unwrap_or_default();
        if name.ends_with(tool) {
            return (None, name.to_owned());
        }
        for inner in entry["tools"].as_array().into_iter().flatten() {
            let found = inner["name"].as_str().unwrap_or_default();
            if found.ends_with(tool) {
                return (Some(name.to_owned()), found.to_owned());
            }
        }
    }
    (None, tool.to_owned())
}

#[test]
fn codex_does_a_file_task_through_walls() {
    let Some(others) = Others::found("codex_does_a_file_task_through_walls") else { return };
    let daemon = Daemon::start();
    let world = &daemon.world;
    world.write("task.txt", "write a file\n");
    let model = Model::start();
    let (program, environment) = server(world);
    let environment: Vec<String> =
        environment.iter().map(|(name, value)| format!("{name}={value:?}")).collect();
    let home = world.path("codex-home");
    std::fs::create_dir(&home).expect("a directory");
    let config = format!(
        "model = \"scripted\"\nmodel_provider = \"local\"\napproval_policy = \"never\"\n\
         [model_providers.local]\nname = \"local\"\nbase_url = \"http://{}/v1\"\nwire_api = \"responses\"\n\
         [mcp_servers.ringwall]\ncommand = {program:?}\nargs = [\"mcp\", \"--workspace\", {project:?}]\n\
         env = {{ {env} }}\nstartup_timeout_sec = 60\ntool_timeout_sec = 120\n\
         default_tools_approval_mode = \"approve\"\n",
        model.address,
        project = world.project(),
        env = environment.join(", "),
    );
    std::fs::write(home.join("config.toml"), config).expect("a file");
    let mut codex = others.npm_program("codex");
    codex.env_clear().env("PATH", "/usr/bin:/bin").env("HOME", &home).env("CODEX_HOME", &home);
    codex.current_dir(world.project()).stdin(Stdio::null());
    codex.args(["exec", "--skip-git-repo-check", "do what task.txt says"]);
    let done = codex.output().expect("it can be started");
    let told = String::from_utf8_lossy(&done.stdout);
    let errors = String::from_utf8_lossy(&done.stderr);
    let asked = model.requests.lock().map(|it| it.clone()).unwrap_or_default();
    let last = asked.last().map(|it| it["input"].to_string()).unwrap_or_default();
    assert!(told.contains("the task is done"), "{told}\n{errors}\n{last}");
    assert_eq!(world.read("made.txt"), "from codex\n", "{last}");
    assert!(last.contains("write a file"), "the model saw what the command wrote: {last}");
    assert!(last.contains("process"), "and behind which wall: {last}");
}
