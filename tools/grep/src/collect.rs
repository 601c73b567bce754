//! Collects what the search engine finds in one file, within the budget of the call.

use std::io;

use grep_matcher::Matcher;
use grep_regex::RegexMatcher;
use grep_searcher::{Searcher, Sink, SinkContext, SinkFinish, SinkMatch};
use ringwall_tool_sdk::budget::Budget;
use serde::Serialize;

use crate::{Input, Mode};

/// Bytes shown of one line; longer ones (minified code, data) are cut round the match.
const MAX_LINE_BYTES: usize = 1_000;
/// Bytes shown before the match in a line that is cut.
const LEAD_BYTES: usize = 200;
/// What a result costs beside its text: keys and numbers.
const LINE_OVERHEAD: usize = 60;

#[derive(Debug, Serialize)]
pub struct FileMatches {
    #[serde(skip_serializing_if = "String::is_empty")]
    path: String,
    pub(crate) matches: u64,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    lines: Vec<FoundLine>,
}

/// A line that matches, or one of the lines round it: those have no column.
#[derive(Debug, Serialize)]
pub struct FoundLine {
    line: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    column: Option<usize>,
    text: String,
    /// The text is a piece of a longer line.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    cut: bool,
}

pub(crate) struct Collector<'a> {
    file: FileMatches,
    input: &'a Input,
    matcher: &'a RegexMatcher,
    budget: &'a mut Budget,
    binary: bool,
}

impl<'a> Collector<'a> {
    pub(crate) fn new(
        path: &str,
        input: &'a Input,
        matcher: &'a RegexMatcher,
        budget: &'a mut Budget,
    ) -> Self {
        let file = FileMatches { path: path.to_owned(), matches: 0, lines: Vec::new() };
        Self { file, input, matcher, budget, binary: false }
    }

    /// What was found, if anything, and whether the file turned out to be no text.
    pub(crate) fn finish(self) -> (Option<FileMatches>, bool) {
        // Lines before the first zero byte may have matched; of a binary file they mean little.
        let found = self.file.matches > 0 && !self.binary;
        (found.then_some(self.file), self.binary)
    }

    fn is_full(&self) -> bool {
        let most = self.input.max_per_file;
        most.is_some_and(|most| self.file.matches >= most)
    }

    /// Adds a piece of text: several lines for a match that spans them.
    fn add(&mut self, first: u64, bytes: &[u8], at: Option<usize>) -> bool {
        let text = String::from_utf8_lossy(bytes);
        let text = text.trim_end_matches(['\n', '\r']);
        let (text, cut) = piece(text, at.unwrap_or(0));
        if !self.budget.take(text.len() + LINE_OVERHEAD) {
            return false;
        }
        let column = at.map(|at| String::from_utf8_lossy(&bytes[..at]).chars().count() + 1);
        self.file.lines.push(FoundLine { line: first, column, text, cut });
        true
    }
}

/// At most the longest shown piece, with the byte `at` in it.
fn piece(text: &str, at: usize) -> (String, bool) {
    if text.len() <= MAX_LINE_BYTES {
        return (text.to_owned(), false);
    }
    let start = text.floor_char_boundary(at.saturating_sub(LEAD_BYTES));
    let end = text.floor_char_boundary(start + MAX_LINE_BYTES);
    (text[start..end].to_owned(), true)
}

impl Sink for Collector<'_> {
    type Error = io::Error;

    fn matched(&mut self, _: &Searcher, found: &SinkMatch<'_>) -> Result<bool, io::Error> {
        if self.is_full() {
            return Ok(false);
        }
        match self.input.mode {
            Mode::Files | Mode::Count => {
                if self.file.matches == 0 && !self.budget.take(self.file.path.len() + LINE_OVERHEAD)
                {
                    return Ok(false);
                }
                self.file.matches += 1;
                Ok(self.input.mode == Mode::Count)
            }
            Mode::Lines => {
                let bytes = found.bytes();
                let at = match self.input.invert {
                    true => 0,
                    false => self.matcher.find(bytes).ok().flatten().map_or(0, |at| at.start()),
                };
                if !self.add(found.line_number().unwrap_or(0), bytes, Some(at)) {
                    return Ok(false);
                }
                self.file.matches += 1;
                Ok(true)
            }
        }
    }

    fn context(&mut self, _: &Searcher, context: &SinkContext<'_>) -> Result<bool, io::Error> {
        Ok(self.add(context.line_number().unwrap_or(0), context.bytes(), None))
    }

    fn binary_data(&mut self, _: &Searcher, _: u64) -> Result<bool, io::Error> {
        Ok(false)
    }

    fn finish(&mut self, _: &Searcher, finish: &SinkFinish) -> Result<(), io::Error> {
        self.binary = finish.binary_byte_offset().is_some();
        Ok(())
    }
}
