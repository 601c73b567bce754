//! Streams of every provider become the same turns, and conversations become their requests.

use proptest::prelude::*;
use ringwall_agent_model::{
    Answer, Call, CallResult, Event, Provider, Said, Start, Stop, StreamError, Tokens, ToolOffer,
    Turn,
};
use serde_json::{Value, json};

const ALL: [Provider; 3] = [Provider::Anthropic, Provider::Openai, Provider::OpenaiResponses];

fn read(provider: Provider, events: &[Value]) -> Result<(String, Answer), StreamError> {
    let mut reader = provider.reader();
    let mut pieces = String::new();
    for event in events {
        pieces.extend(reader.take(&Event { data: event.to_string() })?);
    }
    Ok((pieces, reader.finish()?))
}

/// The same answer in the words of each.
fn stream(provider: Provider) -> Vec<Value> {
    match provider {
        Provider::Anthropic => vec![
            json!({"type":"message_start","message":{"usage":{"input_tokens":7,"cache_read_input_tokens":3,"output_tokens":1}}}),
            json!({"type":"content_block_start","index":0,"content_block":{"type":"text","text":""}}),
            json!({"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"I "}}),
            json!({"type":"ping"}),
            json!({"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"look."}}),
            json!({"type":"content_block_start","index":1,"content_block":{"type":"tool_use","id":"c1","name":"read","input":{}}}),
            json!({"type":"content_block_delta","index":1,"delta":{"type":"input_json_delta","partial_json":"{\"path\":"}}),
            json!({"type":"content_block_delta","index":1,"delta":{"type":"input_json_delta","partial_json":"\"a\"}"}}),
            json!({"type":"content_block_stop","index":1}),
            json!({"type":"message_delta","delta":{"stop_reason":"tool_use"},"usage":{"output_tokens":5}}),
            json!({"type":"message_stop"}),
        ],
        Provider::Openai => vec![
            json!({"choices":[{"index":0,"delta":{"role":"assistant","content":"I "}}]}),
            json!({"choices":[{"index":0,"delta":{"content":"look."}}]}),
            json!({"choices":[{"index":0,"delta":{"tool_calls":[{"index":0,"id":"c1","type":"function","function":{"name":"read","arguments":"{\"path\":"}}]}}]}),
            json!({"choices":[{"index":0,"delta":{"tool_calls":[{"index":0,"function":{"arguments":"\"a\"}"}}]}}]}),
            json!({"choices":[{"index":0,"delta":{},"finish_reason":"tool_calls"}]}),
            json!({"choices":[],"usage":{"prompt_tokens":10,"completion_tokens":5}}),
        ],
        Provider::OpenaiResponses => vec![
            json!({"type":"response.created","response":{}}),
            json!({"type":"response.output_text.delta","delta":"I "}),
            json!({"type":"response.output_text.delta","delta":"look."}),
            json!({"type":"response.function_call_arguments.delta","delta":"{\"pa"}),
            json!({"type":"response.output_item.done","item":{"type":"function_call","call_id":"c1","name":"read","arguments":"{\"path\":\"a\"}"}}),
            json!({"type":"response.completed","response":{"usage":{"input_tokens":10,"output_tokens":5}}}),
        ],
    }
}

fn expected() -> Answer {
    let call = Call { id: "c1".into(), tool: "read".into(), input: json!({"path": "a"}) };
    Answer {
        turn: Turn { text: "I look.".into(), calls: vec![call] },
        tokens: Tokens { input: 10, output: 5 },
        stop: Stop::Calls,
    }
}

#[test]
fn every_stream_becomes_the_same_turn() {
    for provider in ALL {
        let (pieces, answer) = read(provider, &stream(provider)).unwrap();
        assert_eq!(answer, expected(), "{provider:?}");
        assert_eq!(pieces, "I look.");
    }
}

#[test]
fn a_stream_that_broke_off_is_no_answer() {
    for provider in ALL {
        let events = stream(provider);
        let kept = if provider == Provider::Openai { events.len() - 2 } else { events.len() - 1 };
        assert!(matches!(read(provider, &events[..kept]), Err(StreamError::Cut)), "{provider:?}");
    }
}

#[test]
fn an_error_in_a_stream_is_told_in_the_servers_words() {
    let error = json!({"type":"error","error":{"type":"overloaded_error","message":"too busy"}});
    for provider in ALL {
        match read(provider, std::slice::from_ref(&error)) {
            Err(StreamError::Server(message)) => assert_eq!(message, "too busy"),
            other => panic!("{provider:?}: {other:?}"),
        }
    }
}

#[test]
fn arguments_that_are_no_json_are_handed_on_as_text() {
    let events = [
        json!({"choices":[{"delta":{"tool_calls":[{"id":"x","function":{"name":"read","arguments":"{nope"}}]}}]}),
        json!({"choices":[{"delta":{},"finish_reason":"stop"}]}),
    ];
    let (_, answer) = read(Provider::Openai, &events).unwrap();
    assert_eq!(answer.turn.calls[0].input, json!("{nope"));
    assert_eq!(answer.stop, Stop::Calls);
}

#[test]
fn an_answer_has_an_end_and_so_many_calls() {
    let long = json!({"type":"response.output_text.delta","delta":"x".repeat(1 << 20)});
    let all = vec![long; 5];
    assert!(matches!(read(Provider::OpenaiResponses, &all), Err(StreamError::TooLong)));
    let call = |n: u64| json!({"choices":[{"delta":{"tool_calls":[{"index":n,"id":"x","function":{"name":"a","arguments":""}}]}}]});
    let many: Vec<Value> = (0..40).map(call).collect();
    assert!(matches!(read(Provider::Openai, &many), Err(StreamError::TooLong)));
}

fn conversation(provider: Provider) -> Start {
    let result = CallResult { id: "c1".into(), content: "text".into(), failed: false };
    Start {
        grant: "rwg_secret".into(),
        provider,
        model: "m".into(),
        proxy: "127.0.0.1:3128".into(),
        system: "be good".into(),
        tools: vec![ToolOffer {
            name: "read".into(),
            description: "Read a file".into(),
            schema: json!({"type": "object"}),
        }],
        history: vec![
            Said::User("do it".into()),
            Said::Assistant(expected().turn),
            Said::Results(vec![result]),
        ],
        max_output_tokens: 100,
    }
}

#[test]
fn conversations_become_requests_without_the_grant() {
    for provider in ALL {
        let request = provider.request(&conversation(provider)).to_string();
        assert!(!request.contains("rwg_secret"), "{request}");
    }
    let anthropic = Provider::Anthropic.request(&conversation(Provider::Anthropic));
    assert_eq!(anthropic["messages"][1]["content"][1]["type"], "tool_use");
    assert_eq!(anthropic["messages"][2]["content"][0]["tool_use_id"], "c1");
    let chat = Provider::Openai.request(&conversation(Provider::Openai));
    assert_eq!(chat["messages"][2]["tool_calls"][0]["function"]["arguments"], "{\"path\":\"a\"}");
    assert_eq!(chat["messages"][3]["tool_call_id"], "c1");
    let responses = Provider::OpenaiResponses.request(&conversation(Provider::OpenaiResponses));
    assert_eq!(responses["input"][2]["type"], "function_call");
    assert_eq!(responses["input"][3]["type"], "function_call_output");
    assert_eq!(responses["store"], false);
}

#[test]
fn providers_are_found_by_their_names() {
    for provider in ALL {
        assert_eq!(Provider::named(provider.name()), Some(provider));
    }
    assert_eq!(Provider::named("other"), None);
}

proptest! {
    #[test]
    fn no_event_makes_a_reader_panic(data in ".{0,200}", number in any::<u64>()) {
        for provider in ALL {
            let mut reader = provider.reader();
            let _ = reader.take(&Event { data: data.clone() });
            for kind in ["content_block_delta", "message_delta", "response.completed", "error"] {
                let event = json!({"type": kind, "index": number, "delta": {"type": "input_json_delta", "partial_json": data},
                    "choices": [{"delta": {"tool_calls": [{"index": number, "function": {"arguments": data}}]}}]});
                let _ = reader.take(&Event { data: event.to_string() });
            }
            let _ = reader.finish();
        }
    }
}
