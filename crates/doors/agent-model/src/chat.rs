//! OpenAI's Chat Completions, as OpenAI, Ollama, vLLM and llama.cpp speak them.

use serde_json::{Value, json};

use crate::json::{error_message, list, number, text};
use crate::provider::{Building, StreamError};
use crate::talk::{Said, Start, Stop, Turn};

pub(crate) fn request(start: &Start) -> Value {
    let tools = start.tools.iter().map(|tool| {
        let function = json!({
            "name": tool.name, "description": tool.description, "parameters": tool.schema,
        });
        json!({ "type": "function", "function": function })
    });
    let mut messages = vec![json!({ "role": "system", "content": start.system })];
    for said in &start.history {
        match said {
            Said::User(text) => messages.push(json!({ "role": "user", "content": text })),
            Said::Assistant(turn) => messages.push(assistant(turn)),
            Said::Results(results) => messages.extend(results.iter().map(|result| {
                json!({ "role": "tool", "tool_call_id": result.id, "content": result.content })
            })),
        }
    }
    json!({
        "model": start.model,
        "messages": messages,
        "tools": tools.collect::<Vec<_>>(),
        "max_completion_tokens": start.max_output_tokens,
        "stream": true,
        "stream_options": { "include_usage": true },
    })
}

fn assistant(turn: &Turn) -> Value {
    let calls = turn.calls.iter().map(|call| {
        let function = json!({ "name": call.tool, "arguments": arguments(&call.input) });
        json!({ "id": call.id, "type": "function", "function": function })
    });
    let calls: Vec<Value> = calls.collect();
    let mut message = json!({ "role": "assistant", "content": turn.text });
    if !calls.is_empty() {
        message["tool_calls"] = Value::Array(calls);
    }
    message
}

/// As the model wrote them: what was no JSON goes back as it was.
pub(crate) fn arguments(input: &Value) -> String {
    match input {
        Value::String(text) => text.clone(),
        input => input.to_string(),
    }
}

pub(crate) fn take(building: &mut Building, event: &Value) -> Result<(), StreamError> {
    if event.get("error").is_some_and(|error| !error.is_null()) {
        return Err(StreamError::Server(error_message(event)));
    }
    if let Some(usage) = event.get("usage") {
        building.count_tokens(number(usage, "prompt_tokens"), number(usage, "completion_tokens"));
    }
    let Some(choice) = list(event, "choices").first() else { return Ok(()) };
    let delta = choice.get("delta").unwrap_or(&Value::Null);
    building.add_text(text(delta, "content"))?;
    for (position, call) in list(delta, "tool_calls").iter().enumerate() {
        // Some servers leave the number out and send each call whole.
        let index = call.get("index").and_then(Value::as_u64);
        let index = index.unwrap_or(building.calls.len().max(position) as u64);
        let function = call.get("function").unwrap_or(&Value::Null);
        building.name_call(index, text(call, "id"), text(function, "name"))?;
        building.add_arguments(index, text(function, "arguments"))?;
    }
    match text(choice, "finish_reason") {
        "" => {}
        reason => {
            // What follows is the usage, and some servers send no [DONE].
            building.ended = true;
            building.stop = Some(match reason {
                "tool_calls" | "function_call" => Stop::Calls,
                "length" => Stop::Length,
                "content_filter" => Stop::Declined,
                _ => Stop::Finished,
            });
        }
    }
    Ok(())
}
