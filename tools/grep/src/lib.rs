//! `grep`: searches files or a text with ripgrep's engine and returns lines with positions.

mod collect;
mod matchers;

use std::fs::File;
use std::io::{self, Read as _};
use std::path::Path;

use grep_searcher::{BinaryDetection, Searcher, SearcherBuilder};
use ringwall_tool_sdk::budget::Budget;
use ringwall_tool_sdk::{Failure, files};
use ringwall_tool_walk::{Scope, Unreadable, note};
use serde::{Deserialize, Serialize};

use collect::Collector;
pub use collect::{FileMatches, FoundLine};
use matchers::Matchers;

ringwall_tool_sdk::tool! { manifest: "tool.json", call: call }

/// The longest line that the engine holds in memory.
const MAX_LINE_MEMORY: usize = 32 << 20;

/// Of files up to this size it is found out whether they are ASCII.
const MAX_LOOKED_AT: u64 = 4 << 20;

/// The schema refuses unknown fields; serde cannot beside a flattened part.
#[derive(Debug, Deserialize)]
pub struct Input {
    pattern: String,
    text: Option<String>,
    #[serde(flatten)]
    scope: Scope,
    #[serde(default)]
    literal: bool,
    #[serde(default)]
    case: Case,
    #[serde(default)]
    word: bool,
    #[serde(default)]
    ascii: bool,
    #[serde(default)]
    multiline: bool,
    #[serde(default)]
    invert: bool,
    #[serde(default)]
    mode: Mode,
    #[serde(default)]
    before: usize,
    #[serde(default)]
    after: usize,
    max_per_file: Option<u64>,
    #[serde(default = "default_max_results")]
    max_results: usize,
    #[serde(default = "default_max_bytes")]
    max_bytes: usize,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Case {
    Sensitive,
    Insensitive,
    #[default]
    Smart,
}

/// What to return of a file that matches.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Mode {
    #[default]
    Lines,
    Files,
    Count,
}

#[derive(Debug, Default, Serialize)]
pub struct Output {
    matches: u64,
    files: Vec<FileMatches>,
    files_searched: usize,
    binary_skipped: usize,
    unreadable: Vec<Unreadable>,
    truncated: bool,
}

fn default_max_results() -> usize {
    200
}

fn default_max_bytes() -> usize {
    128 << 10
}

pub fn call(input: Input) -> Result<Output, Failure> {
    call_in(Path::new(files::WORK), &input)
}

/// The same below another directory than the granted one.
pub fn call_in(root: &Path, input: &Input) -> Result<Output, Failure> {
    let matchers = Matchers::new(input)?;
    let mut searcher = searcher(input);
    let mut output = Output::default();
    let mut budget = Budget::new(input.max_results, input.max_bytes);

    if let Some(text) = &input.text {
        let matcher = matchers.for_text(text.as_bytes())?;
        let mut collector = Collector::new("", input, matcher, &mut budget);
        searcher
            .search_slice(matcher, text.as_bytes(), &mut collector)
            .map_err(|error| Failure::new("io", error))?;
        let (file, binary) = collector.finish();
        output.add(file, binary);
        output.truncated = budget.exhausted();
        return Ok(output);
    }
    let mut unreadable = Vec::new();
    let mut skipped = input.scope.walk(root, |entry, path| {
        if !entry.file_type().is_some_and(|kind| kind.is_file()) {
            return Ok(true);
        }
        let content = match read_small(entry.path()) {
            Ok(content) => content,
            Err(error) => {
                note(&mut unreadable, path, &error);
                output.files_searched += 1;
                return Ok(true);
            }
        };
        let matcher = match &content {
            Some(bytes) => matchers.for_text(bytes)?,
            None => matchers.for_all()?,
        };
        let mut collector = Collector::new(path, input, matcher, &mut budget);
        let searched = match &content {
            Some(bytes) => searcher.search_reader(matcher, bytes.as_slice(), &mut collector),
            None => searcher.search_path(matcher, entry.path(), &mut collector),
        };
        if let Err(error) = searched {
            note(&mut unreadable, path, &error);
        }
        let (file, binary) = collector.finish();
        output.add(file, binary);
        Ok(!budget.exhausted())
    })?;
    unreadable.append(&mut skipped);
    output.unreadable = unreadable;
    output.truncated = budget.exhausted();
    Ok(output)
}

/// The content of a file that is worth looking through before it is searched.
fn read_small(path: &Path) -> io::Result<Option<Vec<u8>>> {
    let mut file = File::open(path)?;
    if file.metadata()?.len() > MAX_LOOKED_AT {
        return Ok(None);
    }
    let mut content = Vec::new();
    // It may have grown since.
    (&mut file).take(MAX_LOOKED_AT + 1).read_to_end(&mut content)?;
    Ok((content.len() as u64 <= MAX_LOOKED_AT).then_some(content))
}

impl Output {
    fn add(&mut self, file: Option<FileMatches>, binary: bool) {
        self.files_searched += 1;
        self.binary_skipped += usize::from(binary);
        if let Some(file) = file {
            self.matches += file.matches;
            self.files.push(file);
        }
    }
}

fn searcher(input: &Input) -> Searcher {
    let shows_lines = input.mode == Mode::Lines;
    SearcherBuilder::new()
        .line_number(true)
        .multi_line(input.multiline)
        .invert_match(input.invert)
        .before_context(if shows_lines { input.before } else { 0 })
        .after_context(if shows_lines { input.after } else { 0 })
        .binary_detection(BinaryDetection::quit(0))
        .heap_limit(Some(MAX_LINE_MEMORY))
        .build()
}
