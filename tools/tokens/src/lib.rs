//! `tokens`: counts the tokens of a text and cuts it into chunks, as language models see it.

mod chunks;
mod hash;
mod pieces;
mod vocabulary;

use std::path::Path;

use ringwall_tool_sdk::budget::Budget;
use ringwall_tool_sdk::{Failure, files};
use serde::{Deserialize, Serialize};

pub use chunks::Chunk;
pub use vocabulary::Encoding;

ringwall_tool_sdk::tool! { manifest: "tool.json", call: call }

/// The largest file that is read.
const MAX_FILE_BYTES: u64 = 16 << 20;
/// Bytes that a chunk's numbers take.
const CHUNK_OVERHEAD: usize = 100;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Input {
    text: Option<String>,
    path: Option<String>,
    #[serde(default)]
    encoding: Encoding,
    chunk: Option<ChunkBy>,
    #[serde(default)]
    ids: bool,
    #[serde(default = "default_max_bytes")]
    max_bytes: usize,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ChunkBy {
    max_tokens: usize,
    #[serde(default)]
    overlap_tokens: usize,
    #[serde(default = "yes")]
    texts: bool,
}

#[derive(Debug, Serialize)]
pub struct Output {
    tokens: usize,
    bytes: usize,
    characters: usize,
    lines: usize,
    encoding: Encoding,
    #[serde(skip_serializing_if = "Option::is_none")]
    ids: Option<Vec<u32>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    chunks: Option<Vec<Chunk>>,
    truncated: bool,
}

fn default_max_bytes() -> usize {
    512 << 10
}

fn yes() -> bool {
    true
}

pub fn call(input: Input) -> Result<Output, Failure> {
    call_in(Path::new(files::WORK), input)
}

/// The same below another directory than the granted one.
pub fn call_in(root: &Path, input: Input) -> Result<Output, Failure> {
    let text = match (input.text, &input.path) {
        (Some(text), None) => text,
        (None, Some(path)) => files::read_text(root, path, MAX_FILE_BYTES)?,
        _ => return Err(Failure::bad_input("give either text or path")),
    };
    let encoding = input.encoding;
    let mut budget = Budget::new(usize::MAX, input.max_bytes);
    let mut output = Output {
        tokens: count(&text, encoding),
        bytes: text.len(),
        characters: text.chars().count(),
        lines: text.lines().count(),
        encoding,
        ids: None,
        chunks: None,
        truncated: false,
    };
    if input.ids {
        let ids = encode(&text, encoding).into_iter();
        output.ids = Some(ids.take_while(|id| budget.take(id.to_string().len() + 1)).collect());
    }
    if let Some(by) = input.chunk {
        if by.max_tokens == 0 || by.overlap_tokens >= by.max_tokens {
            return Err(Failure::bad_input("overlap_tokens must be less than max_tokens"));
        }
        let mut chunks = chunks::chunks(&text, encoding, by.max_tokens, by.overlap_tokens);
        for chunk in chunks.iter_mut().filter(|_| by.texts) {
            chunk.text = Some(text[chunk.start_byte..chunk.end_byte].to_owned());
        }
        let size = |chunk: &Chunk| chunk.text.as_ref().map_or(0, String::len) + CHUNK_OVERHEAD;
        let fitting = chunks.into_iter().take_while(|chunk| budget.take(size(chunk)));
        output.chunks = Some(fitting.collect());
    }
    output.truncated = budget.exhausted();
    Ok(output)
}

/// How many tokens a text has. Marks such as `<|endoftext|>` are ordinary text.
pub fn count(text: &str, encoding: Encoding) -> usize {
    pieces::pieces(text, encoding).map(|piece| encoding.tokens(piece.as_bytes()).len()).sum()
}

/// The tokens of a text, as their numbers.
pub fn encode(text: &str, encoding: Encoding) -> Vec<u32> {
    pieces::pieces(text, encoding).flat_map(|piece| encoding.tokens(piece.as_bytes())).collect()
}
