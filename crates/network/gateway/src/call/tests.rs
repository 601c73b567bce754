//! What calls may say, and what providers would do for a task.

use super::*;
use serde_json::json;

const CHAT: &str = "/v1/chat/completions";
const RESPONSES: &str = "/v1/responses";
const MESSAGES: &str = "/v1/messages";

fn checked(path: &str, call: &Value) -> Result<Checked, BadCall> {
    check(path, &[], call.to_string().as_bytes())
}

fn user(content: &Value) -> Value {
    json!({"model": "m", "messages": [{"role": "user", "content": content}]})
}

#[test]
fn what_agents_say_is_passed_on() {
    let function = json!({"name": "f", "parameters": {"type": "object", "properties": {"type": {"type": "string"}}}});
    let image = "data:image/png;base64,AAAA";
    let base64 = json!({"type": "base64", "media_type": "image/png", "data": "AAAA"});
    for (path, call) in [
        (CHAT, user(&json!("hi"))),
        (
            CHAT,
            user(
                &json!([{"type": "text", "text": "hi"}, {"type": "image_url", "image_url": {"url": image}}]),
            ),
        ),
        (
            CHAT,
            json!({"model": "m", "messages": [
            {"role": "assistant", "content": null, "tool_calls": [{"id": "1", "type": "function", "function": {"name": "f", "arguments": "{}"}}]},
            {"role": "tool", "tool_call_id": "1", "content": "done"},
        ], "tools": [{"type": "function", "function": function}], "max_completion_tokens": 5, "stream": true}),
        ),
        (RESPONSES, json!({"model": "m", "input": "hi", "store": false, "max_output_tokens": 7})),
        (
            RESPONSES,
            json!({"model": "m", "instructions": "x", "input": [
            {"role": "user", "content": "hi"},
            {"type": "function_call", "call_id": "1", "name": "f", "arguments": "{}"},
            {"type": "function_call_output", "call_id": "1", "output": [{"type": "input_text", "text": "x"}]},
            {"type": "message", "role": "user", "content": [{"type": "input_image", "image_url": image}]},
        ], "tools": [{"type": "function", "name": "f", "parameters": {}, "strict": false}]}),
        ),
        (
            MESSAGES,
            json!({"model": "m", "max_tokens": 9, "system": [{"type": "text", "text": "x", "cache_control": {"type": "ephemeral"}}],
            "messages": [
                {"role": "assistant", "content": [{"type": "tool_use", "id": "1", "name": "f", "input": {"image_url": "http://a"}}]},
                {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "1", "is_error": false, "content": [
                    {"type": "image", "source": base64}]}]},
            ], "tools": [{"name": "f", "input_schema": {"type": "object"}}, {"type": "bash_20250124", "name": "bash"}]}),
        ),
        ("/v1/embeddings", json!({"model": "m", "input": ["a", "b"]})),
    ] {
        assert!(checked(path, &call).is_ok(), "{call}");
    }
}

/// A call in the shape of chats and messages, with one field more.
fn with(name: &str, value: Value) -> Value {
    let mut call = user(&json!("hi"));
    call[name] = value;
    call
}

#[test]
fn what_a_provider_would_do_for_a_task_is_refused() {
    let input = |item: Value| json!({"model": "m", "input": [item]});
    for (path, call) in [
        (
            CHAT,
            user(
                &json!([{"type": "image_url", "image_url": {"url": "https://evil.example.net/"}}]),
            ),
        ),
        (CHAT, user(&json!([{"type": "image_url", "image_url": "http://evil.example.net/"}]))),
        (CHAT, user(&json!([{"type": "image_url", "image_url": null}]))),
        (CHAT, user(&json!([{"type": "file", "file": {"file_id": "f"}}]))),
        (
            CHAT,
            user(&json!([{"type": "text", "text": "x", "file_url": "http://evil.example.net/"}])),
        ),
        (
            CHAT,
            user(&json!({"type": "image_url", "image_url": {"url": "https://evil.example.net/"}})),
        ),
        (CHAT, with("web_search_options", json!({}))),
        (CHAT, with("plugins", json!([{"id": "web"}]))),
        (CHAT, with("store", json!(true))),
        (CHAT, with("tools", json!([{"type": "mcp", "server_url": "https://evil.example.net"}]))),
        (CHAT, with("tools", json!({"type": "mcp"}))),
        (RESPONSES, json!({"model": "m", "input": "x", "tools": [{"type": "web_search"}]})),
        (RESPONSES, json!({"model": "m", "input": "x", "tools": [{"type": "code_interpreter"}]})),
        (
            RESPONSES,
            json!({"model": "m", "input": "x", "tools": [{"type": "function", "name": "f"}, {"type": "mcp"}]}),
        ),
        (RESPONSES, json!({"model": "m", "input": "x", "previous_response_id": "r"})),
        (RESPONSES, json!({"model": "m", "input": "x", "background": true})),
        (RESPONSES, input(json!({"type": "item_reference", "id": "x"}))),
        (RESPONSES, input(json!({"type": "mcp_approval_response", "approve": true}))),
        (
            RESPONSES,
            input(
                json!({"role": "user", "content": [{"type": "input_image", "image_url": "https://evil.example.net"}]}),
            ),
        ),
        (
            RESPONSES,
            input(
                json!({"role": "user", "content": [{"type": "input_file", "file_url": "https://evil.example.net"}]}),
            ),
        ),
        (
            RESPONSES,
            input(
                json!({"type": "function_call_output", "output": [{"type": "input_image", "image_url": "https://evil.example.net"}]}),
            ),
        ),
        ("/v1/embeddings", json!({"model": "m", "input": "x", "tools": []})),
        ("/v1/files", json!({})),
    ] {
        assert!(checked(path, &call).is_err(), "{path} {call}");
    }
}

#[test]
fn what_the_other_provider_would_do_is_refused() {
    let url = json!({"type": "url", "url": "https://evil.example.net/?leak"});
    let tool_result = json!([{"type": "tool_result", "tool_use_id": "1", "content": [{"type": "image", "source": url}]}]);
    let nested = json!([{"type": "document", "source": {"type": "content", "content": [{"type": "image", "source": url}]}}]);
    for (path, call) in [
        (
            MESSAGES,
            with("mcp_servers", json!([{"type": "url", "url": "https://evil.example.net"}])),
        ),
        (MESSAGES, with("container", json!({"skills": []}))),
        (MESSAGES, with("tools", json!([{"type": "web_fetch_20250910", "name": "web_fetch"}]))),
        (MESSAGES, with("tools", json!([{"type": "mcp_toolset", "mcp_server_name": "x"}]))),
        (MESSAGES, with("tools", json!([{"type": "code_execution_20250825", "name": "x"}]))),
        (MESSAGES, with("tools", json!([{"type": ["custom"], "name": "x"}]))),
        (MESSAGES, user(&json!([{"type": "image", "source": url}]))),
        (
            MESSAGES,
            user(&json!([{"type": "document", "source": {"type": "file", "file_id": "x"}}])),
        ),
        (MESSAGES, user(&tool_result)),
        (MESSAGES, user(&nested)),
        (MESSAGES, user(&json!([{"type": "server_tool_use", "name": "web_fetch"}]))),
    ] {
        assert!(checked(path, &call).is_err(), "{path} {call}");
    }
}

#[test]
fn a_field_that_is_there_twice_is_refused() {
    let message = r#""messages":[{"role":"user","content":"hi"}]"#;
    for call in [
        format!(r#"{{"model":"small","model":"large",{message}}}"#),
        format!(r#"{{"model":"m",{message},"tools":[{{"type":"mcp","type":"function"}}]}}"#),
        format!(r#"{{"model":"m",{message},"tools":[{{"type":"mcp","t\u0079pe":"function"}}]}}"#),
        format!(r#"{{"model":"m",{message}}} {{}}"#),
    ] {
        assert!(matches!(check(CHAT, &[], call.as_bytes()), Err(BadCall::Body)), "{call}");
    }
}

#[test]
fn values_are_bounded_by_what_they_take_and_not_by_their_text() {
    for item in ["0", "{}", "[]", r#"{"":0}"#, "\"\""] {
        let call = format!(r#"{{"model":"m","input":[{}]}}"#, vec![item; 1_100_000].join(","));
        assert!(call.len() < 16 * 1024 * 1024);
        let refused = check("/v1/embeddings", &[], call.as_bytes());
        assert!(matches!(refused, Err(BadCall::Body)), "{item}");
    }
    let long = format!(r#"{{"model":"m","input":"{}"}}"#, "x".repeat(15 * 1024 * 1024));
    assert!(check("/v1/embeddings", &[], long.as_bytes()).is_ok());
}

#[test]
fn the_most_that_an_answer_can_cost_is_known() {
    let longest = |path, call: &Value| checked(path, call).unwrap().output_tokens;
    let mut call = user(&json!("hi"));
    assert_eq!(longest(CHAT, &call), LONGEST_ANSWER_TOKENS);
    call["max_tokens"] = json!(10);
    assert_eq!(longest(CHAT, &call), 10);
    assert_eq!(longest(MESSAGES, &call), 10);
    (call["max_completion_tokens"], call["n"]) = (json!(20), json!(3));
    assert_eq!(longest(CHAT, &call), 60);
    call["n"] = json!(u64::MAX);
    assert_eq!(longest(CHAT, &call), u64::MAX);
    assert_eq!(longest("/v1/embeddings", &json!({"model": "m", "input": "x"})), 0);
    assert_eq!(longest("/v1/messages/count_tokens", &user(&json!("hi"))), 0);
}
