//! The difference of two contents as hunks and as unified text.

use std::borrow::Cow;
use std::fmt::Write as _;

use serde::{Deserialize, Serialize};
use similar::{Algorithm, DiffOp, DiffTag, capture_diff_slices, group_diff_ops};

use crate::tree::LoadedPair;

/// Which white space does not count.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Whitespace {
    #[default]
    Exact,
    IgnoreAtEnd,
    IgnoreAmount,
    IgnoreAll,
}

#[derive(Debug, Serialize)]
pub struct FileDiff {
    path: String,
    status: &'static str,
    binary: bool,
    pub(crate) added: usize,
    pub(crate) removed: usize,
    hunks: Vec<Hunk>,
}

/// Lines are counted from 1; a count of 0 means "before the line that follows `start`".
#[derive(Debug, Serialize)]
pub struct Hunk {
    old_start: usize,
    old_lines: usize,
    new_start: usize,
    new_lines: usize,
}

/// `None` when there is no difference.
pub(crate) fn diff(
    pair: &LoadedPair,
    whitespace: Whitespace,
    context: usize,
) -> Option<(FileDiff, String)> {
    if pair.old == pair.new {
        return None;
    }
    let status = match (&pair.old, &pair.new) {
        (None, _) => "added",
        (_, None) => "removed",
        _ => "changed",
    };
    let mut file = FileDiff {
        path: pair.path.clone(),
        status,
        binary: false,
        added: 0,
        removed: 0,
        hunks: Vec::new(),
    };
    let path = &pair.path;
    let from = pair.old.as_ref().map_or("/dev/null".to_owned(), |_| format!("a/{path}"));
    let to = pair.new.as_ref().map_or("/dev/null".to_owned(), |_| format!("b/{path}"));
    let (Some(old), Some(new)) = (text_of(&pair.old), text_of(&pair.new)) else {
        file.binary = true;
        return Some((file, format!("Binary files {from} and {to} differ\n")));
    };

    let old: Vec<&str> = old.split_inclusive('\n').collect();
    let new: Vec<&str> = new.split_inclusive('\n').collect();
    let key = |line: &&'_ str| compared(line, whitespace).into_owned();
    let old_keys: Vec<String> = old.iter().map(key).collect();
    let new_keys: Vec<String> = new.iter().map(key).collect();
    let operations = capture_diff_slices(Algorithm::Patience, &old_keys, &new_keys);
    let groups = group_diff_ops(operations, context);
    // An empty file that came or went has no hunk, and is a difference all the same.
    if groups.is_empty() && status == "changed" {
        return None;
    }

    let mut unified = format!("--- {from}\n+++ {to}\n");
    for group in &groups {
        write_hunk(group, &old, &new, &mut unified, &mut file);
    }
    Some((file, unified))
}

fn write_hunk(
    group: &[DiffOp],
    old: &[&str],
    new: &[&str],
    text: &mut String,
    file: &mut FileDiff,
) {
    let (Some(first), Some(last)) = (group.first(), group.last()) else { return };
    let olds = first.old_range().start..last.old_range().end;
    let news = first.new_range().start..last.new_range().end;
    let start = |range: &std::ops::Range<usize>| range.start + usize::from(!range.is_empty());
    let hunk = Hunk {
        old_start: start(&olds),
        old_lines: olds.len(),
        new_start: start(&news),
        new_lines: news.len(),
    };
    // Writing to a string cannot fail.
    let _ = writeln!(
        text,
        "@@ -{} +{} @@",
        range_text(hunk.old_start, hunk.old_lines),
        range_text(hunk.new_start, hunk.new_lines)
    );
    file.hunks.push(hunk);
    for operation in group {
        if operation.tag() == DiffTag::Equal {
            // Lines may differ in white space that does not count: show the new ones.
            new[operation.new_range()].iter().for_each(|line| write_line(' ', line, text));
            continue;
        }
        file.removed += operation.old_range().len();
        file.added += operation.new_range().len();
        old[operation.old_range()].iter().for_each(|line| write_line('-', line, text));
        new[operation.new_range()].iter().for_each(|line| write_line('+', line, text));
    }
}

fn range_text(start: usize, lines: usize) -> String {
    if lines == 1 { start.to_string() } else { format!("{start},{lines}") }
}

fn write_line(mark: char, line: &str, text: &mut String) {
    text.push(mark);
    text.push_str(line);
    if !line.ends_with('\n') {
        text.push_str("\n\\ No newline at end of file\n");
    }
}

/// A missing side is an empty text; `None` for what is no text.
fn text_of(content: &Option<Vec<u8>>) -> Option<&str> {
    let bytes = content.as_deref().unwrap_or_default();
    if bytes.contains(&0) { None } else { std::str::from_utf8(bytes).ok() }
}

/// What of a line counts.
fn compared(line: &str, whitespace: Whitespace) -> Cow<'_, str> {
    match whitespace {
        Whitespace::Exact => line.into(),
        Whitespace::IgnoreAtEnd => line.trim_end().into(),
        Whitespace::IgnoreAmount => {
            let words: Vec<&str> = line.split_whitespace().collect();
            let indent = if line.starts_with(char::is_whitespace) { " " } else { "" };
            format!("{indent}{}", words.join(" ")).into()
        }
        Whitespace::IgnoreAll => line.chars().filter(|c| !c.is_whitespace()).collect(),
    }
}
