//! What a call of a model costs: set aside before it is made, and put right by what the answer tells.

use std::sync::Arc;

use hyper::header::{self, HeaderMap};
use serde::Deserialize;
use serde::de::IgnoredAny;

use crate::held::{Hold, Room};
use crate::meter::Reserved;

/// Of an answer in one piece, and of one line of a stream.
const LONGEST_READ: usize = 8 * 1024 * 1024;
/// Where a provider reports no usage, tokens are taken to have this many bytes.
pub(crate) const BYTES_PER_TOKEN: u64 = 4;

/// Reads the usage out of an answer that goes by, and counts it when the answer ends or is left.
pub(crate) struct UsageReader {
    /// What counts until the answer says otherwise. An answer that is left early says nothing: the
    /// provider may go on with it, and wants to be paid.
    reserved: Option<Reserved>,
    streams: bool,
    waiting: Vec<u8>,
    /// Room for what waits.
    hold: Hold,
    held: usize,
    asked: u64,
    answered: u64,
    found: Option<(u64, u64)>,
    /// A stream has said that nothing follows, or the body has ended.
    complete: bool,
}

/// What is looked at of an answer; everything else is skipped without being kept.
#[derive(Deserialize)]
struct Told {
    #[serde(default)]
    usage: Maybe<Usage>,
    #[serde(default)]
    response: Maybe<Within>,
    #[serde(default)]
    message: Maybe<Within>,
    #[serde(default, rename = "type")]
    kind: Maybe<String>,
    #[serde(default)]
    choices: Maybe<Vec<IgnoredAny>>,
    #[serde(default)]
    delta: Maybe<Delta>,
}

#[derive(Deserialize)]
struct Within {
    usage: Usage,
}

#[derive(Deserialize)]
struct Delta {
    stop_reason: String,
}

#[derive(Deserialize)]
struct Usage {
    #[serde(default)]
    prompt_tokens: Option<u64>,
    #[serde(default)]
    input_tokens: Option<u64>,
    #[serde(default)]
    cache_creation_input_tokens: Option<u64>,
    #[serde(default)]
    cache_read_input_tokens: Option<u64>,
    #[serde(default)]
    completion_tokens: Option<u64>,
    #[serde(default)]
    output_tokens: Option<u64>,
}

/// Providers put other things under the same names.
#[derive(Deserialize)]
#[serde(untagged)]
enum Maybe<T> {
    Is(T),
    Other(IgnoredAny),
}

impl<T> Default for Maybe<T> {
    fn default() -> Self {
        Self::Other(IgnoredAny)
    }
}

impl<T> Maybe<T> {
    fn get(&self) -> Option<&T> {
        match self {
            Self::Is(value) => Some(value),
            Self::Other(_) => None,
        }
    }
}

impl Usage {
    fn input(&self) -> u64 {
        let parts = [
            self.prompt_tokens,
            self.input_tokens,
            self.cache_creation_input_tokens,
            self.cache_read_input_tokens,
        ];
        parts.into_iter().flatten().fold(0, u64::saturating_add)
    }

    fn output(&self) -> u64 {
        let parts = [self.completion_tokens, self.output_tokens];
        parts.into_iter().flatten().fold(0, u64::saturating_add)
    }
}

impl UsageReader {
    /// `asked` bytes were sent.
    pub(crate) fn new(
        reserved: Reserved,
        room: &Arc<Room>,
        headers: &HeaderMap,
        asked: u64,
    ) -> Self {
        let streams = headers
            .get(header::CONTENT_TYPE)
            .is_some_and(|kind| kind.as_bytes().starts_with(b"text/event-stream"));
        Self {
            reserved: Some(reserved),
            streams,
            waiting: Vec::new(),
            hold: Hold::of(room),
            held: 0,
            asked,
            answered: 0,
            found: None,
            complete: false,
        }
    }

    pub(crate) fn read(&mut self, piece: &[u8]) {
        self.answered += piece.len() as u64;
        if !self.has_room(self.waiting.len() + piece.len()) {
            // Too long to be understood: it is counted by its size.
            self.waiting.clear();
            return;
        }
        self.waiting.extend_from_slice(piece);
        if !self.streams {
            return;
        }
        while let Some(end) = memchr::memchr(b'\n', &self.waiting) {
            let line: Vec<u8> = self.waiting.drain(..=end).collect();
            if let Some(data) = line.strip_prefix(b"data:") {
                self.look_at(data);
            }
        }
    }

    /// The answer has come to its end.
    pub(crate) fn finish(mut self) {
        self.complete = true;
    }

    fn has_room(&mut self, needed: usize) -> bool {
        if needed > LONGEST_READ {
            return false;
        }
        if needed > self.held {
            if self.hold.grow(needed - self.held).is_err() {
                return false;
            }
            self.held = needed;
        }
        true
    }

    fn look_at(&mut self, json: &[u8]) {
        if self.streams && json.trim_ascii() == b"[DONE]" {
            self.complete = true;
            return;
        }
        let Ok(told) = serde_json::from_slice::<Told>(json) else {
            return;
        };
        let within = [&told.response, &told.message].map(|place| place.get().map(|it| &it.usage));
        for usage in within.into_iter().chain([told.usage.get()]).flatten() {
            // Streams report more than once, each time the sum so far.
            let (known_input, known_output) = self.found.unwrap_or_default();
            self.found = Some((known_input.max(usage.input()), known_output.max(usage.output())));
        }
        self.complete |= if self.streams { says_all(&told) } else { self.found.is_some() };
    }
}

/// Whether an event of a stream is the last that tells of usage.
fn says_all(told: &Told) -> bool {
    let usage = told.usage.get().is_some();
    let kind = told.kind.get().map(String::as_str).unwrap_or_default();
    match kind {
        "message_stop" | "response.completed" | "response.incomplete" | "response.failed" => true,
        "message_delta" => usage && told.delta.get().is_some_and(|it| !it.stop_reason.is_empty()),
        _ => usage && told.choices.get().is_some_and(Vec::is_empty),
    }
}

impl Drop for UsageReader {
    fn drop(&mut self) {
        if !self.streams {
            let whole = std::mem::take(&mut self.waiting);
            self.look_at(&whole);
        }
        let guessed = (self.asked / BYTES_PER_TOKEN, self.answered / BYTES_PER_TOKEN);
        let told = self.found.filter(|_| self.complete);
        let Some(reserved) = self.reserved.take() else {
            return;
        };
        match told.or(self.complete.then_some(guessed)) {
            Some((input, output)) => reserved.settle(input, output),
            // What was reserved counts, and more if more has come already.
            None => {
                let (input, output) = self.found.unwrap_or(guessed);
                reserved.settle_at_least(input, output);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::meter::{Limits, Meter};
    use hyper::header::HeaderValue;

    const JSON: &str = "application/json";
    const EVENTS: &str = "text/event-stream; charset=utf-8";

    fn counted(kind: &'static str, pieces: &[&str], ends: bool) -> (u64, u64) {
        let meter = Arc::new(Meter::new(Limits::default()));
        let mut headers = HeaderMap::new();
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(kind));
        let reserved = meter.reserve_tokens(100, 1000).unwrap();
        let mut reader = UsageReader::new(reserved, &Arc::default(), &headers, 400);
        for piece in pieces {
            reader.read(piece.as_bytes());
        }
        if ends {
            reader.finish();
        } else {
            drop(reader);
        }
        let usage = meter.usage();
        (usage.input_tokens, usage.output_tokens)
    }

    #[test]
    fn tokens_are_read_in_every_shape() {
        let chat = [r#"{"usage":{"prompt_tokens":7,"comple"#, r#"tion_tokens":5}}"#];
        let events = [
            "data: {\"choices\":[],\"usage\":null}\n\n",
            "data: {\"choices\":[],\"usage\":{\"prompt_tokens\":3,\"completion_tokens\":9}}\n\n",
            "data: [DONE]\n\n",
        ];
        let responses = [
            "event: response.completed\nda",
            "ta: {\"type\":\"response.completed\",\"response\":{\"id\":1,\"usage\":{\"input_tokens\":3,\"output_tokens\":9}}}\n\n",
        ];
        let messages = [
            "data: {\"type\":\"message_start\",\"message\":{\"usage\":{\"input_tokens\":10,\"cache_read_input_tokens\":5,\"output_tokens\":1}}}\n\n",
            "data: {\"type\":\"message_delta\",\"delta\":{\"stop_reason\":\"end_turn\"},\"usage\":{\"output_tokens\":20}}\n\n",
        ];
        for ends in [true, false] {
            assert_eq!(counted(JSON, &chat, ends), (7, 5));
            let whole = r#"{"usage":{"input_tokens":7,"output_tokens":5},"message":"hi"}"#;
            assert_eq!(counted(JSON, &[whole], ends), (7, 5));
            assert_eq!(counted(EVENTS, &events, ends), (3, 9));
            assert_eq!(counted(EVENTS, &responses, ends), (3, 9));
            assert_eq!(counted(EVENTS, &messages, ends), (15, 20));
        }
    }

    #[test]
    fn an_answer_that_tells_no_usage_is_counted_by_its_size() {
        assert_eq!(counted(EVENTS, &["data: {\"x\":1}\n\n"], true), (100, 3));
        assert_eq!(counted(JSON, &["not json"], true), (100, 2));
    }

    #[test]
    fn an_answer_that_is_left_counts_what_was_set_aside() {
        assert_eq!(counted(EVENTS, &[], false), (100, 1000));
        assert_eq!(counted(EVENTS, &["data: {\"x\":1}\n\n"], false), (100, 1000));
        // A sum so far is not the sum.
        let begun = "data: {\"type\":\"message_start\",\"message\":{\"usage\":{\"input_tokens\":300,\"output_tokens\":1}}}\n\n";
        assert_eq!(counted(EVENTS, &[begun], false), (300, 1000));
        let running =
            "data: {\"choices\":[{}],\"usage\":{\"prompt_tokens\":3,\"completion_tokens\":9}}\n\n";
        assert_eq!(counted(EVENTS, &[running], false), (100, 1000));
        assert_eq!(counted(JSON, &["{\"usage\":{\"input_tokens\":7,"], false), (100, 1000));
    }
}
