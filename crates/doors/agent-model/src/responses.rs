//! OpenAI's Responses. Nothing is kept at the provider: every request brings the whole conversation.

use serde_json::{Value, json};

use crate::chat::arguments;
use crate::json::{error_message, number, text};
use crate::provider::{Building, StreamError};
use crate::talk::{Said, Start, Stop};

pub(crate) fn request(start: &Start) -> Value {
    let tools = start.tools.iter().map(|tool| {
        json!({
            "type": "function",
            "name": tool.name,
            "description": tool.description,
            "parameters": tool.schema,
            "strict": false,
        })
    });
    let mut input = Vec::new();
    for said in &start.history {
        match said {
            Said::User(text) => input.push(json!({ "role": "user", "content": text })),
            Said::Assistant(turn) => {
                if !turn.text.is_empty() {
                    input.push(json!({ "role": "assistant", "content": turn.text }));
                }
                input.extend(turn.calls.iter().map(|call| {
                    json!({
                        "type": "function_call",
                        "call_id": call.id,
                        "name": call.tool,
                        "arguments": arguments(&call.input),
                    })
                }));
            }
            Said::Results(results) => input.extend(results.iter().map(|result| {
                json!({
                    "type": "function_call_output",
                    "call_id": result.id,
                    "output": result.content,
                })
            })),
        }
    }
    json!({
        "model": start.model,
        "instructions": start.system,
        "input": input,
        "tools": tools.collect::<Vec<_>>(),
        "max_output_tokens": start.max_output_tokens,
        "store": false,
        "stream": true,
    })
}

pub(crate) fn take(building: &mut Building, event: &Value) -> Result<(), StreamError> {
    match text(event, "type") {
        "response.output_text.delta" | "response.refusal.delta" => {
            building.add_text(text(event, "delta"))?;
        }
        "response.output_item.done" => {
            let item = event.get("item").unwrap_or(&Value::Null);
            if text(item, "type") == "function_call" {
                let index = building.calls.len() as u64;
                building.name_call(index, text(item, "call_id"), text(item, "name"))?;
                building.add_arguments(index, text(item, "arguments"))?;
            }
        }
        "response.completed" => end(building, event, None),
        "response.incomplete" => end(building, event, Some(Stop::Length)),
        "response.failed" => {
            let response = event.get("response").unwrap_or(event);
            return Err(StreamError::Server(error_message(response)));
        }
        "error" => return Err(StreamError::Server(error_message(event))),
        _ => {}
    }
    Ok(())
}

fn end(building: &mut Building, event: &Value, stop: Option<Stop>) {
    building.ended = true;
    building.stop = stop;
    if let Some(usage) = event.get("response").and_then(|response| response.get("usage")) {
        building.count_tokens(number(usage, "input_tokens"), number(usage, "output_tokens"));
    }
}
