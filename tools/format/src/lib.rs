//! `format`: formats source text, by the libraries behind the usual formatters.

mod languages;
mod rust;

use std::path::Path;

use ringwall_tool_sdk::{Failure, files};
use serde::{Deserialize, Serialize};

pub use languages::Language;

const MOST_BYTES: u64 = 4 << 20;
const LINE_WIDTH: u16 = 100;

ringwall_tool_sdk::tool! { manifest: "tool.json", call: call }

#[derive(Debug, Default, Deserialize)]
pub struct Input {
    pub text: Option<String>,
    pub path: Option<String>,
    /// Needed with `text`; with `path`, by the file's name if absent.
    pub language: Option<Language>,
    /// Where lines should break, in columns. Rust's formatter has its own.
    pub line_width: Option<u16>,
    /// Put the result into the file.
    #[serde(default)]
    pub write: bool,
}

#[derive(Debug, PartialEq, Eq, Serialize)]
pub struct Output {
    pub language: Language,
    pub text: String,
    pub changed: bool,
    /// Parts that were left as they are, because formatting them would lose comments.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub left: Vec<Left>,
}

#[derive(Debug, PartialEq, Eq, Serialize)]
pub struct Left {
    pub first_line: usize,
    pub last_line: usize,
    pub why: String,
}

/// A formatted text, and what in it was left alone.
pub(crate) struct Formatted {
    pub(crate) text: String,
    pub(crate) left: Vec<Left>,
}

pub fn call(input: Input) -> Result<Output, Failure> {
    run(Path::new(files::WORK), input)
}

/// Formats a text, or a file below `root`.
pub fn run(root: &Path, input: Input) -> Result<Output, Failure> {
    let (old, language) = match (input.text, &input.path) {
        (Some(text), None) if !input.write => (text, input.language),
        (None, Some(path)) => {
            let by_name = || Language::of_path(Path::new(path));
            (files::read_text(root, path, MOST_BYTES)?, input.language.or_else(by_name))
        }
        _ => {
            return Err(Failure::bad_input(
                "give either `text` (with `language`) or `path`; `write` needs `path`",
            ));
        }
    };
    let language = language.ok_or_else(|| {
        Failure::bad_input("which language? say `language`; a `text` always needs it")
    })?;
    let width = input.line_width.unwrap_or(LINE_WIDTH);
    let formatted = languages::format(language, &old, width)?;
    let changed = formatted.text != old;
    if let (true, true, Some(path)) = (input.write, changed, &input.path) {
        files::write(root, path, formatted.text.as_bytes())?;
    }
    Ok(Output { language, text: formatted.text, changed, left: formatted.left })
}
