//! The table against the filter, the attacks and the document.

use std::collections::{BTreeMap, BTreeSet};
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

/// One line for each rule. A list that ends with a comma continues in the next line.
fn joined_lines(text: &str) -> String {
    let mut joined: Vec<String> = Vec::new();
    for line in text.lines() {
        match joined.last_mut() {
            Some(list) if line.starts_with(' ') && list.ends_with(',') => {
                list.push_str(line.trim_start());
            }
            Some(rule) if line.starts_with(' ') => rule.push_str(line),
            _ => joined.push(line.to_owned()),
        }
    }
    joined.join("\n")
}

/// The system calls that a filter allows, always or under conditions.
fn allowed(filter: &str) -> BTreeSet<String> {
    let text = fs::read_to_string(root().join("resources/seccomp").join(filter)).unwrap();
    let joined = joined_lines(&text);
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

/// The options that a filter leaves to jobs, by call and level: `when [arg1 in LEVEL and] argN not-in LIST`.
fn allowed_options(filter: &str) -> BTreeMap<(String, Option<String>), BTreeSet<String>> {
    let text = fs::read_to_string(root().join("resources/seccomp").join(filter)).unwrap();
    let joined = joined_lines(&text);
    let mut allowed = BTreeMap::new();
    for line in joined.lines() {
        let words: Vec<&str> = line.split_whitespace().collect();
        let (call, level, list) = match words.as_slice() {
            ["refuse", _, call, "when", _, "not-in", list] => (call, None, list),
            ["refuse", _, call, "when", "arg1", "in", level, "and", "arg2", "not-in", list] => {
                (call, Some((*level).to_owned()), list)
            }
            _ => continue,
        };
        let names = list.split(',').map(str::to_owned).collect();
        assert_eq!(allowed.insert(((*call).to_owned(), level), names), None, "{line}");
    }
    allowed
}

#[test]
fn every_option_that_jobs_may_use_is_accounted_for_once() {
    let mut allowed = allowed_options("sealed.filter");
    let levels = allowed.remove(&("setsockopt".to_owned(), None)).expect("the levels");
    let of_levels: BTreeSet<String> =
        OPTIONS.iter().filter_map(|all| all.level).map(str::to_owned).collect();
    assert_eq!(levels, of_levels, "levels of options of sockets");
    for all in OPTIONS {
        let made = all.make.iter().flat_map(|made| made.options.split_whitespace());
        let others = [all.make_nothing, all.refused_below];
        let others = others.into_iter().flat_map(str::split_whitespace);
        let named: Vec<String> = made.chain(others).map(str::to_owned).collect();
        let unique: BTreeSet<String> = named.iter().cloned().collect();
        assert_eq!(
            unique.len(),
            named.len(),
            "{} {:?}: one stands there twice",
            all.call,
            all.level
        );
        let key = (all.call.to_owned(), all.level.map(str::to_owned));
        let of_filter = allowed.remove(&key).unwrap_or_default();
        let missing: Vec<_> = of_filter.symmetric_difference(&unique).collect();
        assert!(missing.is_empty(), "{key:?}: in the filter or in the table alone: {missing:?}");
        for made in all.make {
            let is_there = KERNEL_OBJECTS.iter().any(|object| object.name == made.object);
            assert!(is_there, "{} has no row {:?}", made.options, made.object);
        }
    }
    assert!(allowed.is_empty(), "options of these calls are in no table: {:?}", allowed.keys());
    for call in ["prctl", "fcntl", "ioctl", "setsockopt"] {
        assert!(OPTIONS.iter().any(|all| all.call == call), "{call}");
    }
}

#[test]
fn what_is_left_to_the_filter_below_is_refused_there() {
    let text = fs::read_to_string(root().join("resources/seccomp/job.filter")).unwrap();
    let joined = joined_lines(&text);
    for all in OPTIONS {
        for option in all.refused_below.split_whitespace() {
            let refuses = |line: &str| {
                let named = line.rsplit(' ').next().unwrap_or_default();
                line.starts_with("refuse")
                    && line.contains(all.call)
                    && named.split(',').any(|name| name == option)
            };
            assert!(joined.lines().any(refuses), "{option}");
        }
    }
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
    out.push_str("\n| call | options | what they make |\n|---|---|---|\n");
    for all in OPTIONS {
        let call = match all.level {
            Some(level) => format!("`{}`, {level}", all.call),
            None => format!("`{}`", all.call),
        };
        for made in all.make {
            let _ = writeln!(out, "| {call} | {} | {} |", made.options, made.object);
        }
        let _ = writeln!(out, "| {call} | {} | nothing |", all.make_nothing);
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
