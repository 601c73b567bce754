//! What comes from outside: how little the privileged and the innermost programs link, and which
//! crates may use what.

use std::collections::BTreeSet;

use crate::repository::{TextFile, assert_none, cargo, packages, read, text_files};

const TARGET: &str = "x86_64-unknown-linux-musl";

const WEAKENED: &str = "tests/weakened/Cargo.toml";

/// Everything linked into the launcher, the only privileged code. Add a line only with a reason
/// that a reviewer of a setuid program would accept.
const LAUNCHER_LINKS: [&str; 14] = [
    "bitflags",
    "cfg-if",
    "cobs",
    "dlmalloc",
    "enumflags2",
    "landlock",
    "libc",
    "linux-raw-sys",
    "postcard",
    "ringwall-linux",
    "rustix",
    "serde",
    "serde_core",
    "thiserror",
];

/// The warden adds the frames it speaks, the words in them, and what it reads of its ring.
const WARDEN_LINKS_ALSO: [&str; 4] =
    ["ringwall-facts", "ringwall-spec", "ringwall-tree", "ringwall-wire"];

/// Pure data and pure decisions: nothing here can reach a kernel.
const PURE: [(&str, &[&str]); 3] = [
    ("ringwall-spec", &["serde", "thiserror"]),
    ("ringwall-rules", &["ringwall-spec", "idna", "psl", "thiserror", "serde_json"]),
    (
        "ringwall-policy",
        &[
            "ringwall-rules",
            "ringwall-spec",
            "cedar-policy",
            "miette",
            "serde",
            "serde_json",
            "sha2",
            "strsim",
            "thiserror",
            "toml",
            // For tests only.
            "jsonschema",
            "proptest",
            "schemars",
        ],
    ),
];

#[test]
fn the_launcher_links_only_what_is_listed() {
    check_links("ringwall-launcher", &LAUNCHER_LINKS.into_iter().collect());
}

#[test]
fn the_warden_links_only_what_is_listed() {
    let allowed = LAUNCHER_LINKS.into_iter().chain(WARDEN_LINKS_ALSO).collect();
    check_links("ringwall-warden", &allowed);
}

#[test]
fn spec_and_policy_depend_on_nothing_that_does_io() {
    let packages = packages();
    let mut findings = Vec::new();
    for (name, allowed) in PURE {
        let package = packages.iter().find(|package| package.name == name).expect("it exists");
        for used in &package.dependencies {
            if !allowed.contains(&used.as_str()) {
                findings.push(format!("{name} depends on {used}"));
            }
        }
    }
    assert_none("spec and policy stay pure:", &findings);
}

#[test]
fn only_programs_parse_command_lines() {
    let findings: Vec<String> = packages()
        .iter()
        .filter(|package| !package.directory.starts_with("bins/"))
        .filter(|package| package.dependencies.iter().any(|used| used.starts_with("clap")))
        .map(|package| format!("{} depends on clap", package.directory))
        .collect();
    assert_none("clap belongs to the programs in bins/:", &findings);
}

/// Weakened walls are for tests alone: a program that had them could be made to raise one.
#[test]
fn only_the_tests_of_weakened_walls_have_weakened_walls() {
    let names = |file: &TextFile| file.text.lines().any(|line| line.contains("\"weakened\""));
    let others = text_files().into_iter().filter(|file| file.path.ends_with("Cargo.toml"));
    let users = others.filter(names).map(|file| file.path);
    let findings: Vec<String> = users.filter(|path| path != WEAKENED).collect();
    assert_none("only tests/weakened switches weakened walls on:", &findings);
    let manifest = read(WEAKENED);
    let ordinary = manifest.split("[dev-dependencies]").next().unwrap_or_default();
    assert!(!ordinary.contains("ringwall-engine"), "{WEAKENED} has them for more than its tests");
}

fn check_links(program: &str, allowed: &BTreeSet<&str>) {
    let only = format!("--package {program} --target {TARGET} --edges normal,no-proc-macro");
    let shown = "--prefix none --format {p}";
    let arguments: Vec<&str> =
        ["tree"].into_iter().chain(only.split(' ')).chain(shown.split(' ')).collect();
    let tree = cargo(&arguments);
    let findings: Vec<String> = tree
        .lines()
        .filter_map(|line| line.split_whitespace().next())
        .filter(|name| *name != program && !allowed.contains(name))
        .collect::<BTreeSet<_>>()
        .into_iter()
        .map(str::to_owned)
        .collect();
    assert_none(&format!("{program} links crates that are not on its list:"), &findings);
}
