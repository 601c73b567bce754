//! Seccomp filters are data that people review: every rule says why it is there.

use crate::repository::{TextFile, assert_none, text_files};

#[test]
fn every_seccomp_rule_has_its_reason() {
    let filters: Vec<TextFile> = text_files()
        .into_iter()
        .filter(|file| {
            file.path.starts_with("resources/seccomp/") && file.path.ends_with(".filter")
        })
        .collect();
    assert!(!filters.is_empty(), "there is no filter in resources/seccomp");
    let findings: Vec<String> = filters.iter().flat_map(rules_without_reason).collect();
    assert_none("say in a comment right above why the rule is there:", &findings);
}

/// Rules that do not stand right under a comment; names defined for the rule may stand between.
fn rules_without_reason(file: &TextFile) -> Vec<String> {
    let mut explained = false;
    let mut findings = Vec::new();
    for (index, line) in file.text.lines().enumerate() {
        if line.starts_with('#') {
            // A ruled-off heading is not a reason.
            explained = line.split_whitespace().count() > 1 && !line.contains("---");
        } else if ["allow ", "refuse ", "skip ", "otherwise "]
            .iter()
            .any(|rule| line.starts_with(rule))
        {
            if !explained {
                findings.push(format!("{}:{}: {line}", file.path, index + 1));
            }
            explained = false;
        } else if line.is_empty() {
            explained = false;
        }
    }
    findings
}

#[test]
fn a_reason_covers_the_rule_below_it_and_no_other() {
    let text = "# why it is so here\ndefine A 1\nallow a\n    b\nrefuse A c\n\n# --- more -----\nallow d\n";
    let file = TextFile { path: "f".to_owned(), text: text.to_owned() };
    assert_eq!(rules_without_reason(&file), ["f:5: refuse A c", "f:8: allow d"]);
}
