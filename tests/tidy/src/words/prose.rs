//! Markdown as the sentences that people read: without code, links' targets and markup.

/// Which part of a document a text is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Paragraph,
    Heading,
    Cell,
}

#[derive(Debug)]
pub(super) struct Passage {
    pub(super) kind: Kind,
    /// Where it begins, from 1.
    pub(super) line: usize,
    pub(super) text: String,
}

/// All texts of a document. Code, comments and pictures are left out.
pub(super) fn passages(document: &str) -> Vec<Passage> {
    let mut passages: Vec<Passage> = Vec::new();
    let mut open = false;
    for (line, text) in prose_lines(document) {
        let trimmed = text.trim();
        let begins_item = item(trimmed).is_some();
        if trimmed.is_empty() {
            open = false;
        } else if let Some(heading) = trimmed.strip_prefix('#') {
            let text = plain(heading.trim_start_matches('#'));
            passages.push(Passage { kind: Kind::Heading, line, text });
            open = false;
        } else if trimmed.starts_with('|') {
            let cells = plain(&trimmed.replace("\\|", "/"));
            let cells = cells.split('|').map(str::trim).filter(|cell| !is_rule(cell));
            passages.extend(cells.map(|cell| Passage {
                kind: Kind::Cell,
                line,
                text: cell.to_owned(),
            }));
            open = false;
        } else if open
            && !begins_item
            && let Some(last) = passages.last_mut()
        {
            last.text.push(' ');
            last.text.push_str(trimmed);
        } else {
            let text = item(trimmed).unwrap_or(trimmed).to_owned();
            passages.push(Passage { kind: Kind::Paragraph, line, text });
            open = true;
        }
    }
    for passage in passages.iter_mut().filter(|passage| passage.kind == Kind::Paragraph) {
        passage.text = plain(&passage.text);
    }
    passages
}

/// The lines outside of code and comments, with their numbers.
fn prose_lines(document: &str) -> Vec<(usize, &str)> {
    let (mut fenced, mut comment) = (false, false);
    let mut lines = Vec::new();
    for (number, line) in (1..).zip(document.lines()) {
        if line.trim_start().starts_with("```") {
            fenced = !fenced;
            lines.push((number, ""));
        } else if !fenced {
            comment |= line.trim_start().starts_with("<!--");
            let code = comment || line.starts_with("    ");
            lines.push((number, if code { "" } else { line }));
            comment &= !line.contains("-->");
        }
    }
    lines
}

/// The text of an item of a list.
fn item(line: &str) -> Option<&str> {
    let digits = line.len() - line.trim_start_matches(|c: char| c.is_ascii_digit()).len();
    let numbered = (digits > 0).then(|| line[digits..].strip_prefix(". ")).flatten();
    line.strip_prefix("- ").or(line.strip_prefix("* ")).or(line.strip_prefix("> ")).or(numbered)
}

fn is_rule(cell: &str) -> bool {
    cell.is_empty() || cell.chars().all(|c| c == '-' || c == ':')
}

/// Without markup: a span of code becomes one word, a link its text.
fn plain(text: &str) -> String {
    let mut plain = String::with_capacity(text.len());
    for (at, part) in text.split('`').enumerate() {
        plain.push_str(if at % 2 == 0 { part } else { "Code" });
    }
    while let Some((before, rest)) = plain.split_once("](") {
        let after = rest.split_once(')').map_or("", |(_, after)| after);
        let (start, text) = before.rsplit_once('[').unwrap_or(("", before));
        plain = format!("{start}{text}{after}");
    }
    plain.replace("**", "").replace(['*', '!'], "")
}

/// The sentences of a paragraph.
pub(super) fn sentences(paragraph: &str) -> impl Iterator<Item = &str> {
    let mut rest = paragraph.trim();
    std::iter::from_fn(move || {
        if rest.is_empty() {
            return None;
        }
        let ends = rest.char_indices().zip(rest.chars().skip(1).map(Some).chain([None]));
        let end = ends
            .filter(|((_, c), next)| matches!(c, '.' | '?') && next.is_none_or(char::is_whitespace))
            .map(|((at, _), _)| at + 1)
            .find(|at| rest[*at..].trim_start().chars().next().is_none_or(|c| !c.is_lowercase()))
            .unwrap_or(rest.len());
        let (sentence, after) = rest.split_at(end);
        rest = after.trim_start();
        Some(sentence)
    })
}

/// Words with letters or digits in them; hyphens and apostrophes belong to a word.
pub(super) fn words(text: &str) -> Vec<&str> {
    let inside = |c: char| c.is_alphanumeric() || c == '-' || c == '\'' || c == '_';
    let words = text.split(|c| !inside(c)).map(|word| word.trim_matches(['-', '\'']));
    words.filter(|word| !word.is_empty()).collect()
}

pub(super) fn begins_with_clause(sentence: &str, clauses: &[&str]) -> bool {
    let first = words(sentence).first().map(|word| word.to_lowercase()).unwrap_or_default();
    clauses.contains(&first.as_str()) && !sentence.ends_with('?')
}

/// Lines of prose that are too wide; tables, links and code may be.
pub(super) fn wide_lines(document: &str, most: usize) -> impl Iterator<Item = usize> {
    let lines = prose_lines(document).into_iter();
    lines
        .filter(move |(_, line)| {
            let may = line.starts_with('|') || line.contains("](") || line.contains("://");
            line.chars().count() > most && !may
        })
        .map(|(number, _)| number)
}

/// Rows that stand after a blank line and begin no table.
pub(super) fn rows_without_table(document: &str) -> impl Iterator<Item = usize> {
    let lines = prose_lines(document);
    let text = |at: Option<usize>| at.and_then(|at| lines.get(at)).map_or("", |(_, line)| *line);
    let rows: Vec<usize> = (0..lines.len())
        .filter(|at| {
            let before = text(at.checked_sub(1));
            let next = text(Some(at + 1));
            let rule = next.starts_with('|') && next.chars().all(|c| "|-: ".contains(c));
            lines[*at].1.starts_with('|') && !before.starts_with('|') && !rule
        })
        .map(|at| lines[at].0)
        .collect();
    rows.into_iter()
}

#[test]
fn markup_and_code_are_no_prose() {
    let text = "# A `x`\n\nOne [link](a.md) and **two**.\nThree?\n\n- Four\n  five\n- Six\n\n| a | `b;c` |\n\
        |---|---|\n\n    code\n\n```\ncode\n```\n<!-- not\nshown -->\n";
    let found: Vec<String> = passages(text).into_iter().map(|it| it.text).collect();
    assert_eq!(found[0].trim(), "A Code");
    assert_eq!(found[1..], ["One link and two. Three?", "Four five", "Six", "a", "Code"]);
    assert_eq!(sentences(&found[1]).collect::<Vec<_>>(), ["One link and two.", "Three?"]);
    assert_eq!(sentences("From 1.2 on, e.g. here. End").collect::<Vec<_>>().len(), 2);
}

#[test]
fn a_row_after_a_blank_line_is_found() {
    let text = "| a |\n|---|\n| b |\n\n| c |\n\n| d |\n|---|\n";
    assert_eq!(rows_without_table(text).collect::<Vec<_>>(), [5]);
}
