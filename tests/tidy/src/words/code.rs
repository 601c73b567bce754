//! Errors, comments and constants of Rust files. Crates are counted as a whole.

use super::{Finding, INSIDE, replaced_words};
use crate::repository::TextFile;

/// Beginnings of comments that have no subject.
const NO_SUBJECT: [&str; 6] = ["Of ", "Likewise", "One that", "The same", "Those ", "Its "];
/// Names of constants that lack the limited thing and the unit.
const BARE: [&str; 3] = ["PATIENCE", "MOST", "LOOK"];
/// Words in comments that hide who acts.
const VAGUE: [&str; 8] =
    ["what is", "what was", "what are", "what were", "somebody", "nobody", "anybody", "whoever"];

/// What `STYLE.md` rejects in one file.
pub(super) fn check(file: &TextFile) -> Vec<Finding> {
    let place = package(&file.path);
    let at = |line: usize, text: &str| format!("{}:{line}: {text}", file.path);
    let mut findings = Vec::new();
    for (line, text) in errors(&file.text) {
        let no_fix = ["cannot be", "could not be"].iter().any(|words| text.contains(words))
            && !text.contains([':', ';', ',']);
        if text.contains("is no ") || no_fix || !error_words(&text).is_empty() {
            findings.push(Finding::new("error", &place, at(line, &text)));
        }
    }
    let mut before = false;
    for (line, text) in (1..).zip(file.text.lines()) {
        let text = text.trim();
        let comment =
            text.strip_prefix("//").map(|text| text.trim_start_matches(['/', '!']).trim());
        if let Some(comment) = comment {
            let begins = !before && NO_SUBJECT.iter().any(|words| comment.starts_with(words));
            if begins || is_vague(comment) {
                findings.push(Finding::new("comment", &place, at(line, comment)));
            }
        }
        before = comment.is_some();
        if let Some(name) = constant(text).filter(|name| BARE.contains(name)) {
            findings.push(Finding::new("constant", &place, at(line, name)));
        }
    }
    findings
}

/// `crates/core/engine` of `crates/core/engine/src/lib.rs`.
fn package(path: &str) -> String {
    let package = path.split("/src/").next().unwrap_or(path).split("/tests/").next();
    package.unwrap_or(path).trim_end_matches(".rs").to_owned()
}

fn error_words(text: &str) -> Vec<&'static str> {
    replaced_words(text, true)
        .into_iter()
        .filter(|word| INSIDE.contains(word) || ["keeper", "brain", "monitor"].contains(word))
        .collect()
}

fn is_vague(comment: &str) -> bool {
    let comment = comment.to_lowercase();
    VAGUE.iter().any(|words| {
        comment.split(words).skip(1).any(|after| !after.starts_with(|c: char| c.is_alphanumeric()))
    })
}

/// The texts of `#[error("...")]`, with the line on which each begins.
fn errors(source: &str) -> Vec<(usize, String)> {
    let mut found = Vec::new();
    let mut offset = 0;
    while let Some(at) = source[offset..].find("#[error(") {
        let start = offset + at + "#[error(".len();
        let line = source[..start].matches('\n').count() + 1;
        let rest = source[start..].trim_start();
        offset = start;
        if let Some(text) = rest.strip_prefix('"') {
            let mut escaped = false;
            let end = text.find(|c: char| {
                let ends = c == '"' && !escaped;
                escaped = c == '\\' && !escaped;
                ends
            });
            let text = end.map_or("", |end| &text[..end]).replace("\\\n", " ");
            found.push((line, text.split_whitespace().collect::<Vec<_>>().join(" ")));
        }
    }
    found
}

/// The name that a line declares as a constant.
fn constant(line: &str) -> Option<&str> {
    let declared = line.strip_prefix("pub(crate) ").or(line.strip_prefix("pub ")).unwrap_or(line);
    declared.strip_prefix("const ")?.split(':').next()
}

#[test]
fn each_check_of_code_finds_what_it_is_for() {
    let found = |text: &str| {
        let file = TextFile { path: "crates/a/src/lib.rs".to_owned(), text: text.to_owned() };
        check(&file).iter().map(|it| (it.check, it.place.clone())).collect::<Vec<_>>()
    };
    let one = |check| vec![(check, "crates/a".to_owned())];
    assert_eq!(found("#[error(\"{0} is no name\")]\n"), one("error"));
    assert_eq!(found("#[error(\n    \"the file cannot be read\"\n)]\n"), one("error"));
    assert!(found("#[error(\"the file cannot be read: {0}\")]\n").is_empty());
    assert_eq!(found("#[error(\"the warden ended: {0}\")]\n"), one("error"));
    assert_eq!(found("/// Likewise a file.\n"), one("comment"));
    assert_eq!(found("// Keeps what is left.\n"), one("comment"));
    assert!(found("// Keeps the rest.\n// Of these, one is enough.\n").is_empty());
    assert_eq!(found("const PATIENCE: u8 = 1;\n"), one("constant"));
    assert!(found("const LOCK_PATIENCE: u8 = 1;\n").is_empty());
}
