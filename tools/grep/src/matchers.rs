//! The pattern, compiled as its text needs it.
//!
//! `\w` of all scripts is a machine of thousands of states, which takes longer to make than most
//! searches. On a text that is ASCII throughout, the ASCII meaning finds exactly the same.

use std::cell::OnceCell;

use grep_regex::{RegexMatcher, RegexMatcherBuilder};
use ringwall_tool_sdk::Failure;

use crate::{Case, Input};

pub(crate) struct Matchers<'a> {
    input: &'a Input,
    /// None where the pattern means something that only Unicode has.
    for_ascii: Option<RegexMatcher>,
    for_all: OnceCell<RegexMatcher>,
}

impl<'a> Matchers<'a> {
    /// Fails if the pattern is none.
    pub(crate) fn new(input: &'a Input) -> Result<Matchers<'a>, Failure> {
        let for_ascii = if input.ascii || says_ascii(&input.pattern) {
            // What is wrong with it, or needs Unicode, shows when it is compiled for all texts.
            build(input, false).ok()
        } else {
            None
        };
        let matchers = Matchers { input, for_ascii, for_all: OnceCell::new() };
        if matchers.for_ascii.is_none() {
            matchers.for_all()?;
        }
        Ok(matchers)
    }

    pub(crate) fn for_text(&self, text: &[u8]) -> Result<&RegexMatcher, Failure> {
        match &self.for_ascii {
            Some(matcher) if self.input.ascii || text.is_ascii() => Ok(matcher),
            _ => self.for_all(),
        }
    }

    /// For texts that nobody has looked at.
    pub(crate) fn for_all(&self) -> Result<&RegexMatcher, Failure> {
        if let Some(matcher) = self.for_all.get() {
            return Ok(matcher);
        }
        let matcher = build(self.input, !self.input.ascii)?;
        Ok(self.for_all.get_or_init(|| matcher))
    }
}

/// Whether the pattern names no character beyond ASCII, as such or by its number: in another case
/// one of those can be in ASCII, as the sign for kelvin is.
fn says_ascii(pattern: &str) -> bool {
    let by_number = ["\\x", "\\u", "\\U"];
    pattern.is_ascii() && !by_number.iter().any(|escape| pattern.contains(escape))
}

fn build(input: &Input, unicode: bool) -> Result<RegexMatcher, Failure> {
    let mut builder = RegexMatcherBuilder::new();
    builder
        .fixed_strings(input.literal)
        .case_insensitive(input.case == Case::Insensitive)
        .case_smart(input.case == Case::Smart)
        .word(input.word)
        .unicode(unicode)
        .multi_line(true);
    if !input.multiline {
        builder.line_terminator(Some(b'\n'));
    }
    builder.build(&input.pattern).map_err(|error| {
        let hint = if input.literal { "" } else { " (set literal to search for it as it stands)" };
        Failure::bad_input(format_args!("the pattern cannot be used: {error}{hint}"))
    })
}
