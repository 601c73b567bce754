//! Documents agree with the repository that they describe.

use crate::repository::{assert_none, packages, read, root, text_files};

#[test]
fn every_crate_stands_in_the_code_map() {
    let map = read("ARCHITECTURE.md");
    let findings: Vec<String> = packages()
        .iter()
        .filter(|package| !map.contains(&format!("`{}`", package.directory)))
        .map(|package| package.directory.clone())
        .collect();
    assert_none("missing in the code map of ARCHITECTURE.md:", &findings);
}

#[test]
fn the_code_map_names_nothing_that_is_gone() {
    let root = root();
    let findings: Vec<String> = code_spans(&read("ARCHITECTURE.md"))
        .filter(|span| {
            let first = span.split('/').next().unwrap_or_default();
            ["crates", "bins", "tests", "benches", "resources", "scripts", "fuzz"].contains(&first)
                && !span.contains(['*', ' '])
        })
        .filter(|span| !root.join(span.trim_end_matches('/')).exists())
        .map(str::to_owned)
        .collect();
    assert_none("ARCHITECTURE.md names paths that do not exist:", &findings);
}

#[test]
fn the_changelog_has_a_place_for_what_is_not_released_yet() {
    assert!(read("CHANGELOG.md").lines().any(|line| line.starts_with("## [Unreleased]")));
}

#[test]
fn links_between_documents_lead_somewhere() {
    let root = root();
    let mut findings = Vec::new();
    for file in text_files().iter().filter(|file| file.path.ends_with(".md")) {
        let from = root.join(&file.path);
        let directory = from.parent().expect("a file has a directory");
        for target in link_targets(&file.text) {
            let path = target.split('#').next().unwrap_or_default();
            let elsewhere = target.contains("://") || target.starts_with("mailto:");
            if !elsewhere && !path.is_empty() && !directory.join(path).exists() {
                findings.push(format!("{}: {target}", file.path));
            }
        }
    }
    assert_none("links that lead nowhere:", &findings);
}

#[test]
fn documented_make_targets_exist() {
    let makefile = read("Makefile");
    let mut findings = Vec::new();
    for file in text_files().iter().filter(|file| file.path.ends_with(".md")) {
        for span in code_spans(&file.text) {
            let Some(target) = span.strip_prefix("make ") else {
                continue;
            };
            let target = target.split_whitespace().next().unwrap_or_default();
            if !makefile.lines().any(|line| line.starts_with(&format!("{target}:"))) {
                findings.push(format!("{}: make {target}", file.path));
            }
        }
    }
    assert_none("the Makefile has no such target:", &findings);
}

/// What stands between single backquotes.
fn code_spans(text: &str) -> impl Iterator<Item = &str> {
    text.lines().flat_map(|line| line.split('`').skip(1).step_by(2))
}

/// The targets of inline links: `[words](target)`.
fn link_targets(text: &str) -> impl Iterator<Item = &str> {
    text.split("](").skip(1).filter_map(|rest| rest.split(')').next())
}

#[test]
fn every_variable_of_the_environment_stands_among_the_settings() {
    let settings = read("docs/reference/settings.md");
    let mut known = std::collections::BTreeSet::new();
    for file in text_files().iter().filter(|file| is_product_code(&file.path)) {
        let product = file.text.split("#[cfg(test)]").next().unwrap_or_default();
        known.extend(product.split('"').filter(|word| is_variable(word)).map(str::to_owned));
    }
    let stands = |name: &&String| settings.contains(&format!("`{name}`"));
    let missing: Vec<String> = known.iter().filter(|name| !stands(name)).cloned().collect();
    assert_none("missing in docs/reference/settings.md:", &missing);
    let gone: Vec<String> = code_spans(&settings)
        .filter(|span| is_variable(span) && !known.contains(*span))
        .map(str::to_owned)
        .collect();
    assert_none("docs/reference/settings.md names variables that nothing reads:", &gone);
}

fn is_product_code(path: &str) -> bool {
    let program = path.starts_with("crates/") || path.starts_with("bins/");
    let test =
        ["tests", "/testing.rs", "/benches/", "/examples/"].iter().any(|part| path.contains(part));
    // The attacks of `verify` set and look for variables of their own.
    let attack =
        path.starts_with("crates/proofs/probes/") || path.starts_with("crates/proofs/verify/");
    program && path.ends_with(".rs") && !test && !attack
}

fn is_variable(word: &str) -> bool {
    let ours = word.starts_with("RINGWALL_") || word.starts_with("OTEL_");
    ours && word.bytes().all(|byte| byte.is_ascii_uppercase() || byte == b'_')
}
