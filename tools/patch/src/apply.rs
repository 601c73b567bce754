//! Finds where each hunk belongs in a text and applies it, or says why it does not fit.

use serde::Serialize;

use crate::parse::{Hunk, Kind};

/// How far a hunk may be from what it says.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Tolerance {
    /// Lines of context that may differ at each end.
    pub(crate) fuzz: usize,
    pub(crate) ignore_whitespace: bool,
}

/// Where a hunk was applied. Lines are counted from 1.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct AppliedHunk {
    patch_line: usize,
    line: usize,
    /// Lines between where the hunk said and where it fitted.
    offset: i64,
    /// Lines of context that were passed over at each end.
    fuzz: usize,
}

/// Why a hunk, or a whole file, was not applied.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Conflict {
    pub(crate) path: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) patch_line: Option<usize>,
    pub(crate) reason: &'static str,
    pub(crate) message: String,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) expected: Vec<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) nearest: Option<Nearest>,
}

impl Conflict {
    pub(crate) fn of_file(
        path: &str,
        patch_line: Option<usize>,
        reason: &'static str,
        message: &str,
    ) -> Self {
        let (path, message) = (path.to_owned(), message.to_owned());
        Self { path, patch_line, reason, message, expected: Vec::new(), nearest: None }
    }
}

/// The place that looks most like what the hunk expects.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Nearest {
    line: usize,
    matching: usize,
    found: Vec<String>,
}

/// Lines shown of what was expected and found.
const MAX_SHOWN_LINES: usize = 40;
/// Work spent on looking for the nearest place, in compared lines.
const MAX_COMPARISONS: usize = 5_000_000;

/// A text as lines, with what its ends of line are like.
struct Document {
    lines: Vec<String>,
    end_of_line: &'static str,
    ends_with_newline: bool,
}

impl Document {
    fn new(text: &str) -> Self {
        let windows = text.matches("\r\n").count() * 2 > text.matches('\n').count();
        let end_of_line = if windows { "\r\n" } else { "\n" };
        let ends_with_newline = text.is_empty() || text.ends_with('\n');
        let lines = text.split_terminator('\n');
        let lines = lines.map(|line| if windows { chomp(line) } else { line }.to_owned());
        Self { lines: lines.collect(), end_of_line, ends_with_newline }
    }

    fn into_text(self) -> String {
        let mut text = self.lines.join(self.end_of_line);
        if self.ends_with_newline && !self.lines.is_empty() {
            text.push_str(self.end_of_line);
        }
        text
    }
}

fn chomp(line: &str) -> &str {
    line.strip_suffix('\r').unwrap_or(line)
}

/// Applies the hunks in order. Hunks that do not fit are passed over and reported.
pub(crate) fn apply(
    path: &str,
    text: &str,
    hunks: &[Hunk],
    tolerance: Tolerance,
) -> (String, Vec<AppliedHunk>, Vec<Conflict>) {
    let mut document = Document::new(text);
    let (mut applied, mut conflicts) = (Vec::new(), Vec::new());
    // Lines that earlier hunks added or removed, and found displaced, move the later ones too.
    let mut drift = 0i64;
    let mut earliest = 0;
    for hunk in hunks {
        let expected = hunk.old_start.map(|start| expected_index(hunk, start) + drift);
        match find(&document, hunk, expected, earliest, tolerance) {
            Ok(place) => {
                let offset = expected.map_or(0, |expected| place.at as i64 - expected);
                applied.push(AppliedHunk {
                    patch_line: hunk.patch_line,
                    line: place.at + 1,
                    offset,
                    fuzz: place.fuzz,
                });
                let (end, grown) = splice(&mut document, hunk, place);
                earliest = end;
                drift += offset + grown;
            }
            Err(reason) => {
                conflicts.push(conflict(path, &document, hunk, expected, reason, tolerance));
            }
        }
    }
    (document.into_text(), applied, conflicts)
}

/// An insertion without context names the line *after* which it stands.
fn expected_index(hunk: &Hunk, start: usize) -> i64 {
    let start = i64::from(u32::try_from(start).unwrap_or(u32::MAX));
    if hunk.old_side().is_empty() { start } else { start - 1 }
}

#[derive(Debug, Clone, Copy)]
struct Place {
    /// Index of the hunk's first old line, counted as if its skipped context were there.
    at: usize,
    fuzz: usize,
}

fn find(
    document: &Document,
    hunk: &Hunk,
    expected: Option<i64>,
    earliest: usize,
    tolerance: Tolerance,
) -> Result<Place, &'static str> {
    let old = hunk.old_side();
    if old.is_empty() {
        // Nothing to look for: the header alone says where.
        let at = expected.and_then(|at| usize::try_from(at).ok());
        let at = at.filter(|at| (earliest..=document.lines.len()).contains(at));
        return at.map(|at| Place { at, fuzz: 0 }).ok_or("not-found");
    }
    for fuzz in 0..=tolerance.fuzz {
        let (head, tail) = skipped_context(hunk, fuzz);
        if fuzz > 0 && (head, tail) == skipped_context(hunk, fuzz - 1) {
            break;
        }
        let wanted = &old[head..old.len() - tail];
        let fits = |at: usize| matches_at(document, wanted, at, tolerance.ignore_whitespace);
        let first = earliest.max(head);
        let Some(last) = document.lines.len().checked_sub(wanted.len()) else { continue };
        let found = match expected {
            Some(expected) => closest(first, last, expected + head as i64, fits),
            None => {
                let mut places = (first..=last).filter(|at| fits(*at));
                let found = places.next();
                if places.next().is_some() {
                    return Err("ambiguous");
                }
                found
            }
        };
        if let Some(at) = found {
            return Ok(Place { at: at - head, fuzz });
        }
    }
    Err("not-found")
}

/// How many lines of context the hunk gives up at its two ends.
fn skipped_context(hunk: &Hunk, fuzz: usize) -> (usize, usize) {
    let context = |kind: &Kind| *kind == Kind::Context;
    let kinds: Vec<Kind> = hunk.lines.iter().map(|line| line.kind).collect();
    let head = kinds.iter().take_while(|kind| context(kind)).count();
    let tail = kinds.iter().rev().take_while(|kind| context(kind)).count();
    let (head, tail) = (head.min(fuzz), tail.min(fuzz));
    // An insertion must keep some context, or it would fit anywhere.
    if hunk.old_side().len() == head + tail { (0, 0) } else { (head, tail) }
}

/// The first place that fits, going outwards from where it is expected.
fn closest(
    first: usize,
    last: usize,
    expected: i64,
    fits: impl Fn(usize) -> bool,
) -> Option<usize> {
    if first > last {
        return None;
    }
    let start = usize::try_from(expected).unwrap_or(0).clamp(first, last);
    (0..=last - first).find_map(|distance| {
        let below = start.checked_sub(distance).filter(|at| *at >= first && fits(*at));
        below.or_else(|| Some(start + distance).filter(|at| *at <= last && fits(*at)))
    })
}

fn matches_at(document: &Document, wanted: &[&str], at: usize, loosely: bool) -> bool {
    document.lines[at..].len() >= wanted.len()
        && wanted
            .iter()
            .zip(&document.lines[at..])
            .all(|(wanted, line)| same(wanted, line, loosely))
}

fn same(wanted: &str, line: &str, loosely: bool) -> bool {
    let (wanted, line) = (chomp(wanted), chomp(line));
    wanted == line || (loosely && wanted.split_whitespace().eq(line.split_whitespace()))
}

/// Replaces the hunk's old lines by its new ones, keeping the document's own context lines.
/// Returns the end of what was written and by how much the document grew.
fn splice(document: &mut Document, hunk: &Hunk, place: Place) -> (usize, i64) {
    let windows = document.end_of_line == "\r\n";
    let mut old = place.at;
    let mut new = Vec::with_capacity(hunk.lines.len());
    for line in &hunk.lines {
        match line.kind {
            Kind::Context => {
                // Skipped context may lie beyond the document's end.
                new.extend(document.lines.get(old).cloned());
                old += 1;
            }
            Kind::Removed => old += 1,
            Kind::Added => {
                new.push(if windows { chomp(&line.text) } else { &line.text }.to_owned());
            }
        }
    }
    let end = old.min(document.lines.len());
    let at_the_end = end == document.lines.len();
    let grown = new.len() as i64 - (end - place.at) as i64;
    let written = place.at + new.len();
    document.lines.splice(place.at..end, new);
    if at_the_end && place.fuzz == 0 && hunk.old_ends_bare != hunk.new_ends_bare {
        document.ends_with_newline = !hunk.new_ends_bare;
    }
    (written, grown)
}

fn conflict(
    path: &str,
    document: &Document,
    hunk: &Hunk,
    expected: Option<i64>,
    reason: &'static str,
    tolerance: Tolerance,
) -> Conflict {
    let new = hunk.new_side();
    let there = expected.and_then(|at| usize::try_from(at).ok());
    let there = there.filter(|at| *at <= document.lines.len() && !new.is_empty());
    let already = reason == "not-found"
        && there.is_some_and(|at| matches_at(document, &new, at, tolerance.ignore_whitespace));
    let reason = if already { "already-applied" } else { reason };
    let message = match reason {
        "already-applied" => "the text already reads as this hunk would leave it",
        "ambiguous" => "these lines occur more than once; add context or line numbers",
        _ => "these lines were not found; read the file again and make the patch from what it says",
    };
    let old = hunk.old_side();
    Conflict {
        path: path.to_owned(),
        patch_line: Some(hunk.patch_line),
        reason,
        message: message.to_owned(),
        expected: old.iter().take(MAX_SHOWN_LINES).map(|line| (*line).to_owned()).collect(),
        nearest: if reason == "not-found" { nearest(document, &old) } else { None },
    }
}

/// The place with the most matching lines, if there is any.
fn nearest(document: &Document, old: &[&str]) -> Option<Nearest> {
    if old.len().saturating_mul(document.lines.len()) > MAX_COMPARISONS {
        return None;
    }
    let score = |at: usize| {
        old.iter()
            .zip(&document.lines[at..])
            .filter(|(wanted, line)| same(wanted, line, true))
            .count()
    };
    let scores = (0..document.lines.len()).map(|at| (score(at), at));
    let (matching, at) = scores.max_by_key(|(score, at)| (*score, std::cmp::Reverse(*at)))?;
    let found = document.lines[at..].iter().take(old.len().min(MAX_SHOWN_LINES)).cloned();
    (matching > 0).then(|| Nearest { line: at + 1, matching, found: found.collect() })
}
