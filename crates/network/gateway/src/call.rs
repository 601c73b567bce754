//! What a call of a model may say: fields that are known, and content that is in the call itself. What a
//! provider would fetch, search, run or keep for a task is a way out that no rule sees.

use std::cell::Cell;
use std::collections::HashSet;
use std::fmt;

use serde::de::{DeserializeSeed, Error as _, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Value};

use crate::inference::BadCall;
use crate::usage::BYTES_PER_TOKEN;

/// What the values of one call may take in memory, which is much more than its text.
const MOST_CALL_MEMORY: usize = 64 * 1024 * 1024;
/// In memory: a value within a list that grows, an object, and a field of one.
const VALUE_BYTES: usize = 64;
const OBJECT_BYTES: usize = 704;
const FIELD_BYTES: usize = 128;
/// Tokens of an answer to a call that does not bound it.
const LONGEST_ANSWER_TOKENS: u64 = 32 * 1024;

/// A call that may be passed on.
pub(crate) struct Checked {
    pub(crate) body: Vec<u8>,
    /// The most that it can cost.
    pub(crate) input_tokens: u64,
    pub(crate) output_tokens: u64,
}

/// Fields of an object that are passed on, whatever is in them.
type Fields = &'static [&'static str];

/// A kind of content, and its fields.
struct Part {
    kind: &'static str,
    fields: Fields,
}

const fn part(kind: &'static str, fields: Fields) -> Part {
    Part { kind, fields }
}

/// What can be called.
struct Shape {
    path: &'static str,
    fields: Fields,
    /// The fields with what was said, and what can be in them.
    said: Fields,
    items: &'static [Part],
    parts: &'static [Part],
    /// Kinds of tools that the caller runs, not the provider.
    tools: Fields,
    /// Where the call bounds its answer.
    answer: Fields,
}

const MESSAGE: Fields = &[
    "role",
    "content",
    "name",
    "tool_calls",
    "tool_call_id",
    "refusal",
    "reasoning",
    "reasoning_content",
    "thinking",
    "function_call",
    "annotations",
];

const ANTHROPIC_PARTS: &[Part] = &[
    part("text", &["text", "cache_control", "citations"]),
    part("image", &["source", "cache_control"]),
    part("document", &["source", "title", "context", "citations", "cache_control"]),
    part("tool_use", &["id", "name", "input", "cache_control"]),
    part("tool_result", &["tool_use_id", "content", "is_error", "cache_control"]),
    part("thinking", &["thinking", "signature"]),
    part("redacted_thinking", &["data"]),
];

/// Where images and documents come from.
const SOURCES: &[Part] = &[
    part("base64", &["media_type", "data"]),
    part("text", &["media_type", "data"]),
    part("content", &["content"]),
];

/// A tool with no kind, or one that ends in a date.
const ANTHROPIC_TOOLS: Fields = &["", "custom", "bash_", "text_editor_", "computer_", "memory_"];

const SHAPES: [Shape; 5] = [
    Shape {
        path: "/v1/chat/completions",
        fields: &[
            "frequency_penalty",
            "function_call",
            "functions",
            "logit_bias",
            "logprobs",
            "max_completion_tokens",
            "max_tokens",
            "messages",
            "metadata",
            "min_p",
            "model",
            "n",
            "parallel_tool_calls",
            "prediction",
            "presence_penalty",
            "prompt_cache_key",
            "reasoning_effort",
            "repetition_penalty",
            "response_format",
            "safety_identifier",
            "seed",
            "service_tier",
            "stop",
            "store",
            "stream",
            "stream_options",
            "temperature",
            "tool_choice",
            "tools",
            "top_k",
            "top_logprobs",
            "top_p",
            "user",
            "verbosity",
        ],
        said: &["messages"],
        items: &[part("", MESSAGE)],
        parts: &[
            part("text", &["text", "cache_control"]),
            part("refusal", &["refusal"]),
            part("image_url", &["image_url"]),
            part("input_audio", &["input_audio"]),
            part("file", &["file"]),
        ],
        tools: &["function", "custom"],
        answer: &["max_completion_tokens", "max_tokens"],
    },
    Shape {
        path: "/v1/responses",
        fields: &[
            "include",
            "input",
            "instructions",
            "max_output_tokens",
            "max_tool_calls",
            "metadata",
            "model",
            "parallel_tool_calls",
            "prompt_cache_key",
            "reasoning",
            "safety_identifier",
            "service_tier",
            "store",
            "stream",
            "stream_options",
            "temperature",
            "text",
            "tool_choice",
            "tools",
            "top_logprobs",
            "top_p",
            "truncation",
            "user",
        ],
        said: &["input"],
        items: &[
            part("", &["role", "content", "id", "status"]),
            part("message", &["role", "content", "id", "status", "phase"]),
            part("function_call", &["id", "call_id", "name", "arguments", "status"]),
            part("function_call_output", &["id", "call_id", "output", "status"]),
            part("custom_tool_call", &["id", "call_id", "name", "input", "status"]),
            part("custom_tool_call_output", &["id", "call_id", "output", "status"]),
            part("reasoning", &["id", "summary", "content", "encrypted_content", "status"]),
        ],
        parts: &[
            part("input_text", &["text"]),
            part("output_text", &["text", "annotations", "logprobs"]),
            part("summary_text", &["text"]),
            part("reasoning_text", &["text"]),
            part("refusal", &["refusal"]),
            part("input_image", &["image_url", "detail"]),
            part("input_file", &["file_data", "filename"]),
        ],
        tools: &["function", "custom"],
        answer: &["max_output_tokens"],
    },
    Shape {
        path: "/v1/embeddings",
        fields: &["dimensions", "encoding_format", "input", "model", "user"],
        said: &[],
        items: &[],
        parts: &[],
        tools: &[],
        answer: &[],
    },
    Shape {
        path: "/v1/messages",
        fields: &[
            "max_tokens",
            "messages",
            "metadata",
            "model",
            "service_tier",
            "stop_sequences",
            "stream",
            "system",
            "temperature",
            "thinking",
            "tool_choice",
            "tools",
            "top_k",
            "top_p",
        ],
        said: &["messages", "system"],
        items: &[part("", MESSAGE), part("text", &["text", "cache_control", "citations"])],
        parts: ANTHROPIC_PARTS,
        tools: ANTHROPIC_TOOLS,
        answer: &["max_tokens"],
    },
    Shape {
        path: "/v1/messages/count_tokens",
        fields: &["messages", "model", "system", "thinking", "tool_choice", "tools"],
        said: &["messages", "system"],
        items: &[part("", MESSAGE), part("text", &["text", "cache_control", "citations"])],
        parts: ANTHROPIC_PARTS,
        tools: ANTHROPIC_TOOLS,
        answer: &[],
    },
];

/// Checks a call, and asks for usage where a stream would not tell it by itself. `models` are those that
/// may be asked; empty: all.
pub(crate) fn check(path: &str, models: &[String], body: &[u8]) -> Result<Checked, BadCall> {
    let shape = SHAPES.iter().find(|shape| shape.path == path);
    let shape = shape.ok_or_else(|| BadCall::Path(crate::event::bounded(path)))?;
    weigh(body)?;
    let mut call: Value = serde_json::from_slice(body).map_err(|_| BadCall::Body)?;
    let fields = call.as_object_mut().ok_or(BadCall::Body)?;
    let model = fields.get("model").and_then(Value::as_str).unwrap_or_default();
    if !models.is_empty() && !models.iter().any(|allowed| allowed == model) {
        return Err(BadCall::Model(crate::event::bounded(model)));
    }
    shape.check(fields)?;
    let output_tokens = shape.longest_answer(fields);
    let streams = fields.get("stream").and_then(Value::as_bool).unwrap_or_default();
    if shape.path == "/v1/chat/completions" && streams {
        let options = fields.entry("stream_options").or_insert_with(|| Value::Object(Map::new()));
        let options = options.as_object_mut().ok_or(BadCall::Body)?;
        options.insert("include_usage".into(), Value::Bool(true));
    }
    let body = serde_json::to_vec(&call).map_err(|_| BadCall::Body)?;
    let input_tokens = body.len() as u64 / BYTES_PER_TOKEN;
    Ok(Checked { body, input_tokens, output_tokens })
}

impl Shape {
    fn check(&self, fields: &Map<String, Value>) -> Result<(), BadCall> {
        known(fields, self.fields)?;
        // Kept at the provider, it could be read by other tasks.
        if fields.get("store").is_some_and(|store| *store != Value::Bool(false)) {
            return Err(BadCall::Field("store".into()));
        }
        for tool in list(fields.get("tools"))? {
            let kind = kind_of(tool.as_object().ok_or(BadCall::Body)?)?;
            let runs = |own: &&str| kind == *own || (own.ends_with('_') && kind.starts_with(own));
            if !self.tools.iter().any(runs) {
                return Err(BadCall::Tool(crate::event::bounded(kind)));
            }
        }
        for name in self.said {
            if fields.get(*name).is_some_and(Value::is_string) {
                continue;
            }
            for item in list(fields.get(*name))? {
                let item = item.as_object().ok_or(BadCall::Body)?;
                of_kind(item, self.items)?;
                for place in ["content", "output", "summary"] {
                    self.check_parts(item.get(place))?;
                }
            }
        }
        Ok(())
    }

    fn check_parts(&self, content: Option<&Value>) -> Result<(), BadCall> {
        if content.is_some_and(Value::is_string) {
            return Ok(());
        }
        for part in list(content)? {
            let part = part.as_object().ok_or(BadCall::Body)?;
            of_kind(part, self.parts)?;
            self.check_parts(part.get("content"))?;
            if let Some(source) = part.get("source") {
                let source = source.as_object().ok_or(BadCall::Body)?;
                of_kind(source, SOURCES)?;
                self.check_parts(source.get("content"))?;
            }
            match part.get("image_url") {
                None => {}
                Some(Value::Object(image)) => {
                    known(image, &["url", "detail"])?;
                    in_the_call(image.get("url"))?;
                }
                url => in_the_call(url)?,
            }
            if let Some(file) = part.get("file") {
                let file = file.as_object().ok_or(BadCall::Body)?;
                known(file, &["file_data", "filename"])?;
                no_address(file.get("file_data"))?;
            }
            no_address(part.get("file_data"))?;
            no_address(part.get("input_audio").and_then(|audio| audio.get("data")))?;
        }
        Ok(())
    }

    fn longest_answer(&self, fields: &Map<String, Value>) -> u64 {
        if self.answer.is_empty() {
            return 0;
        }
        let bounds = self.answer.iter().filter_map(|name| fields.get(*name)?.as_u64());
        let answers = fields.get("n").and_then(Value::as_u64).unwrap_or(1).max(1);
        bounds.max().unwrap_or(LONGEST_ANSWER_TOKENS).saturating_mul(answers)
    }
}

/// A list, or nothing.
fn list(value: Option<&Value>) -> Result<&[Value], BadCall> {
    match value {
        None | Some(Value::Null) => Ok(&[]),
        Some(Value::Array(list)) => Ok(list),
        Some(_) => Err(BadCall::Body),
    }
}

fn kind_of(object: &Map<String, Value>) -> Result<&str, BadCall> {
    object.get("type").map_or(Ok(""), |kind| kind.as_str().ok_or(BadCall::Body))
}

fn known(object: &Map<String, Value>, fields: &[&str]) -> Result<(), BadCall> {
    match object.keys().find(|name| !fields.contains(&name.as_str())) {
        Some(name) => Err(BadCall::Field(crate::event::bounded(name))),
        None => Ok(()),
    }
}

/// The object is of a known kind, and has that kind's fields only.
fn of_kind(object: &Map<String, Value>, parts: &[Part]) -> Result<(), BadCall> {
    let kind = kind_of(object)?;
    let part = parts.iter().find(|part| part.kind == kind);
    let part = part.ok_or_else(|| BadCall::Content(crate::event::bounded(kind)))?;
    let strange = |name: &&String| *name != "type" && !part.fields.contains(&name.as_str());
    match object.keys().find(strange) {
        Some(name) => Err(BadCall::Field(crate::event::bounded(name))),
        None => Ok(()),
    }
}

/// An image is in the call itself, not somewhere from where the provider fetches it.
fn in_the_call(url: Option<&Value>) -> Result<(), BadCall> {
    let data = url.and_then(Value::as_str).is_some_and(|url| url.starts_with("data:"));
    if data { Ok(()) } else { Err(BadCall::Content("image_url".into())) }
}

/// Some providers take an address where others want the file itself.
fn no_address(data: Option<&Value>) -> Result<(), BadCall> {
    let plain = |data: &Value| data.as_str().is_some_and(|data| !data.contains("://"));
    if data.is_none_or(plain) { Ok(()) } else { Err(BadCall::Content("file_data".into())) }
}

/// Goes through a call without keeping anything of it, to know what keeping it would take.
fn weigh(body: &[u8]) -> Result<(), BadCall> {
    let left = Cell::new(MOST_CALL_MEMORY);
    let mut reader = serde_json::Deserializer::from_slice(body);
    Weigh { left: &left }.deserialize(&mut reader).map_err(|_| BadCall::Body)?;
    reader.end().map_err(|_| BadCall::Body)
}

#[derive(Clone, Copy)]
struct Weigh<'a> {
    left: &'a Cell<usize>,
}

impl Weigh<'_> {
    fn take<E: serde::de::Error>(self, bytes: usize) -> Result<(), E> {
        let left = self.left.get().checked_sub(bytes);
        self.left.set(left.ok_or_else(|| E::custom("too much"))?);
        Ok(())
    }
}

impl<'de> DeserializeSeed<'de> for Weigh<'_> {
    type Value = ();

    fn deserialize<D: serde::Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Weigh<'_> {
    type Value = ();

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("JSON")
    }

    fn visit_unit<E: serde::de::Error>(self) -> Result<(), E> {
        self.take(VALUE_BYTES)
    }

    fn visit_bool<E: serde::de::Error>(self, _: bool) -> Result<(), E> {
        self.take(VALUE_BYTES)
    }

    fn visit_u64<E: serde::de::Error>(self, _: u64) -> Result<(), E> {
        self.take(VALUE_BYTES)
    }

    fn visit_i64<E: serde::de::Error>(self, _: i64) -> Result<(), E> {
        self.take(VALUE_BYTES)
    }

    fn visit_f64<E: serde::de::Error>(self, _: f64) -> Result<(), E> {
        self.take(VALUE_BYTES)
    }

    fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<(), E> {
        self.take(VALUE_BYTES + text.len())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<(), A::Error> {
        self.take(VALUE_BYTES)?;
        while list.next_element_seed(self)?.is_some() {}
        Ok(())
    }

    /// A field that is there twice is read by some for its first value, and by others for its last.
    fn visit_map<A: MapAccess<'de>>(self, mut object: A) -> Result<(), A::Error> {
        self.take(OBJECT_BYTES)?;
        let mut names = HashSet::new();
        while let Some(name) = object.next_key::<String>()? {
            self.take(FIELD_BYTES + 2 * name.len())?;
            if !names.insert(name) {
                return Err(A::Error::custom("a field twice"));
            }
            object.next_value_seed(self)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
