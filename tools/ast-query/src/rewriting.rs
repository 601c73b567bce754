//! Rewrites matches by a template: edits, and the whole result as a text or a unified diff.

use ast_grep_core::AstGrep;
use ringwall_tool_sdk::Failure;
use serde::Serialize;
use similar::TextDiff;
use tool_syntax::{Lines, Span, has_more_errors};

use crate::Document;
use crate::matching::Found;

/// What a rewrite makes of one source.
#[derive(Debug, Serialize)]
pub struct Rewritten {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub path: Option<String>,
    pub edits: Vec<Edit>,
    /// Matches inside a rewritten one: they wait for the next call.
    pub nested: usize,
    /// The result fits the grammar worse than what was there: look before you apply it.
    pub breaks_syntax: bool,
    /// For the `patch` tool.
    pub diff: String,
    /// The whole new text, when the old one was given inline.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub text: Option<String>,
}

#[derive(Debug, Serialize)]
pub struct Edit {
    pub span: Span,
    pub replacement: String,
}

/// Absent when nothing changes.
pub(crate) fn rewrite(
    document: &AstGrep<Document>,
    path: Option<&str>,
    matches: &[Found<'_>],
    template: &str,
    lines: &Lines<'_>,
) -> Result<Option<Rewritten>, Failure> {
    let root = document.root();
    let old = root.get_doc();
    let (edits, nested) = edits(matches, template, lines)?;
    let new = apply(&old.src, &edits);
    if new == old.src {
        return Ok(None);
    }
    let name = path.unwrap_or("text");
    let diff = TextDiff::from_lines(&old.src, &new);
    let diff = diff.unified_diff().header(&format!("a/{name}"), &format!("b/{name}")).to_string();
    let breaks_syntax = has_more_errors(&old.tree, &old.lang.0.parse(&new)?);
    let text = path.is_none().then_some(new);
    Ok(Some(Rewritten { path: path.map(str::to_owned), edits, nested, breaks_syntax, diff, text }))
}

/// The edits in the order of the text, none inside another, and how many were left out for that.
fn edits(
    matches: &[Found<'_>],
    template: &str,
    lines: &Lines<'_>,
) -> Result<(Vec<Edit>, usize), Failure> {
    let mut ordered: Vec<&Found<'_>> = matches.iter().collect();
    ordered.sort_by_key(|found| {
        let range = found.node.range();
        (range.start, std::cmp::Reverse(range.end))
    });
    let (mut edits, mut nested, mut end) = (Vec::new(), 0, 0);
    for found in ordered {
        let range = found.node.range();
        if range.start < end {
            nested += 1;
            continue;
        }
        let replacement = String::from_utf8(found.node.replace_by(template).inserted_text)
            .map_err(|_| Failure::new("internal", "a replacement is not UTF-8"))?;
        end = range.end;
        edits.push(Edit { span: lines.span(range), replacement });
    }
    Ok((edits, nested))
}

fn apply(old: &str, edits: &[Edit]) -> String {
    let mut new = String::with_capacity(old.len());
    let mut at = 0;
    for edit in edits {
        let [start, end] = edit.span.bytes;
        new.push_str(&old[at..start]);
        new.push_str(&edit.replacement);
        at = end;
    }
    new.push_str(&old[at..]);
    new
}
