//! `grep`: searches files or a text with ripgrep's engine and returns lines with positions.

mod collect;

use std::path::Path;

use grep_regex::{RegexMatcher, RegexMatcherBuilder};
use grep_searcher::{BinaryDetection, Searcher, SearcherBuilder};
use ringwall_tool_sdk::budget::Budget;
use ringwall_tool_sdk::{Failure, files};
use ringwall_tool_walk::{Scope, Unreadable, note};
use serde::{Deserialize, Serialize};

use collect::Collector;
pub use collect::{FileMatches, FoundLine};

ringwall_tool_sdk::tool! { manifest: "tool.json", call: call }

/// The longest line that the engine holds in memory.
const MAX_LINE_MEMORY: usize = 32 << 20;

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
    let matcher = matcher(input)?;
    let mut searcher = searcher(input);
    let mut output = Output::default();
    let mut budget = Budget::new(input.max_results, input.max_bytes);

    if let Some(text) = &input.text {
        let mut collector = Collector::new("", input, &matcher, &mut budget);
        searcher
            .search_slice(&matcher, text.as_bytes(), &mut collector)
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
        let mut collector = Collector::new(path, input, &matcher, &mut budget);
        if let Err(error) = searcher.search_path(&matcher, entry.path(), &mut collector) {
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

fn matcher(input: &Input) -> Result<RegexMatcher, Failure> {
    let mut builder = RegexMatcherBuilder::new();
    builder
        .fixed_strings(input.literal)
        .case_insensitive(input.case == Case::Insensitive)
        .case_smart(input.case == Case::Smart)
        .word(input.word)
        .unicode(!input.ascii)
        .multi_line(true);
    if !input.multiline {
        builder.line_terminator(Some(b'\n'));
    }
    builder.build(&input.pattern).map_err(|error| {
        let hint = if input.literal { "" } else { " (set literal to search for it as it stands)" };
        Failure::bad_input(format_args!("the pattern cannot be used: {error}{hint}"))
    })
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
