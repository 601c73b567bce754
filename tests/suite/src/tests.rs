//! Tests of what decides whether a run was good.

use std::path::PathBuf;

use super::*;
use crate::build::{TestProgram, read_message};
use crate::program::read_report;
use crate::schedule::in_order;

const GOOD: &str = "running 2 tests\ntest a::b ... ok\ntest c ... ok\n\nsuccesses:\n\n---- a::b stdout ----\n\
    not tested here: no guests\n\ntest result: ok. 2 passed; 0 failed; 0 ignored; 0 measured\n";
const BAD: &str = "test a::b ... FAILED\ntest result: FAILED. 3 passed; 1 failed; 0 ignored\n";

fn ended(output: &str, exit_zero: bool) -> Report {
    let mut report = read_report("crates/x x", output);
    report.exit_zero = exit_zero;
    report
}

fn concluded(report: Report, allowed: &str) -> (bool, String) {
    let allowed = Allowed::parse(allowed).unwrap();
    let mut out = Vec::new();
    let good = conclude(&mut out, &[report], &allowed).unwrap();
    (good, String::from_utf8(out).unwrap())
}

const ALLOWED: &str = "[[skip]]\nsays = 'no guests'\nwhere = 'lab'\nbecause = 'no time'";

#[test]
fn an_allowed_skip_is_counted_and_does_not_count_as_passed() {
    let (good, text) = concluded(ended(GOOD, true), ALLOWED);
    assert!(good && text.ends_with("1 passed, 0 failed, 1 skipped\n"), "{text}");
    assert!(
        text.contains("skipped: crates/x x a::b: no guests (runs in the lab: no time)"),
        "{text}"
    );
}

#[test]
fn a_skip_that_is_not_listed_fails_the_run() {
    let (good, text) = concluded(ended(GOOD, true), "skip = []");
    assert!(!good && text.ends_with("1 passed, 1 failed, 1 skipped\n"), "{text}");
}

#[test]
fn a_failed_test_fails_the_run_and_its_output_is_shown() {
    let (good, text) = concluded(ended(BAD, false), ALLOWED);
    assert!(!good && text.contains("failed: crates/x x: a::b"), "{text}");
    assert!(text.ends_with("3 passed, 1 failed, 0 skipped\n"), "{text}");
}

#[test]
fn a_program_that_dies_without_a_result_fails_the_run() {
    let (good, text) = concluded(ended("running 2 tests\n", false), ALLOWED);
    assert!(!good && text.ends_with("0 passed, 1 failed, 0 skipped\n"), "{text}");
}

#[test]
fn a_list_of_skips_needs_reasons_and_known_keys() {
    let entry = |text: &str| Allowed::parse(&format!("[[skip]]\n{text}"));
    assert!(entry("says = 'x'\nwhere = 'ci'\nbecause = 'y'").is_ok());
    assert!(entry("says = 'x'\nwhere = 'ci'\nbecause = ' '").is_err());
    assert!(entry("says = ''\nwhere = 'ci'\nbecause = 'y'").is_err());
    assert!(entry("says = 'x'\nbecause = 'y'").is_err());
    assert!(entry("says = 'x'\nwhere = 'here'\nbecause = 'y'").is_err());
    assert!(entry("says = 'x'\nwhere = 'ci'\nbecause = 'y'\nwhy = 'z'").is_err());
}

#[test]
fn the_list_of_this_repository_is_valid() {
    let root = workspace_root().unwrap();
    Allowed::read(&root.join("tests/skips.toml")).unwrap();
}

#[test]
fn words_choose_packages() {
    let words = |list: &[&str]| list.iter().map(|word| (*word).to_owned()).collect::<Vec<_>>();
    let choice =
        Choice::parse(words(&["--only", "tests/", "--without", "vm"]).into_iter()).unwrap();
    assert!(
        choice.takes("tests/net")
            && !choice.takes("tests/vm")
            && !choice.takes("crates/base/linux")
    );
    let tree = Choice::parse(words(&["--tree", "tools"]).into_iter()).unwrap();
    assert_eq!(tree.tree.as_deref(), Some("tools"));
    assert!(Choice::parse(words(&["--tree"]).into_iter()).is_err());
    assert!(Choice::parse(words(&["--only"]).into_iter()).is_err());
    assert!(Choice::parse(words(&["guests"]).into_iter()).is_err());
}

#[test]
fn only_test_programs_are_taken_from_cargos_messages() {
    let line = |test: bool| {
        format!(
            r#"{{"reason":"compiler-artifact","manifest_path":"/r/crates/base/spec/Cargo.toml","target":{{"name":"spec"}},"profile":{{"test":{test}}},"executable":"/t/spec"}}"#
        )
    };
    let program = read_message(&line(true)).unwrap().unwrap();
    assert_eq!(
        (program.package.as_str(), program.name.as_str()),
        ("crates/base/spec", "crates/base/spec spec")
    );
    assert!(read_message(&line(false)).unwrap().is_none());
    assert!(read_message(r#"{"reason":"build-finished","success":true}"#).unwrap().is_none());
}

#[test]
fn the_longest_test_programs_begin_first() {
    let program = |package: &str| TestProgram {
        package: package.to_owned(),
        name: package.to_owned(),
        executable: PathBuf::new(),
        directory: PathBuf::new(),
    };
    let order = in_order(vec![program("crates/a"), program("tests/net"), program("tests/vm")]);
    let names: Vec<_> = order.iter().map(|program| program.package.as_str()).collect();
    assert_eq!(names, ["tests/vm", "tests/net", "crates/a"]);
}
