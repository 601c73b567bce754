//! A model server that answers by a script, in the words of every provider, as a stream.

use std::io::{self, BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::thread;

use serde_json::{Value, json};

/// What the model answers.
#[derive(Debug, Clone)]
pub(crate) enum Reply {
    Say(String),
    /// Tools and their inputs.
    Calls(Vec<(String, Value)>),
    /// No answer but this status.
    Status(u16, &'static str),
    /// A stream that breaks off in the middle.
    Cut,
    /// Nothing, for as long as this many milliseconds; then a text.
    Late(u64),
}

pub(crate) fn say(text: &str) -> Reply {
    Reply::Say(text.to_owned())
}

pub(crate) fn call(tool: &str, input: Value) -> Reply {
    calls(&[(tool, input)])
}

/// A command is a build unless the test says something else of it; null is nothing said.
pub(crate) fn calls(all: &[(&str, Value)]) -> Reply {
    let told = |(tool, input): &(&str, Value)| {
        let mut input = input.clone();
        if let ("exec", Some(fields)) = (*tool, input.as_object_mut()) {
            fields.entry("kind").or_insert_with(|| "build".into());
            fields.retain(|_, value| !value.is_null());
        }
        ((*tool).to_owned(), input)
    };
    Reply::Calls(all.iter().map(told).collect())
}

/// What the model was asked, whoever's words it was in.
#[derive(Debug, Clone)]
pub(crate) struct Asked {
    /// How often the model has answered before in this conversation.
    pub(crate) turns: usize,
    /// Results of calls, oldest first.
    pub(crate) results: Vec<String>,
    pub(crate) tools: Vec<String>,
    /// The first thing that was said: the task.
    pub(crate) task: String,
    /// The key that came with it.
    pub(crate) key: String,
    pub(crate) body: Value,
    /// How many requests came before this one.
    pub(crate) number: usize,
}

type Script = dyn Fn(&Asked) -> Reply + Send + Sync;

/// A server; it lives until the test ends.
pub(crate) struct Model {
    pub(crate) port: u16,
    asked: Arc<Mutex<Vec<Asked>>>,
}

impl Model {
    /// Answers with these, one for each turn of a conversation, and then says that it is done.
    pub(crate) fn scripted(replies: Vec<Reply>) -> Model {
        Model::new(move |asked| replies.get(asked.turns).cloned().unwrap_or_else(|| say("done")))
    }

    pub(crate) fn new(script: impl Fn(&Asked) -> Reply + Send + Sync + 'static) -> Model {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let port = listener.local_addr().expect("an address").port();
        let asked = Arc::new(Mutex::new(Vec::new()));
        let (seen, script): (_, Arc<Script>) = (Arc::clone(&asked), Arc::new(script));
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let (seen, script) = (Arc::clone(&seen), Arc::clone(&script));
                thread::spawn(move || serve(stream, &seen, &*script));
            }
        });
        Model { port, asked }
    }

    pub(crate) fn url(&self) -> String {
        format!("http://127.0.0.1:{}", self.port)
    }

    pub(crate) fn asked(&self) -> Vec<Asked> {
        self.asked.lock().expect("no test panics with it").clone()
    }
}

fn serve(mut stream: TcpStream, seen: &Mutex<Vec<Asked>>, script: &Script) {
    let mut reader = BufReader::new(stream.try_clone().expect("a second handle"));
    // The gateway may keep a connection for the next question.
    while let Ok((path, key, body)) = read_request(&mut reader) {
        let asked = {
            let mut seen = seen.lock().expect("no test panics with it");
            let asked = understand(&path, key, body, seen.len());
            seen.push(asked.clone());
            asked
        };
        if answer(&mut stream, &path, script(&asked), asked.turns).is_err() {
            return;
        }
    }
}

fn read_request(from: &mut impl BufRead) -> io::Result<(String, String, Value)> {
    let mut line = String::new();
    if from.read_line(&mut line)? == 0 {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    let path = line.split(' ').nth(1).unwrap_or_default().to_owned();
    let (mut key, mut length) = (String::new(), 0);
    loop {
        line.clear();
        from.read_line(&mut line)?;
        let Some((name, value)) = line.trim_end().split_once(": ") else { break };
        match name.to_ascii_lowercase().as_str() {
            "authorization" | "x-api-key" => key = value.to_owned(),
            "content-length" => length = value.parse().unwrap_or(0),
            _ => {}
        }
    }
    let mut body = vec![0; length];
    from.read_exact(&mut body)?;
    Ok((path, key, serde_json::from_slice(&body).unwrap_or_default()))
}

fn list(value: &Value, name: &str) -> Vec<Value> {
    value.get(name).and_then(Value::as_array).cloned().unwrap_or_default()
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

fn understand(path: &str, key: String, body: Value, number: usize) -> Asked {
    let tools = list(&body, "tools");
    let (mut turns, mut results, mut task) = (0, Vec::new(), String::new());
    let mut said = |value: &Value| {
        if task.is_empty() {
            task = text(value);
        }
    };
    let names = match path {
        "/v1/messages" => {
            for message in list(&body, "messages") {
                match (message["role"].as_str(), &message["content"]) {
                    (Some("assistant"), _) => turns += 1,
                    (_, Value::Array(parts)) => {
                        results.extend(parts.iter().map(|part| text(&part["content"])));
                    }
                    (_, content) => said(content),
                }
            }
            tools.iter().map(|tool| text(&tool["name"])).collect()
        }
        "/v1/chat/completions" => {
            for message in list(&body, "messages") {
                match message["role"].as_str() {
                    Some("assistant") => turns += 1,
                    Some("tool") => results.push(text(&message["content"])),
                    Some("user") => said(&message["content"]),
                    _ => {}
                }
            }
            tools.iter().map(|tool| text(&tool["function"]["name"])).collect()
        }
        _ => {
            let mut in_turn = false;
            for item in list(&body, "input") {
                let of_model = item["role"] == "assistant" || item["type"] == "function_call";
                turns += usize::from(of_model && !in_turn);
                in_turn = of_model;
                if item["type"] == "function_call_output" {
                    results.push(text(&item["output"]));
                } else if item["role"] == "user" {
                    said(&item["content"]);
                }
            }
            tools.iter().map(|tool| text(&tool["name"])).collect()
        }
    };
    Asked { turns, results, tools: names, task, key, body, number }
}

fn answer(stream: &mut TcpStream, path: &str, reply: Reply, turn: usize) -> io::Result<()> {
    let reply = match reply {
        Reply::Late(ms) => {
            thread::sleep(std::time::Duration::from_millis(ms));
            say("late")
        }
        reply => reply,
    };
    if let Reply::Status(status, body) = reply {
        let head = format!(
            "HTTP/1.1 {status} No\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n",
            body.len()
        );
        stream.write_all(format!("{head}{body}").as_bytes())?;
        return stream.flush();
    }
    let cut = matches!(reply, Reply::Cut);
    let reply = if cut { say("a text that does not come to its end") } else { reply };
    let mut events = match path {
        "/v1/messages" => anthropic(&reply, turn),
        "/v1/chat/completions" => chat(&reply, turn),
        _ => responses(&reply, turn),
    };
    if cut {
        events.truncate(events.len() / 2);
    }
    stream.write_all(
        b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n",
    )?;
    for event in events {
        let text = format!("data: {event}\n\n");
        // In two pieces each: readers must put them together.
        let (one, other) = text.split_at(text.len() / 2);
        for piece in [one, other] {
            stream.write_all(format!("{:x}\r\n{piece}\r\n", piece.len()).as_bytes())?;
        }
        stream.flush()?;
    }
    if cut {
        return Err(io::ErrorKind::BrokenPipe.into());
    }
    stream.write_all(b"0\r\n\r\n")?;
    stream.flush()
}

/// Names for calls: another one in every turn, as providers have them.
fn id(turn: usize, index: usize) -> String {
    format!("call_{turn}_{index}")
}

fn parts(reply: &Reply) -> (String, Vec<(String, Value)>) {
    match reply {
        Reply::Say(text) => (text.clone(), Vec::new()),
        Reply::Calls(calls) => ("I call.".to_owned(), calls.clone()),
        _ => (String::new(), Vec::new()),
    }
}

fn anthropic(reply: &Reply, turn: usize) -> Vec<String> {
    let (said, calls) = parts(reply);
    let mut events = vec![
        json!({"type":"message_start","message":{"usage":{"input_tokens":100,"output_tokens":1}}}),
        json!({"type":"content_block_start","index":0,"content_block":{"type":"text","text":""}}),
        json!({"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":said}}),
        json!({"type":"content_block_stop","index":0}),
    ];
    for (index, (tool, input)) in calls.iter().enumerate() {
        let at = index + 1;
        events.push(json!({"type":"content_block_start","index":at,"content_block":{"type":"tool_use","id":id(turn, index),"name":tool,"input":{}}}));
        events.push(json!({"type":"content_block_delta","index":at,"delta":{"type":"input_json_delta","partial_json":input.to_string()}}));
        events.push(json!({"type":"content_block_stop","index":at}));
    }
    let reason = if calls.is_empty() { "end_turn" } else { "tool_use" };
    events.push(
        json!({"type":"message_delta","delta":{"stop_reason":reason},"usage":{"output_tokens":20}}),
    );
    events.push(json!({"type":"message_stop"}));
    events.iter().map(Value::to_string).collect()
}

fn chat(reply: &Reply, turn: usize) -> Vec<String> {
    let (said, calls) = parts(reply);
    let mut events =
        vec![json!({"choices":[{"index":0,"delta":{"role":"assistant","content":said}}]})];
    for (index, (tool, input)) in calls.iter().enumerate() {
        events.push(json!({"choices":[{"index":0,"delta":{"tool_calls":[{"index":index,"id":id(turn, index),"type":"function","function":{"name":tool,"arguments":input.to_string()}}]}}]}));
    }
    let reason = if calls.is_empty() { "stop" } else { "tool_calls" };
    events.push(json!({"choices":[{"index":0,"delta":{},"finish_reason":reason}]}));
    events.push(json!({"choices":[],"usage":{"prompt_tokens":100,"completion_tokens":20}}));
    let mut lines: Vec<String> = events.iter().map(Value::to_string).collect();
    lines.push("[DONE]".to_owned());
    lines
}

fn responses(reply: &Reply, turn: usize) -> Vec<String> {
    let (said, calls) = parts(reply);
    let mut events = vec![
        json!({"type":"response.created","response":{"id":"r"}}),
        json!({"type":"response.output_text.delta","delta":said}),
    ];
    for (index, (tool, input)) in calls.iter().enumerate() {
        events.push(json!({"type":"response.output_item.done","item":{"type":"function_call","call_id":id(turn, index),"name":tool,"arguments":input.to_string()}}));
    }
    events.push(json!({"type":"response.completed","response":{"usage":{"input_tokens":100,"output_tokens":20}}}));
    events.iter().map(Value::to_string).collect()
}
