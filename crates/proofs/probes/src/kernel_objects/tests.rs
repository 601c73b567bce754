//! The table against the filter, the attacks and the document.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

use super::*;

const DOCUMENT: &str = "docs/security/kernel-objects.md";
/// Everything behind this line is made here.
const BEGIN: &str = "<!-- made from the table in the code -->\n";

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../..")
}

/// The system calls that a filter allows, always or under conditions.
fn allowed(filter: &str) -> BTreeSet<String> {
    let text = fs::read_to_string(root().join("resources/seccomp").join(filter)).unwrap();
    let joined = text.replace("\n ", " ");
    let mut calls = BTreeSet::new();
    for line in joined.lines() {
        let words: Vec<&str> = line.split_whitespace().collect();
        match words.as_slice() {
            ["allow", named @ ..] => calls.extend(named.iter().map(ToString::to_string)),
            ["refuse", _, call, "when", ..] | ["skip", call, "when", ..] => {
                calls.insert((*call).to_owned());
            }
            _ => {}
        }
    }
    calls
}

#[test]
fn every_call_that_jobs_may_make_is_accounted_for_once() {
    let made = KERNEL_OBJECTS.iter().flat_map(|object| object.made_by.split_whitespace());
    let all: Vec<&str> = made.chain(MAKE_NOTHING.split_whitespace()).collect();
    let named: BTreeSet<String> = all.iter().map(ToString::to_string).collect();
    assert_eq!(named.len(), all.len(), "a call stands there twice");
    let allowed = allowed("job.filter");
    let missing: Vec<_> = allowed.difference(&named).collect();
    assert!(missing.is_empty(), "say what these make, and what bounds it: {missing:?}");
    let idle: Vec<_> = named.difference(&allowed).collect();
    assert!(idle.is_empty(), "no job may make these: {idle:?}");
}

#[test]
fn what_is_refused_names_a_filter_that_is_there() {
    let bounds = KERNEL_OBJECTS.iter().flat_map(|object| [object.v2, object.v1, object.without]);
    for bound in bounds {
        if let Bound::Refused(by) = bound
            && by.ends_with(".filter")
            && !by.contains(' ')
        {
            assert!(root().join("resources/seccomp").join(by).is_file(), "{by}");
        }
    }
}

#[test]
fn every_attack_and_test_that_is_named_is_there() {
    let probes = crate::all();
    let mut texts = String::new();
    for directory in ["tests/escape/src", "crates/base/linux/src/seccomp/tests"] {
        for file in fs::read_dir(root().join(directory)).unwrap().flatten() {
            texts.push_str(&fs::read_to_string(file.path()).unwrap_or_default());
        }
    }
    for object in KERNEL_OBJECTS {
        match object.noticed {
            Noticed::Probe(name) => {
                assert!(probes.iter().any(|probe| probe.name == name), "{name}");
            }
            Noticed::Test(name) => assert!(texts.contains(&format!("fn {name}()")), "{name}"),
        }
    }
}

fn shown(bound: Bound) -> String {
    match bound {
        Bound::Memory => "the memory limit".to_owned(),
        Bound::Watched(how) => format!("the watchdog: {how}"),
        Bound::Number(number) => number.to_owned(),
        Bound::Refused(by) => format!("refused: {by}"),
        Bound::Reclaimed => "none, but the kernel takes it back".to_owned(),
    }
}

fn made_from_the_table() -> String {
    let mut out =
        "\n| what a job makes | cgroup v2 | cgroup v1 | without | noticed by |\n".to_owned();
    out.push_str("|---|---|---|---|---|\n");
    for object in KERNEL_OBJECTS {
        let [v2, v1, without] = [object.v2, object.v1, object.without].map(shown);
        let v1 = if v1 == v2 { "the same".to_owned() } else { v1 };
        let noticed = match object.noticed {
            Noticed::Probe(name) => format!("`verify`: `{name}`"),
            Noticed::Test(name) => format!("test `{name}`"),
        };
        // Writing to a string cannot fail.
        let _ = writeln!(out, "| {} | {v2} | {v1} | {without} | {noticed} |", object.name);
    }
    out
}

#[test]
fn the_document_says_what_the_table_says() {
    let path = root().join(DOCUMENT);
    let document = fs::read_to_string(&path).unwrap();
    let (head, table) = document.split_once(BEGIN).expect("the line that begins the table");
    let made = made_from_the_table();
    if std::env::var_os("RINGWALL_WRITE_LIMITS").is_some() {
        fs::write(&path, format!("{head}{BEGIN}{made}")).unwrap();
        return;
    }
    assert!(
        table == made,
        "{DOCUMENT} is not what the table says; RINGWALL_WRITE_LIMITS=1 cargo test -p \
         ringwall-probes kernel_objects writes it anew"
    );
}
