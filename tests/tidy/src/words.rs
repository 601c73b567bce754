//! Texts follow `STYLE.md`: documents, help, errors, comments and constants.
//!
//! `words.toml` has today's number of exceptions for each check and place. A number may only fall:
//! `RINGWALL_WRITE_WORDS=1` writes the lower ones.

mod code;
mod help;
mod prose;

use std::collections::BTreeMap;
use std::fmt::Write as _;

use crate::repository::{TextFile, assert_none, read, root, text_files};
use prose::{Kind, Passage};

const LIST: &str = "tests/tidy/src/words.toml";
const HEAD: &str = "# Texts that STYLE.md rejects: how many there are today, for each check and place. A number may only\n\
    # fall. A test says which text is too many; RINGWALL_WRITE_WORDS=1 writes lower numbers here.\n";
/// Made from code and checked there, or history that stays as it was written.
const NOT_PROSE: [&str; 8] = [
    "CHANGELOG.md",
    "docs/security/kernel-objects.md",
    "docs/reference/api-routes.md",
    "docs/reference/cli.md",
    "docs/reference/hosts.md",
    "docs/reference/kernels.md",
    "docs/reference/limits.md",
    "docs/SUMMARY.md",
];
/// Beginnings of a sentence that put a clause where the actor belongs.
const CLAUSES: [&str; 6] = ["what", "who", "whoever", "whatever", "where", "whether"];
const MAX_SENTENCE_WORDS: usize = 30;
const MAX_SEMICOLONS_PER_1000_WORDS: usize = 2;
const MAX_COLUMNS: usize = 110;
/// Words that the glossary replaces, wherever people read.
const REPLACED: [&str; 48] = [
    "living",
    "lives on",
    "live on",
    "goes on",
    "go on",
    "gone on",
    "going on",
    "held against",
    "stands in",
    "stand in",
    "anew",
    "hole",
    "holes",
    "mend",
    "mends",
    "mended",
    "beside",
    "whoever",
    "nobody",
    "somebody",
    "anybody",
    "asked for",
    "chance",
    "wish",
    "wishes",
    "be had",
    "of others",
    "keeper",
    "keepers",
    "brain",
    "brains",
    "adoption",
    "adopted",
    "artefact",
    "artefacts",
    "entrance",
    "entrances",
    "door",
    "doors",
    "job",
    "jobs",
    "monitor",
    "monitors",
    "monitor's",
    "tier",
    "tiers",
    "somebody's",
    "nobody's",
];
/// Words of the code that no user has to know.
const INSIDE: [&str; 3] = ["warden", "wardens", "reference monitor"];
/// Pages for contributors and researchers, who know the words of the code.
const WITH_INSIDE: [&str; 5] =
    ["ARCHITECTURE.md", "CONTRIBUTING.md", "SECURITY.md", "docs/internals/", "docs/security/"];

/// What a check found: its name, the file or crate, and the text.
struct Finding {
    check: &'static str,
    place: String,
    text: String,
}

impl Finding {
    fn new(check: &'static str, place: &str, text: impl Into<String>) -> Finding {
        Finding { check, place: place.to_owned(), text: text.into() }
    }
}

type Counts = BTreeMap<String, BTreeMap<String, usize>>;

fn documents() -> Vec<TextFile> {
    let mut files = text_files();
    files.retain(|file| file.path.ends_with(".md") && !NOT_PROSE.contains(&file.path.as_str()));
    files
}

/// The most words that a page may have; references have no limit.
fn most_words(path: &str) -> usize {
    match path {
        "README.md" => 700,
        "STYLE.md" | "SECURITY.md" => 2900,
        "ARCHITECTURE.md" => 2600,
        _ if path.starts_with("docs/start/") || path.starts_with("docs/concepts/") => 900,
        _ if path.starts_with("docs/reference/") || path.ends_with("reviews.md") => usize::MAX,
        _ => 1500,
    }
}

fn check_document(file: &TextFile) -> Vec<Finding> {
    let passages = prose::passages(&file.text);
    let mut findings = Vec::new();
    let mut semicolons = Vec::new();
    for Passage { kind, line, text } in &passages {
        let at = |what: &str| format!("{}:{line}: {what}", file.path);
        if *kind == Kind::Paragraph {
            for sentence in prose::sentences(text) {
                findings.extend(
                    prose::begins_with_clause(sentence, &CLAUSES)
                        .then(|| Finding::new("clause", &file.path, at(sentence))),
                );
                findings.extend(
                    (prose::words(sentence).len() > MAX_SENTENCE_WORDS)
                        .then(|| Finding::new("long-sentence", &file.path, at(sentence))),
                );
            }
        }
        semicolons.extend(text.matches(';').map(|_| at(text)));
        let inside = WITH_INSIDE.iter().any(|known| file.path.starts_with(known));
        for word in replaced_words(text, !inside) {
            findings.push(Finding::new("word", &file.path, at(&format!("{word:?}: {text}"))));
        }
    }
    let words: usize = passages.iter().map(|passage| prose::words(&passage.text).len()).sum();
    let allowed = words * MAX_SEMICOLONS_PER_1000_WORDS / 1000;
    let too_many = semicolons.into_iter().skip(allowed);
    findings.extend(too_many.map(|text| Finding::new("semicolon", &file.path, text)));
    let over = words.saturating_sub(most_words(&file.path));
    let page = format!("{}: {words} words", file.path);
    findings.extend((0..over).map(|_| Finding::new("length", &file.path, page.clone())));
    findings.extend(prose::wide_lines(&file.text, MAX_COLUMNS).map(|line| {
        Finding::new("columns", &file.path, format!("{}:{line}: a wide line", file.path))
    }));
    findings
}

/// The words in a text that the glossary replaces.
fn replaced_words(text: &str, with_inside: bool) -> Vec<&'static str> {
    let words: Vec<String> = prose::words(text).iter().map(|word| word.to_lowercase()).collect();
    let listed = REPLACED.iter().chain(if with_inside { INSIDE.iter() } else { [].iter() });
    let mut found = Vec::new();
    for phrase in listed {
        let parts: Vec<&str> = phrase.split(' ').collect();
        for at in 0..words.len() {
            let fits = words[at..].len() >= parts.len()
                && words[at..].iter().zip(&parts).all(|(word, part)| word == part);
            // The code's name for what decides; the VMM is meant otherwise.
            let reference = phrase.starts_with("monitor")
                && at.checked_sub(1).is_some_and(|before| words[before] == "reference");
            if fits && !reference {
                found.push(*phrase);
            }
        }
    }
    found
}

fn all_findings() -> Vec<Finding> {
    let mut findings: Vec<Finding> = documents().iter().flat_map(check_document).collect();
    for file in text_files().iter().filter(|file| file.path.ends_with(".rs")) {
        findings.extend(code::check(file));
    }
    findings.extend(help::check(&read("docs/reference/cli.md")));
    findings
}

fn count(findings: &[Finding]) -> Counts {
    let mut counts = Counts::new();
    for finding in findings {
        let places = counts.entry(finding.check.to_owned()).or_default();
        *places.entry(finding.place.clone()).or_default() += 1;
    }
    counts
}

fn written(counts: &Counts) -> String {
    let mut text = HEAD.to_owned();
    for (check, places) in counts.iter().filter(|(_, places)| !places.is_empty()) {
        let _ = writeln!(text, "\n[{check}]");
        for (place, number) in places {
            let _ = writeln!(text, "{place:?} = {number}");
        }
    }
    text
}

/// How many a list allows of one check in one place.
fn allowed(list: &Counts, check: &str, place: &str) -> usize {
    list.get(check).and_then(|places| places.get(place)).copied().unwrap_or(0)
}

/// The findings: texts that are too many, and numbers that are too high.
fn compare(list: &Counts, findings: &[Finding]) -> Vec<String> {
    let counts = count(findings);
    let mut wrong = Vec::new();
    for (check, places) in &counts {
        for (place, number) in places {
            let most = allowed(list, check, place);
            if *number > most {
                wrong.push(format!(
                    "[{check}] {place:?}: {number}, and {most} at most. These are all:"
                ));
                let texts = findings.iter().filter(|it| it.check == check && it.place == *place);
                wrong.extend(texts.map(|finding| format!("    {}", finding.text)));
            }
        }
    }
    for (check, places) in list {
        for (place, most) in places {
            let number = allowed(&counts, check, place);
            if number < *most {
                wrong.push(format!("[{check}] {place:?} = {most}: lower it to {number}"));
            }
        }
    }
    wrong
}

/// The list with the numbers that have fallen.
fn lowered(list: &Counts, counts: &Counts) -> Counts {
    let mut lower = Counts::new();
    for (check, places) in list {
        for (place, most) in places {
            let number = allowed(counts, check, place).min(*most);
            if number > 0 {
                lower.entry(check.clone()).or_default().insert(place.clone(), number);
            }
        }
    }
    lower
}

#[test]
fn texts_follow_the_style_but_for_the_listed_exceptions() {
    let findings = all_findings();
    let text = std::fs::read_to_string(root().join(LIST)).unwrap_or_default();
    let mut list: Counts = toml::from_str(&text).expect("the list is TOML");
    if std::env::var_os("RINGWALL_WRITE_WORDS").is_some() {
        let counts = count(&findings);
        list = if list.is_empty() { counts } else { lowered(&list, &counts) };
        std::fs::write(root().join(LIST), written(&list)).expect("the list can be written");
    }
    let rule = format!("texts that STYLE.md rejects, against the numbers in {LIST}:");
    assert_none(&rule, &compare(&list, &findings));
}

#[test]
fn a_number_may_fall_and_not_rise() {
    let one = || vec![Finding::new("word", "a.md", "a.md:1: living")];
    let list = |number| {
        let places = BTreeMap::from([("a.md".to_owned(), number)]);
        Counts::from([("word".to_owned(), places)])
    };
    assert!(compare(&list(1), &one()).is_empty());
    assert!(compare(&list(0), &one())[0].contains("1, and 0 at most"));
    assert_eq!(compare(&list(2), &one()), ["[word] \"a.md\" = 2: lower it to 1"]);
    assert_eq!(lowered(&list(2), &count(&one())), list(1));
    assert_eq!(lowered(&list(1), &count(&[])), Counts::new());
    assert_eq!(toml::from_str::<Counts>(&written(&list(3))).unwrap(), list(3));
}

#[test]
fn each_check_of_a_document_finds_what_it_is_for() {
    let found = |path: &str, text: &str| {
        let file = TextFile { path: path.to_owned(), text: text.to_owned() };
        let findings = check_document(&file);
        findings.iter().map(|finding| finding.check).collect::<Vec<_>>()
    };
    assert_eq!(found("docs/a.md", "What is refused is an error.\n"), ["clause"]);
    assert!(found("docs/a.md", "What is refused?\n\n| what it is | x |\n").is_empty());
    assert_eq!(found("docs/a.md", "It runs; it ends.\n"), ["semicolon"]);
    assert_eq!(
        found("docs/a.md", &format!("It {}runs.\n", "really ".repeat(30)))[0],
        "long-sentence"
    );
    assert_eq!(found("docs/a.md", "A living sandbox.\n"), ["word"]);
    assert_eq!(found("docs/a.md", "| a | the job |\n"), ["word"]);
    assert!(
        found("docs/a.md", "A `living` sandbox\n\n    whoever\n\n```\nnobody\n```\n").is_empty()
    );
    assert_eq!(found("docs/guides/a.md", "The warden starts.\n"), ["word"]);
    assert!(found("docs/internals/a.md", "The warden starts.\n").is_empty());
    assert!(found("docs/internals/a.md", "The reference monitor decides.\n").is_empty());
    assert_eq!(found("docs/internals/a.md", "The monitor runs.\n"), ["word"]);
    assert_eq!(found("README.md", &"Word. ".repeat(701))[0], "length");
    assert_eq!(found("docs/a.md", &"Word. ".repeat(20)), ["columns"]);
}

#[test]
fn every_row_of_a_table_belongs_to_one() {
    let mut findings = Vec::new();
    for file in text_files().iter().filter(|file| file.path.ends_with(".md")) {
        let rows = prose::rows_without_table(&file.text);
        findings.extend(rows.map(|line| format!("{}:{line}", file.path)));
    }
    assert_none("rows after a blank line, which are shown as text:", &findings);
}
