//! Whole agents of others behind a wall, each the real program: what its model says is written here.

use std::path::Path;

use serde_json::{Value, json};

use super::provider::{self, CANARY, HOSTS, Provider, Serve, Tls, finished, key_is_not_kept};
use crate::support::Others;

/// What the models have their agents run.
const LINE: &str = "echo by the agent > made.txt; cat code.txt";

/// Something of the workspace that only comes to the model through its agent.
const CODE: &str = "words of the workspace\n";

fn events(list: &[Value]) -> String {
    let text = |event: &Value| {
        let name = event["type"].as_str().map(|name| format!("event: {name}\n"));
        format!("{}data: {event}\n\n", name.unwrap_or_default())
    };
    list.iter().map(text).collect()
}

/// Anthropic's Messages, streamed: one command, then a last word.
fn messages(path: &str, asked: &Value) -> Option<(&'static str, String)> {
    if !path.starts_with("/v1/messages?") && path != "/v1/messages" {
        return None;
    }
    let text = asked["messages"].to_string();
    let offered = asked["tools"].to_string().contains("\"name\":\"Bash\"");
    let (block, delta, stop) = if offered && !text.contains("\"tool_result\"") {
        let input = json!({"command": LINE, "description": "work"}).to_string();
        let call = json!({"type": "tool_use", "id": "toolu_1", "name": "Bash", "input": {}});
        (call, json!({"type": "input_json_delta", "partial_json": input}), "tool_use")
    } else {
        let said = json!({"type": "text_delta", "text": "it is done"});
        (json!({"type": "text", "text": ""}), said, "end_turn")
    };
    let start = json!({"id": "msg_1", "type": "message", "role": "assistant", "content": [],
        "model": asked["model"], "stop_reason": null, "stop_sequence": null,
        "usage": {"input_tokens": 1, "output_tokens": 1}});
    let list = [
        json!({"type": "message_start", "message": start}),
        json!({"type": "content_block_start", "index": 0, "content_block": block}),
        json!({"type": "content_block_delta", "index": 0, "delta": delta}),
        json!({"type": "content_block_stop", "index": 0}),
        json!({"type": "message_delta", "delta": {"stop_reason": stop, "stop_sequence": null},
            "usage": {"output_tokens": 1}}),
        json!({"type": "message_stop"}),
    ];
    Some(("text/event-stream", events(&list)))
}

/// Google's `generateContent`, streamed: the same.
fn contents(path: &str, asked: &Value) -> Option<(&'static str, String)> {
    if !path.contains(":streamGenerateContent") {
        return None;
    }
    let part = if asked["contents"].to_string().contains("functionResponse") {
        json!({"text": "it is done"})
    } else {
        json!({"functionCall": {"name": "run_shell_command", "args": {"command": LINE}}})
    };
    let said = json!({"candidates": [{"index": 0, "finishReason": "STOP",
            "content": {"role": "model", "parts": [part]}}],
        "usageMetadata": {"promptTokenCount": 1, "candidatesTokenCount": 1, "totalTokenCount": 2}});
    Some(("text/event-stream", events(&[said])))
}

/// OpenAI's Chat Completions: an edit in the words that aider understands.
fn completions(path: &str, asked: &Value) -> Option<(&'static str, String)> {
    if path != "/v1/chat/completions" {
        return None;
    }
    let edit =
        "made.txt\n```\n<<<<<<< SEARCH\n=======\nby the agent\n>>>>>>> REPLACE\n```\nit is done";
    let chunk = |delta: Value, finish: Value| {
        json!({"id": "c", "object": "chat.completion.chunk", "created": 1, "model": asked["model"],
            "choices": [{"index": 0, "delta": delta, "finish_reason": finish}]})
    };
    let list = [
        chunk(json!({"role": "assistant", "content": edit}), Value::Null),
        chunk(json!({}), json!("stop")),
    ];
    Some(("text/event-stream", events(&list) + "data: [DONE]\n\n"))
}

struct Agent<'a> {
    preset: &'a str,
    /// Of the key, and the header in which it must come to the provider.
    variable: &'a str,
    header: &'a str,
    host: &'a str,
    command: Vec<String>,
}

/// The agent works on a copy with a key that it does not have, reaches its model only, and a person gets
/// what it made.
fn works(test: &str, others: &Others, agent: &Agent<'_>, serve: Serve) {
    let Some(provider) = Provider::start(test, serve) else { return };
    let world = provider.world();
    world.write("code.txt", CODE);
    let place = others.place().to_str().expect("a path").to_owned();
    let line =
        ["run", "--preset", agent.preset, "--apply", "--timeout", "5m", "--ro", &place, "--"];
    let line = line.iter().map(|word| (*word).to_owned()).chain(agent.command.iter().cloned());
    let done = finished(world.command(line), agent.variable);
    let told = format!("{}{}", done.out(), done.err());
    assert!(told.contains("it is done"), "{told}\n{}", provider.seen());
    assert!(world.project().join("made.txt").exists(), "{told}\n{}", provider.seen());
    assert_eq!(world.read("made.txt"), "by the agent\n");
    let seen = provider.seen();
    assert!(seen.contains(CODE.trim()), "the model saw what is in the workspace: {seen}");
    let header = format!("{}{CANARY}", agent.header);
    let paid = |line: &str| line.eq_ignore_ascii_case(&header);
    assert!(seen.lines().any(paid), "{seen}");
    assert!(!told.contains(CANARY), "{told}");
    key_is_not_kept(&world);
    let log = world.ringwall(["net", "log"]);
    let reached = log.exits(0).out();
    let elsewhere = |line: &&str| line.contains(" allowed ") && !line.contains(agent.host);
    assert_eq!(reached.lines().find(elsewhere), None, "{reached}");
}

fn words(line: &[&str]) -> Vec<String> {
    line.iter().map(|word| (*word).to_owned()).collect()
}

fn path(place: &Path) -> &str {
    place.to_str().expect("a path")
}

#[test]
fn claude_code_itself_works_behind_a_wall() {
    let test = "claude_code_itself_works_behind_a_wall";
    let Some(others) = Others::found(test) else { return };
    let program = others.place().join("node_modules/@anthropic-ai/claude-code-linux-x64/claude");
    if !program.exists() {
        eprintln!("{test}: not tested here: npm has no Claude Code for this machine");
        return;
    }
    let flags = ["-p", "do it", "--dangerously-skip-permissions"];
    let agent = Agent {
        preset: "claude-code",
        variable: "ANTHROPIC_API_KEY",
        header: "x-api-key: ",
        host: HOSTS[1],
        command: words(&[&[path(&program)], &flags[..]].concat()),
    };
    works(test, &others, &agent, |stream: Tls| provider::serve(stream, messages));
}

#[test]
fn gemini_itself_works_behind_a_wall() {
    let test = "gemini_itself_works_behind_a_wall";
    let Some(others) = Others::found(test) else { return };
    let program = others.place().join("node_modules/@google/gemini-cli/bundle/gemini.js");
    // With a model named, it does not ask another one which to take.
    let flags = ["-m", "gemini-2.5-pro", "-p", "do it", "--yolo"];
    let agent = Agent {
        preset: "gemini",
        variable: "GEMINI_API_KEY",
        header: "x-goog-api-key: ",
        host: HOSTS[2],
        command: words(&[&[path(&others.node()), path(&program)], &flags[..]].concat()),
    };
    works(test, &others, &agent, |stream: Tls| provider::serve(stream, contents));
}

#[test]
fn aider_itself_works_behind_a_wall() {
    let test = "aider_itself_works_behind_a_wall";
    let Some(others) = Others::found(test) else { return };
    let program = others.place().join("aider/bin/aider");
    if !program.exists() {
        eprintln!("{test}: not tested here: aider could not be installed for this Python");
        return;
    }
    let flags = ["--model", "gpt-4o", "--yes-always", "--no-git", "--message", "do it", "code.txt"];
    let agent = Agent {
        preset: "aider",
        variable: "OPENAI_API_KEY",
        header: "authorization: Bearer ",
        host: HOSTS[0],
        command: words(&[&[path(&program)], &flags[..]].concat()),
    };
    works(test, &others, &agent, |stream: Tls| provider::serve(stream, completions));
}
