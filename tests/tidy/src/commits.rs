//! Commits say what they do in one line, and why when they are large.

use std::process::Command;

use crate::repository::{assert_none, root};

const MAX_SUBJECT_COLUMNS: usize = 72;
/// A commit with more changed lines needs a body that says why.
const MAX_LINES_WITHOUT_BODY: u64 = 100;
/// The last commit whose subject was not checked.
const SUBJECTS_UNCHECKED_UNTIL: &str = "bb5cc96";
/// The last commit whose body was not checked.
const BODIES_UNCHECKED_UNTIL: &str = "e204134";
/// Programs write these files, so their lines say nothing about the size of a change.
const GENERATED: [&str; 6] = [".lock", ".svg", ".json", "/cli.md", "/limits.md", "/api-routes.md"];

#[derive(Debug, Default, PartialEq, Eq)]
struct Commit {
    id: String,
    subject: String,
    body: String,
    changed_lines: u64,
}

/// The commits after `last`. None where this copy has no history that reaches `last`.
fn commits_after(last: &str) -> Option<Vec<Commit>> {
    let output = Command::new("git")
        .args(["log", "--no-merges", "--numstat", "--format=%x00%h%x00%s%x00%b%x00"])
        .arg(format!("{last}..HEAD"))
        .current_dir(root())
        .output()
        .ok()
        .filter(|output| output.status.success())?;
    Some(read_log(&String::from_utf8_lossy(&output.stdout)))
}

/// Reads what git prints for the format above: four fields for each commit, each after or before a NUL.
fn read_log(text: &str) -> Vec<Commit> {
    let fields: Vec<&str> = text.split('\0').skip(1).collect();
    let commits = fields.chunks_exact(4).map(|fields| match fields {
        [id, subject, body, counts] => Commit {
            id: (*id).to_owned(),
            subject: (*subject).to_owned(),
            body: (*body).to_owned(),
            changed_lines: counts.lines().filter_map(changed_lines).sum(),
        },
        _ => Commit::default(),
    });
    commits.collect()
}

/// The changed lines of one file: `ADDED REMOVED PATH`. Binary files have none.
fn changed_lines(line: &str) -> Option<u64> {
    let mut fields = line.split('\t');
    let (added, removed, path) = (fields.next()?, fields.next()?, fields.next()?);
    if GENERATED.iter().any(|end| path.ends_with(end)) {
        return None;
    }
    Some(added.parse::<u64>().ok()? + removed.parse::<u64>().ok()?)
}

fn is_subject(subject: &str) -> bool {
    let area = subject.split_once(": ");
    subject.chars().count() <= MAX_SUBJECT_COLUMNS
        && area.is_some_and(|(area, rest)| !area.is_empty() && !rest.trim().is_empty())
}

fn says_why(commit: &Commit) -> bool {
    commit.changed_lines <= MAX_LINES_WITHOUT_BODY || !commit.body.trim().is_empty()
}

fn assert_all(last: &str, rule: &str, holds: impl Fn(&Commit) -> bool) {
    let Some(commits) = commits_after(last) else {
        println!("not tested here: this copy has no history that reaches the first checked commit");
        return;
    };
    let wrong = commits.iter().filter(|commit| !holds(commit));
    let findings: Vec<_> = wrong.map(|wrong| format!("{} {}", wrong.id, wrong.subject)).collect();
    assert_none(rule, &findings);
}

#[test]
fn subjects_of_commits_are_short_and_name_their_area() {
    let rule = "write `area: verb object` in at most 72 columns:";
    assert_all(SUBJECTS_UNCHECKED_UNTIL, rule, |commit| is_subject(&commit.subject));
}

#[test]
fn commits_of_many_lines_say_why() {
    let rule = "a commit of more than 100 changed lines needs a body that says why:";
    assert_all(BODIES_UNCHECKED_UNTIL, rule, says_why);
}

#[test]
fn a_subject_is_an_area_and_what_was_done() {
    assert!(is_subject("api: remove a needless closure"));
    assert!(!is_subject("remove a needless closure"));
    assert!(!is_subject(&format!("api: {}", "x".repeat(70))));
}

#[test]
fn only_lines_that_people_wrote_count() {
    let log = "\0abc\0api: add a route\0\0\n\n90\t20\tsrc/a.rs\n900\t0\tCargo.lock\n-\t-\ta.png\n\
               \0def\0docs: say why\0It was wrong.\n\0\n\n200\t0\tdocs/a.md\n";
    let commits = read_log(log);
    assert_eq!(commits.iter().map(|commit| commit.changed_lines).collect::<Vec<_>>(), [110, 200]);
    assert_eq!(commits.iter().map(says_why).collect::<Vec<_>>(), [false, true]);
}
