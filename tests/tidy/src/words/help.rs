//! Help texts, by the page that is made from them: none is missing, long, or begins without a verb.

use super::{Finding, prose, replaced_words};

const MAX_WORDS: usize = 12;
/// The verbs that help texts begin with.
const VERBS: [&str; 87] = [
    "Allow",
    "Answer",
    "Apply",
    "Approve",
    "Ask",
    "Attack",
    "Bind",
    "Build",
    "Call",
    "Change",
    "Check",
    "Choose",
    "Clone",
    "Compare",
    "Copy",
    "Count",
    "Create",
    "Decide",
    "Deny",
    "Explain",
    "Export",
    "Follow",
    "Forget",
    "Give",
    "Hide",
    "Import",
    "Install",
    "Issue",
    "Keep",
    "Kill",
    "Leave",
    "Let",
    "Limit",
    "Link",
    "List",
    "Listen",
    "Lock",
    "Look",
    "Make",
    "Manage",
    "Map",
    "Mount",
    "Move",
    "Name",
    "Narrow",
    "Offer",
    "Overwrite",
    "Pass",
    "Pin",
    "Play",
    "Print",
    "Propose",
    "Protect",
    "Pull",
    "Put",
    "Raise",
    "Read",
    "Record",
    "Refuse",
    "Reload",
    "Remove",
    "Repeat",
    "Replace",
    "Report",
    "Restore",
    "Resume",
    "Revoke",
    "Run",
    "Save",
    "Seal",
    "Send",
    "Serve",
    "Set",
    "Show",
    "Sign",
    "Skip",
    "Start",
    "Stop",
    "Store",
    "Take",
    "Test",
    "Treat",
    "Use",
    "Verify",
    "Vouch",
    "Wait",
    "Write",
];

/// The faults of the help texts on the page.
pub(super) fn check(page: &str) -> Vec<Finding> {
    let mut findings = Vec::new();
    let mut command = "";
    for (number, line) in (1..).zip(page.lines()) {
        command = line.strip_prefix("## ").unwrap_or(command);
        let row = line.strip_prefix("| `").and_then(|row| row.split_once("` | "));
        let Some((flag, help)) = row else { continue };
        let help = help.trim_end_matches('|').trim();
        let at = format!("docs/reference/cli.md:{number}: {command} {flag}: {help}");
        let first = prose::sentences(help.split(" [").next().unwrap_or_default()).next();
        let words = prose::words(first.unwrap_or_default());
        let verb = words.first().is_some_and(|word| VERBS.contains(word));
        let checks = [
            (help.is_empty(), "missing"),
            (words.len() > MAX_WORDS, "long"),
            (!help.is_empty() && !verb && flag.starts_with('-'), "verb"),
            (!replaced_words(help, true).is_empty(), "word"),
        ];
        let wrong = checks.iter().filter(|(wrong, _)| *wrong);
        findings.extend(wrong.map(|(_, what)| Finding::new("help", what, at.clone())));
    }
    findings
}

#[test]
fn each_check_of_help_finds_what_it_is_for() {
    let found = |row: &str| check(row).into_iter().map(|it| it.place).collect::<Vec<_>>();
    assert!(found("| `--wall WALL` | Use this wall [default: process] |").is_empty());
    assert_eq!(found("| `ID` |  |"), ["missing"]);
    assert_eq!(found("| `--wall WALL` | The wall |"), ["verb"]);
    assert_eq!(found("| `--jobs N` | Limit jobs |"), ["word"]);
    assert_eq!(found(&format!("| `--a` | Use {}|", "it ".repeat(12))), ["long"]);
}
