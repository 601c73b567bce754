//! Anthropic's Messages as requests and streams.

use serde_json::{Value, json};

use crate::json::{error_message, number, text};
use crate::provider::{Building, StreamError};
use crate::talk::{Said, Start, Stop, Turn};

pub(crate) fn request(start: &Start) -> Value {
    let tools = start.tools.iter().map(|tool| {
        json!({ "name": tool.name, "description": tool.description, "input_schema": tool.schema })
    });
    let messages = start.history.iter().map(|said| match said {
        Said::User(text) => json!({ "role": "user", "content": text }),
        Said::Assistant(turn) => json!({ "role": "assistant", "content": content(turn) }),
        Said::Results(results) => {
            let results = results.iter().map(|result| {
                json!({
                    "type": "tool_result",
                    "tool_use_id": result.id,
                    "content": result.content,
                    "is_error": result.failed,
                })
            });
            json!({ "role": "user", "content": results.collect::<Vec<_>>() })
        }
    });
    // What stays the same from turn to turn is paid for once.
    let system = json!([
        { "type": "text", "text": start.system, "cache_control": { "type": "ephemeral" } }
    ]);
    json!({
        "model": start.model,
        "max_tokens": start.max_output_tokens,
        "system": system,
        "messages": messages.collect::<Vec<_>>(),
        "tools": tools.collect::<Vec<_>>(),
        "stream": true,
    })
}

fn content(turn: &Turn) -> Vec<Value> {
    let said = (!turn.text.is_empty()).then(|| json!({ "type": "text", "text": turn.text }));
    let calls = turn.calls.iter().map(|call| {
        // The server takes only objects back.
        let input = if call.input.is_object() { call.input.clone() } else { json!({}) };
        json!({ "type": "tool_use", "id": call.id, "name": call.tool, "input": input })
    });
    said.into_iter().chain(calls).collect()
}

pub(crate) fn take(building: &mut Building, event: &Value) -> Result<(), StreamError> {
    match text(event, "type") {
        "message_start" => count(building, event.get("message")),
        "content_block_start" => {
            let block = event.get("content_block").unwrap_or(&Value::Null);
            match text(block, "type") {
                "text" => building.add_text(text(block, "text"))?,
                "tool_use" => {
                    let index = number(event, "index");
                    building.name_call(index, text(block, "id"), text(block, "name"))?;
                }
                _ => {}
            }
        }
        "content_block_delta" => {
            let delta = event.get("delta").unwrap_or(&Value::Null);
            match text(delta, "type") {
                "text_delta" => building.add_text(text(delta, "text"))?,
                "input_json_delta" => {
                    building.add_arguments(number(event, "index"), text(delta, "partial_json"))?;
                }
                _ => {}
            }
        }
        "message_delta" => {
            count(building, Some(event));
            let delta = event.get("delta").unwrap_or(&Value::Null);
            building.stop = match text(delta, "stop_reason") {
                "" => building.stop,
                "tool_use" => Some(Stop::Calls),
                "max_tokens" => Some(Stop::Length),
                "refusal" => Some(Stop::Declined),
                _ => Some(Stop::Finished),
            };
        }
        "message_stop" => building.ended = true,
        "error" => return Err(StreamError::Server(error_message(event))),
        _ => {}
    }
    Ok(())
}

fn count(building: &mut Building, holder: Option<&Value>) {
    if let Some(usage) = holder.and_then(|holder| holder.get("usage")) {
        let cached = number(usage, "cache_creation_input_tokens")
            .saturating_add(number(usage, "cache_read_input_tokens"));
        let input = number(usage, "input_tokens").saturating_add(cached);
        building.count_tokens(input, number(usage, "output_tokens"));
    }
}
