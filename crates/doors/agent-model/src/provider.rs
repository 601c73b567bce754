//! What providers have in common: a request out of a conversation, a turn out of a stream.

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::sse::{Event, SseError};
use crate::talk::{Call, Start, Stop, Tokens, Turn};
use crate::{anthropic, chat, responses};

/// Text and arguments of one answer together.
const MAX_ANSWER_BYTES: usize = 4 << 20;
const MAX_CALLS: usize = 32;
const MAX_ID_BYTES: usize = 256;

/// In whose words a model is asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Provider {
    /// Anthropic's Messages.
    Anthropic,
    /// OpenAI's Chat Completions, and the many that are compatible with them.
    Openai,
    /// OpenAI's Responses.
    OpenaiResponses,
}

#[derive(Debug, thiserror::Error)]
pub enum StreamError {
    #[error(transparent)]
    Sse(#[from] SseError),
    #[error("an event of the model's stream is no JSON")]
    NotJson,
    #[error("the model's answer is longer than {MAX_ANSWER_BYTES} bytes, or has too many calls")]
    TooLong,
    #[error("the model's server said: {0}")]
    Server(String),
    #[error("the model's stream broke off")]
    Cut,
}

/// A whole answer.
#[derive(Debug, Clone, PartialEq)]
pub struct Answer {
    pub turn: Turn,
    pub tokens: Tokens,
    pub stop: Stop,
}

impl Provider {
    pub fn named(name: &str) -> Option<Provider> {
        match name {
            "anthropic" => Some(Provider::Anthropic),
            "openai" => Some(Provider::Openai),
            "openai-responses" => Some(Provider::OpenaiResponses),
            _ => None,
        }
    }

    pub fn name(self) -> &'static str {
        match self {
            Provider::Anthropic => "anthropic",
            Provider::Openai => "openai",
            Provider::OpenaiResponses => "openai-responses",
        }
    }

    /// Where the provider itself is.
    pub fn usual_url(self) -> &'static str {
        match self {
            Provider::Anthropic => "https://api.anthropic.com",
            Provider::Openai | Provider::OpenaiResponses => "https://api.openai.com",
        }
    }

    pub fn path(self) -> &'static str {
        match self {
            Provider::Anthropic => "/v1/messages",
            Provider::Openai => "/v1/chat/completions",
            Provider::OpenaiResponses => "/v1/responses",
        }
    }

    pub fn headers(self) -> &'static [(&'static str, &'static str)] {
        match self {
            Provider::Anthropic => {
                &[("accept", "text/event-stream"), ("anthropic-version", "2023-06-01")]
            }
            Provider::Openai | Provider::OpenaiResponses => &[("accept", "text/event-stream")],
        }
    }

    pub fn request(self, start: &Start) -> Value {
        match self {
            Provider::Anthropic => anthropic::request(start),
            Provider::Openai => chat::request(start),
            Provider::OpenaiResponses => responses::request(start),
        }
    }

    pub fn reader(self) -> Reader {
        Reader { provider: self, building: Building::default() }
    }
}

/// Makes a turn out of the events of one stream.
#[derive(Debug)]
pub struct Reader {
    provider: Provider,
    building: Building,
}

/// What a turn is made of while it comes.
#[derive(Debug, Default)]
pub(crate) struct Building {
    pub(crate) text: String,
    pub(crate) calls: Vec<Unfinished>,
    pub(crate) tokens: Tokens,
    pub(crate) stop: Option<Stop>,
    /// The provider said that this was all.
    pub(crate) ended: bool,
    bytes: usize,
}

/// A call whose arguments are still coming.
#[derive(Debug, Default)]
pub(crate) struct Unfinished {
    pub(crate) index: u64,
    pub(crate) id: String,
    pub(crate) tool: String,
    pub(crate) arguments: String,
}

impl Reader {
    /// Takes an event and gives the piece of text that it brings.
    pub fn take(&mut self, event: &Event) -> Result<Option<String>, StreamError> {
        if event.data == "[DONE]" {
            self.building.ended = true;
            return Ok(None);
        }
        let value: Value = serde_json::from_str(&event.data).map_err(|_| StreamError::NotJson)?;
        let before = self.building.text.len();
        match self.provider {
            Provider::Anthropic => anthropic::take(&mut self.building, &value)?,
            Provider::Openai => chat::take(&mut self.building, &value)?,
            Provider::OpenaiResponses => responses::take(&mut self.building, &value)?,
        }
        let piece = self.building.text.get(before..).unwrap_or_default();
        Ok((!piece.is_empty()).then(|| piece.to_owned()))
    }

    /// The answer, if the stream came to its own end.
    pub fn finish(self) -> Result<Answer, StreamError> {
        let Building { text, calls, tokens, stop, ended, .. } = self.building;
        if !ended {
            return Err(StreamError::Cut);
        }
        let calls: Vec<Call> = calls.into_iter().map(Unfinished::finish).collect();
        let usual = if calls.is_empty() { Stop::Finished } else { Stop::Calls };
        let stop = match stop {
            // Some servers say "stop" and bring calls all the same.
            Some(Stop::Finished) | None => usual,
            Some(stop) => stop,
        };
        Ok(Answer { turn: Turn { text, calls }, tokens, stop })
    }
}

impl Building {
    fn count(&mut self, bytes: usize) -> Result<(), StreamError> {
        self.bytes += bytes;
        if self.bytes > MAX_ANSWER_BYTES { Err(StreamError::TooLong) } else { Ok(()) }
    }

    pub(crate) fn add_text(&mut self, piece: &str) -> Result<(), StreamError> {
        self.count(piece.len())?;
        self.text.push_str(piece);
        Ok(())
    }

    /// The call with this number, which may be new.
    pub(crate) fn call(&mut self, index: u64) -> Result<&mut Unfinished, StreamError> {
        let at = match self.calls.iter().position(|call| call.index == index) {
            Some(at) => at,
            None if self.calls.len() >= MAX_CALLS => return Err(StreamError::TooLong),
            None => {
                self.calls.push(Unfinished { index, ..Unfinished::default() });
                self.calls.len() - 1
            }
        };
        self.calls.get_mut(at).ok_or(StreamError::TooLong)
    }

    pub(crate) fn add_arguments(&mut self, index: u64, piece: &str) -> Result<(), StreamError> {
        self.count(piece.len())?;
        self.call(index)?.arguments.push_str(piece);
        Ok(())
    }

    pub(crate) fn name_call(
        &mut self,
        index: u64,
        id: &str,
        tool: &str,
    ) -> Result<(), StreamError> {
        if id.len() > MAX_ID_BYTES || tool.len() > MAX_ID_BYTES {
            return Err(StreamError::TooLong);
        }
        let call = self.call(index)?;
        // Streams say these once, and some of them again with nothing in it.
        if !id.is_empty() {
            call.id = id.to_owned();
        }
        if !tool.is_empty() {
            call.tool = tool.to_owned();
        }
        Ok(())
    }

    pub(crate) fn count_tokens(&mut self, input: u64, output: u64) {
        self.tokens.input = self.tokens.input.max(input);
        self.tokens.output = self.tokens.output.max(output);
    }
}

impl Unfinished {
    /// Arguments that are no JSON are handed on as text: whoever checks them says what is wrong.
    fn finish(self) -> Call {
        let input = match self.arguments.trim() {
            "" => json!({}),
            text => serde_json::from_str(text).unwrap_or_else(|_| Value::String(text.to_owned())),
        };
        let id = if self.id.is_empty() { format!("call-{}", self.index) } else { self.id };
        Call { id, tool: self.tool, input }
    }
}
