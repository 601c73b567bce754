//! A field of a network rule stands in one type. The files that must say what it means are few, and
//! ARCHITECTURE.md names them.

use std::collections::BTreeSet;

use crate::repository::{assert_none, read, rust_files};

const TYPE: &str = "crates/base/spec/src/egress.rs";
/// Where ARCHITECTURE.md names the files.
const PROMISE: &str = "A new field of a rule (`Allow`) touches";

/// Files that take a rule apart, or make one, without `..`: they do not compile with a new field.
fn files_that_name_every_field() -> BTreeSet<String> {
    let files = rust_files();
    let named = files.iter().filter(|file| {
        file.text.match_indices("Allow {").any(|(at, _)| {
            let before = file.text[..at].trim_end();
            let is_type = ["struct", "impl", "for", "->"].iter().any(|it| before.ends_with(it));
            // An arm of another crate's enum has the same name.
            let is_decision = before.ends_with("Decision::");
            let whole = file.text[..at].ends_with([' ', '(', ':']) && !is_decision;
            whole && !is_type && !between_braces(&file.text[at..]).contains("..")
        })
    });
    named.map(|file| file.path.clone()).collect()
}

/// What stands between the first brace and the one that closes it.
fn between_braces(text: &str) -> &str {
    let mut depth = 0;
    let start = text.find('{').map_or(text.len(), |at| at + 1);
    for (at, character) in text.char_indices() {
        match character {
            '{' => depth += 1,
            '}' if depth == 1 => return &text[start..at],
            '}' => depth -= 1,
            _ => {}
        }
    }
    ""
}

fn fields() -> Vec<String> {
    let text = read(TYPE);
    let (_, body) = text.split_once("pub struct Allow {").expect("the type of a rule");
    let body = body.split("\n}").next().unwrap_or_default();
    let lines = body.lines().filter_map(|line| line.trim().strip_prefix("pub "));
    lines.filter_map(|line| line.split_once(':')).map(|(name, _)| name.to_owned()).collect()
}

/// The paragraph of ARCHITECTURE.md that begins with the promise.
fn promised() -> String {
    let text = read("ARCHITECTURE.md");
    let at = text.find(PROMISE).expect("ARCHITECTURE.md names the files of a rule");
    text[at..].split("\n\n").next().unwrap_or_default().to_owned()
}

#[test]
fn the_files_that_a_new_field_of_a_rule_touches_are_the_promised_ones() {
    let promised = promised();
    let named: BTreeSet<String> = promised
        .split('`')
        .filter(|span| span.ends_with(".rs") || span.ends_with(".md"))
        .map(str::to_owned)
        .collect();
    let mut touched = files_that_name_every_field();
    touched.extend([TYPE.to_owned(), "docs/reference/network-rules.md".to_owned()]);
    let missing = touched.difference(&named).map(|file| format!("{file}: not in ARCHITECTURE.md"));
    let gone = named.difference(&touched).map(|file| format!("{file}: names not every field"));
    let findings: Vec<String> = missing.chain(gone).collect();
    assert_none("a new field of a rule touches other files than ARCHITECTURE.md says:", &findings);
}

#[test]
fn every_field_of_a_rule_is_documented() {
    let document = read("docs/reference/network-rules.md");
    let (_, rules) =
        document.split_once("\n## Rules\n").expect("docs/reference/network-rules.md has rules");
    let documented = |field: &String| {
        let rows = rules.lines().filter(|line| line.starts_with("| `"));
        rows.filter_map(|row| row.split(" | ").next())
            .any(|cell| cell.split('`').any(|word| word == field))
    };
    let fields = fields();
    assert!(fields.len() >= 10, "{fields:?}");
    let findings: Vec<String> = fields.into_iter().filter(|field| !documented(field)).collect();
    assert_none("fields of a rule that docs/reference/network-rules.md does not name:", &findings);
}
