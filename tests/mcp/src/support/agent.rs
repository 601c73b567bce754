//! A client of the protocol over the standard streams of a program.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use serde_json::{Value, json};

use super::World;

/// Longer than anything takes on a machine that is busy with other tests.
const PATIENCE: Duration = Duration::from_secs(120);

/// An agent, as far as a server can tell.
pub(crate) struct Agent {
    process: Child,
    input: Option<ChildStdin>,
    messages: Receiver<Value>,
    /// Those that came while an answer was waited for.
    pub(crate) notes: Vec<Value>,
    last: u64,
}

impl Agent {
    /// Starts `ringwall mcp FLAGS` in the world's project.
    pub(crate) fn start(world: &World, flags: &[&str]) -> Agent {
        Agent::of(world.command([&["mcp"], flags].concat()))
    }

    /// Starts a server and shakes hands with it.
    pub(crate) fn of(command: Command) -> Agent {
        Agent::able(command, &json!({}))
    }

    /// The same as a client with these capabilities.
    pub(crate) fn able(mut command: Command, capabilities: &Value) -> Agent {
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut process = command.spawn().expect("it can be started");
        let output = BufReader::new(process.stdout.take().expect("a pipe"));
        let (sender, messages) = channel();
        std::thread::spawn(move || {
            for line in output.lines().map_while(Result::ok) {
                let message = serde_json::from_str(&line).expect("every line is JSON");
                if sender.send(message).is_err() {
                    return;
                }
            }
        });
        let input = process.stdin.take();
        let mut agent = Agent { process, input, messages, notes: Vec::new(), last: 0 };
        let hello = json!({"protocolVersion": "2025-11-25", "capabilities": capabilities,
            "clientInfo": {"name": "test", "version": "1"}});
        agent.ask("initialize", &hello);
        agent.tell("notifications/initialized", &json!({}));
        agent
    }

    pub(crate) fn tell(&mut self, method: &str, params: &Value) {
        self.send(&json!({"jsonrpc": "2.0", "method": method, "params": params}));
    }

    /// Begins a request and gives its number.
    pub(crate) fn begin(&mut self, method: &str, params: &Value) -> u64 {
        self.last += 1;
        let id = self.last;
        self.send(&json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params}));
        id
    }

    /// Answers what the server asked for.
    pub(crate) fn reply(&mut self, id: &Value, result: &Value) {
        self.send(&json!({"jsonrpc": "2.0", "id": id, "result": result}));
    }

    fn send(&mut self, message: &Value) {
        let input = self.input.as_mut().expect("it is open");
        writeln!(input, "{message}").and_then(|()| input.flush()).expect("the server reads");
    }

    /// The answer to a request, whole.
    #[track_caller]
    pub(crate) fn answer(&mut self, id: u64) -> Value {
        loop {
            let message = self.messages.recv_timeout(PATIENCE).expect("an answer in time");
            if message["id"] == id {
                return message;
            }
            self.notes.push(message);
        }
    }

    /// A message that nobody asked for.
    #[track_caller]
    pub(crate) fn next_note(&mut self) -> Value {
        if !self.notes.is_empty() {
            return self.notes.remove(0);
        }
        self.messages.recv_timeout(PATIENCE).expect("a message in time")
    }

    /// The result of a request that works.
    #[track_caller]
    pub(crate) fn ask(&mut self, method: &str, params: &Value) -> Value {
        let id = self.begin(method, params);
        let answer = self.answer(id);
        assert!(answer.get("error").is_none(), "{answer}");
        answer["result"].clone()
    }

    /// What a request is refused with.
    #[track_caller]
    pub(crate) fn refused(&mut self, method: &str, params: &Value) -> String {
        let id = self.begin(method, params);
        let answer = self.answer(id);
        answer["error"]["message"].as_str().unwrap_or_else(|| panic!("{answer}")).to_owned()
    }

    /// What a tool gives.
    #[track_caller]
    pub(crate) fn call(&mut self, tool: &str, arguments: Value) -> Value {
        let result = self.ask("tools/call", &json!({"name": tool, "arguments": arguments}));
        assert_ne!(result["isError"], true, "{result}");
        result["structuredContent"].clone()
    }

    /// What a tool says of why it gives nothing.
    #[track_caller]
    pub(crate) fn failed(&mut self, tool: &str, arguments: Value) -> String {
        let result = self.ask("tools/call", &json!({"name": tool, "arguments": arguments}));
        assert_eq!(result["isError"], true, "{result}");
        result["content"][0]["text"].as_str().expect("words").to_owned()
    }

    #[track_caller]
    pub(crate) fn tools(&mut self) -> Vec<Value> {
        self.ask("tools/list", &json!({}))["tools"].as_array().cloned().expect("a list")
    }

    #[track_caller]
    pub(crate) fn tool_names(&mut self) -> Vec<String> {
        let tools = self.tools();
        tools.iter().map(|tool| tool["name"].as_str().expect("a name").to_owned()).collect()
    }

    /// Makes a sandbox of the workspace, and gives its id.
    #[track_caller]
    pub(crate) fn sandbox(&mut self, arguments: Value) -> String {
        let made = self.call("sandbox_create", arguments);
        made["sandbox"].as_str().unwrap_or_else(|| panic!("{made}")).to_owned()
    }

    /// Closes its end, and waits for the server to be done.
    pub(crate) fn leave(mut self) -> Option<i32> {
        drop(self.input.take());
        self.process.wait().expect("it ends").code()
    }
}

impl Drop for Agent {
    fn drop(&mut self) {
        // In order first: what the session started is ended by its server.
        drop(self.input.take());
        for _ in 0..200 {
            if matches!(self.process.try_wait(), Ok(Some(_))) {
                return;
            }
            std::thread::sleep(Duration::from_millis(50));
        }
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
