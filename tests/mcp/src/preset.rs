//! `ringwall run --preset`: a whole agent behind a wall. Its provider is played on loopback, under the
//! provider's own name; only the gateways of the test find it there.

mod agents;
mod provider;

use std::sync::Mutex;

use serde_json::{Value, json};

use crate::clients::codex::answer;
use crate::support::{Others, World};
use provider::{CANARY, HOSTS, Provider, Tls, finished, key_is_not_kept};

const HOST: &str = HOSTS[0];
const VARIABLE: &str = "OPENAI_API_KEY";

/// With settings of Codex in a person's home, and a login that is nobody else's business.
fn world_of_codex(provider: &Provider) -> World {
    let world = provider.world();
    let config = world.path("nobody-home/.codex");
    std::fs::create_dir_all(&config).expect("a directory");
    std::fs::write(config.join("config.toml"), "# settings\nmodel = \"scripted\"\n")
        .expect("a file");
    std::fs::write(config.join("auth.json"), CANARY).expect("a file");
    world
}

fn last_word(_: &Value) -> Value {
    json!({"type": "message", "role": "assistant", "id": "m",
        "content": [{"type": "output_text", "text": "hello"}]})
}

#[test]
fn an_agent_reaches_its_model_with_a_key_that_it_never_holds() {
    let name = "an_agent_reaches_its_model_with_a_key_that_it_never_holds";
    let Some(provider) =
        Provider::start(name, |stream: Tls| answer(stream, &Mutex::default(), &last_word))
    else {
        return;
    };
    let world = world_of_codex(&provider);
    world.write("code.txt", "old\n");
    let script = format!(
        "env; cat $HOME/.codex/config.toml; ls $HOME/.codex; echo new > code.txt; \
         curl -sS -d '{{}}' -H \"Authorization: Bearer $CODEX_API_KEY\" https://{HOST}/v1/responses; \
         curl -sS -o /dev/null -w 'elsewhere %{{http_code}}' https://example.com/ || true"
    );
    let done =
        finished(world.command(["run", "--preset", "codex", "--", "sh", "-c", &script]), VARIABLE);
    done.exits(0);
    let told = format!("{}{}", done.out(), done.err());
    assert!(!told.contains(CANARY), "{told}");
    assert!(told.contains("CODEX_API_KEY=sk-"), "{told}");
    // Settings that are known, and nothing else of the file: a key may stand in a comment.
    assert!(told.contains("model = \"scripted\"") && !told.contains("# settings"), "{told}");
    assert!(!told.contains("auth.json"), "{told}");
    assert!(told.contains("response.completed"), "{told}");
    assert!(provider.seen().contains(&format!("Bearer {CANARY}")), "{}", provider.seen());
    assert!(!told.contains("elsewhere 200"), "{told}");
    // What it changed waits for a person.
    assert_eq!(world.read("code.txt"), "old\n");
    let id = world.sandboxes()[0]["id"].as_str().expect("changes are kept").to_owned();
    world.ringwall(["apply", &id]).exits(0);
    assert_eq!(world.read("code.txt"), "new\n");
    key_is_not_kept(&world);
}

#[test]
fn without_a_key_or_with_a_wrong_name_it_says_what_to_do() {
    let world = World::new();
    let done = world.ringwall(["run", "--preset", "claude-code", "--", "true"]);
    done.is_refused().says(&["ANTHROPIC_API_KEY", "ringwall secret add anthropic-api-key"]);
    let done = world.ringwall(["run", "--preset", "other", "--", "true"]);
    done.says(&["claude-code", "codex", "gemini", "aider"]);
}

/// The model has the agent run a command of its own, then is done.
fn works(request: &Value) -> Value {
    let items = request["input"].as_array().cloned().unwrap_or_default();
    if items.iter().any(|item| item["type"] == "function_call_output") {
        return last_word(request);
    }
    let tools = request["tools"].as_array().cloned().unwrap_or_default();
    let has = |name: &str| tools.iter().any(|tool| tool["name"] == name);
    let line = "echo by codex > made.txt; cat code.txt";
    let (name, arguments) = if has("exec_command") {
        ("exec_command", json!({"cmd": line}))
    } else if has("shell_command") {
        ("shell_command", json!({"command": line}))
    } else {
        ("shell", json!({"command": ["sh", "-c", line]}))
    };
    json!({"type": "function_call", "id": "f", "call_id": "c", "name": name,
        "arguments": arguments.to_string()})
}

#[test]
fn codex_itself_works_behind_a_wall_and_its_changes_are_applied() {
    let name = "codex_itself_works_behind_a_wall_and_its_changes_are_applied";
    let Some(others) = Others::found(name) else { return };
    let Some(provider) =
        Provider::start(name, |stream: Tls| answer(stream, &Mutex::default(), &works))
    else {
        return;
    };
    let world = world_of_codex(&provider);
    world.write("code.txt", "code\n");
    let place = others.place().to_str().expect("a path").to_owned();
    let node = others.node().to_str().expect("a path").to_owned();
    let codex = format!("{place}/node_modules/@openai/codex/bin/codex.js");
    let line = [
        "run",
        "--preset",
        "codex",
        "--apply",
        "--ro",
        &place,
        "--",
        &node,
        &codex,
        "exec",
        "--skip-git-repo-check",
        "--dangerously-bypass-approvals-and-sandbox",
        "do it",
    ];
    let done = finished(world.command(line), VARIABLE);
    let told = format!("{}{}", done.out(), done.err());
    assert!(told.contains("hello"), "{told}\n{}", provider.seen());
    assert!(world.project().join("made.txt").exists(), "{told}\n{}", provider.seen());
    assert_eq!(world.read("made.txt"), "by codex\n");
    assert!(!told.contains(CANARY), "{told}");
    assert!(provider.seen().contains(&format!("Bearer {CANARY}")), "{}", provider.seen());
}
