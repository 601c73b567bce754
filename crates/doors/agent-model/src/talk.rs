//! The lines between a brain and its supervisor: one JSON value each, bounded before it is parsed.

use std::io::{self, BufRead, Read, Write};

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::provider::Provider;

/// The longest line that either side takes.
pub const MAX_LINE_BYTES: usize = 16 << 20;

#[derive(Debug, thiserror::Error)]
pub enum TalkError {
    #[error("a line of the conversation is longer than {MAX_LINE_BYTES} bytes")]
    TooLong,
    #[error("a line of the conversation is not what it should be: {0}")]
    Malformed(String),
    #[error("the conversation broke off")]
    Io(#[from] io::Error),
}

/// What the supervisor says.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum ToBrain {
    Start(Box<Start>),
    /// Of all calls of the last turn, in their order.
    Results(Vec<CallResult>),
}

/// All that a brain is told at its beginning. It holds no key: the gateway does.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Start {
    /// Goes with everything that it asks for.
    pub grant: String,
    pub provider: Provider,
    pub model: String,
    /// Where the gateway's proxy listens.
    pub proxy: String,
    pub system: String,
    pub tools: Vec<ToolOffer>,
    /// The task, and what was said since, if this goes on from a journal.
    pub history: Vec<Said>,
    pub max_output_tokens: u32,
}

/// A tool as a model sees it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ToolOffer {
    pub name: String,
    pub description: String,
    /// JSON Schema of an object.
    pub schema: Value,
}

/// One part of a conversation.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Said {
    User(String),
    Assistant(Turn),
    Results(Vec<CallResult>),
}

/// What a model answered.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Turn {
    #[serde(default)]
    pub text: String,
    #[serde(default)]
    pub calls: Vec<Call>,
}

/// A tool that the model wants to have called.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Call {
    /// As the model names it.
    pub id: String,
    pub tool: String,
    pub input: Value,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CallResult {
    pub id: String,
    pub content: String,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub failed: bool,
}

/// As the provider reports them.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Tokens {
    pub input: u64,
    pub output: u64,
}

/// Why a model stopped.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Stop {
    /// It has said what it had to say.
    Finished,
    /// It waits for the results of its calls.
    Calls,
    /// The most that it may answer at once.
    Length,
    /// The provider or the model declined.
    Declined,
}

/// What a brain says. All of it is hostile: the model may say what a stranger wants.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum FromBrain {
    /// A piece of the answer as it comes, for people to look at.
    Text(String),
    Turn {
        grant: String,
        turn: Turn,
        tokens: Tokens,
        stop: Stop,
    },
    /// The model could not be asked; nothing more comes.
    Failed {
        reason: String,
        /// The gateway said no, so that asking again is no use.
        refused: bool,
    },
}

/// Reads one line; none at the end.
pub fn read_line<T: DeserializeOwned>(from: &mut impl BufRead) -> Result<Option<T>, TalkError> {
    let mut line = Vec::new();
    from.take(MAX_LINE_BYTES as u64 + 1).read_until(b'\n', &mut line)?;
    match line.last() {
        None => Ok(None),
        Some(b'\n') => serde_json::from_slice(&line)
            .map(Some)
            .map_err(|error| TalkError::Malformed(error.to_string())),
        Some(_) if line.len() > MAX_LINE_BYTES => Err(TalkError::TooLong),
        Some(_) => Err(TalkError::Io(io::ErrorKind::UnexpectedEof.into())),
    }
}

pub fn write_line(to: &mut impl Write, value: &impl Serialize) -> Result<(), TalkError> {
    let mut line =
        serde_json::to_vec(value).map_err(|error| TalkError::Malformed(error.to_string()))?;
    if line.len() >= MAX_LINE_BYTES {
        return Err(TalkError::TooLong);
    }
    line.push(b'\n');
    to.write_all(&line)?;
    Ok(to.flush()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read_back_line_by_line() {
        let result = CallResult { id: "1".into(), content: "a\nb".into(), failed: true };
        let said = ToBrain::Results(vec![result]);
        let mut bytes = Vec::new();
        write_line(&mut bytes, &said).unwrap();
        write_line(&mut bytes, &said).unwrap();
        let mut reader = &bytes[..];
        assert_eq!(read_line(&mut reader).unwrap(), Some(said.clone()));
        assert_eq!(read_line(&mut reader).unwrap(), Some(said));
        assert_eq!(read_line::<ToBrain>(&mut reader).unwrap(), None);
    }

    #[test]
    fn half_a_line_a_long_one_and_an_unknown_word_are_refused() {
        let cut = read_line::<ToBrain>(&mut &b"{\"results\":[]"[..]);
        assert!(matches!(cut, Err(TalkError::Io(_))));
        let long = vec![b'x'; MAX_LINE_BYTES + 2];
        assert!(matches!(read_line::<ToBrain>(&mut &long[..]), Err(TalkError::TooLong)));
        let other = read_line::<FromBrain>(&mut &b"{\"grant_me\":1}\n"[..]);
        assert!(matches!(other, Err(TalkError::Malformed(_))));
    }
}
