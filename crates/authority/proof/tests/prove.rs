//! Edits of policies, put to a real solver: the cvc5 of the machine, or the one that `make setup` has
//! put among the tests' Python packages.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::print_stderr,
    reason = "a test fails by panicking, and says what it could not test"
)]

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use ringwall_policy::{
    DEFAULT_POLICY, FileFacts, GuardRailText, LayerText, OriginKind, Stack, compare,
};
use ringwall_proof::{Proof, Solver, prove};

/// Says so where there is none: nothing was tested then.
fn with_solver(test: impl Fn(&dyn Fn() -> Solver)) {
    if let Some(found) = Solver::find() {
        let program = found.program().to_owned();
        return test(&|| Solver::at(&program));
    }
    let top = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../..");
    let python = top.join("target/test-python/bin/python");
    let has_cvc5 = std::process::Command::new(&python)
        .args(["-c", "import cvc5"])
        .stderr(std::process::Stdio::null())
        .status()
        .is_ok_and(|status| status.success());
    if !has_cvc5 {
        eprintln!("not tested here: there is no cvc5; `make setup` installs one");
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let program = wrapper(dir.path(), &python);
    test(&|| Solver::at(&program));
}

fn wrapper(dir: &Path, python: &Path) -> PathBuf {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/solve.py");
    let program = dir.join("cvc5");
    let text = format!("#!/bin/sh\nexec {} {} \"$@\"\n", python.display(), script.display());
    std::fs::write(&program, text).unwrap();
    std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o755)).unwrap();
    program
}

fn stack(text: &str, guard_rails: Option<&str>) -> Stack {
    let guard_rails =
        guard_rails.map(|text| GuardRailText { path: "p.cedar".into(), text: text.into() });
    let facts = FileFacts::default();
    let (origin, path, text) = (OriginKind::User, "p.toml".to_owned(), text.to_owned());
    Stack::load(vec![LayerText { origin, path, text, guard_rails, facts }]).unwrap()
}

fn edited(from: &str, to: &str) -> String {
    assert!(DEFAULT_POLICY.contains(from), "{from:?} is not in the default policy");
    DEFAULT_POLICY.replacen(from, to, 1)
}

#[test]
fn an_edit_that_narrows_is_proved_to_allow_nothing_new() {
    with_solver(|solver| {
        let old = stack(DEFAULT_POLICY, None);
        let new =
            stack(&format!("{DEFAULT_POLICY}\n[[network.deny]]\nhost = \"example.com\"\n"), None);
        let Proof::NothingNew { claims } = prove(&old, &new, solver()).unwrap() else {
            panic!("it widens nothing");
        };
        assert!(claims > 0, "something had to be proved");
    });
}

#[test]
fn the_edit_taken_back_is_found_to_allow_something() {
    with_solver(|solver| {
        let narrow = format!("{DEFAULT_POLICY}\n[[network.deny]]\nhost = \"example.com\"\n");
        let found = prove(&stack(&narrow, None), &stack(DEFAULT_POLICY, None), solver()).unwrap();
        let Proof::Widens(example) = found else { panic!("example.com is newly allowed") };
        assert!(example.request.contains("example.com"), "{}", example.request);
    });
}

#[test]
fn a_border_that_no_list_of_samples_reaches_is_found() {
    with_solver(|solver| {
        let rail = |path: &str| {
            format!(
                "forbid(principal, action == Action::\"connect\", resource) when {{ context.path like \"{path}\" }};"
            )
        };
        let old = stack(DEFAULT_POLICY, Some(&rail("/border*")));
        let new = stack(DEFAULT_POLICY, Some(&rail("/border/*")));
        assert!(compare(&old, &new).widened.is_empty(), "no sample has this path");
        let found = prove(&old, &new, solver()).unwrap();
        let Proof::Widens(example) = found else { panic!("/border is newly allowed") };
        assert!(example.request.contains("/border"), "{}", example.request);
        let back = prove(&new, &old, solver()).unwrap();
        assert!(matches!(back, Proof::NothingNew { .. }), "{back:?}");
    });
}

#[test]
fn what_shapes_the_question_is_not_compared() {
    let old = stack(DEFAULT_POLICY, None);
    let new = stack(&edited("trust = \"medium\"", "trust = \"low\""), None);
    let nobody = Solver::at(Path::new("/nonexistent/cvc5"));
    let error = prove(&old, &new, nobody).unwrap_err();
    assert!(error.to_string().contains("trust"), "{error}");
}

#[test]
fn a_solver_that_cannot_be_started_proves_nothing() {
    let old = stack(DEFAULT_POLICY, None);
    let new = stack(&format!("{DEFAULT_POLICY}\n[[network.deny]]\nhost = \"example.com\"\n"), None);
    prove(&old, &new, Solver::at(Path::new("/nonexistent/cvc5"))).unwrap_err();
    // It says nothing.
    prove(&old, &new, Solver::at(Path::new("/bin/true"))).unwrap_err();
}

/// The shipped policy with other rules for the network.
fn network(rules: &str) -> Stack {
    stack(&edited("presets = [\"none\"]", rules), None)
}

const STAR: &str = "[[network.allow]]\nhost = \"*.example.com\"\n";
const STARS: &str = "[[network.allow]]\nhost = \"**.example.com\"\n";
const NAME: &str = "[[network.allow]]\nhost = \"a.example.com\"\n";
const DEEP: &str = "[[network.allow]]\nhost = \"b.a.example.com\"\n";
const READ: &str =
    "[[network.allow]]\nhost = \"a.example.com\"\nmethods = [\"GET\"]\npaths = [\"/v1\"]\n";
const DENY: &str = "[[network.deny]]\nhost = \"*.example.com\"\npaths = [\"/admin\"]\n";

#[test]
fn the_proof_reads_stars_as_the_gateway_does() {
    with_solver(|solver| {
        let widens = |old: &str, new: &str| {
            let found = prove(&network(old), &network(new), solver()).unwrap();
            matches!(found, Proof::Widens(_))
        };
        // A rule for exactly a host stands in place of one with a star, so it narrows it, too.
        for (narrow, wide) in [
            (NAME, STAR),
            (STAR, STARS),
            (DEEP, STARS),
            (READ, NAME),
            (&format!("{STAR}{READ}"), STAR),
            (&format!("{STARS}{DENY}"), STARS),
            ("presets = [\"packages\"]\n", "presets = [\"open\"]\n"),
            (NAME, "presets = [\"open\"]\n"),
        ] {
            assert!(!widens(wide, narrow), "{wide} to {narrow}");
            assert!(widens(narrow, wide), "{narrow} to {wide}");
        }
        // Neither holds the other.
        for (one, other) in [(STAR, DEEP), (DEEP, STAR)] {
            assert!(widens(one, other), "{one} to {other}");
        }
    });
}

#[test]
fn what_is_proved_is_not_contradicted_by_any_sample() {
    with_solver(|solver| {
        let rules = [NAME, DEEP, READ, DENY, STAR];
        let text = |set: usize| -> String {
            let chosen = rules.iter().enumerate().filter(|(at, _)| set & (1 << at) != 0);
            chosen.map(|(_, rule)| *rule).collect()
        };
        let mut proved = 0;
        // Each set of rules beside one of its neighbours.
        for set in (1..32_usize).step_by(2) {
            let other = set ^ (1 << (set % rules.len()));
            let (old, new) = (network(&text(set)), network(&text(other)));
            if matches!(prove(&old, &new, solver()), Ok(Proof::NothingNew { .. })) {
                proved += 1;
                assert_eq!(compare(&old, &new).widened, [], "{} to {}", text(set), text(other));
            }
        }
        assert!(proved > 1, "{proved}");
    });
}

#[test]
fn what_the_proof_does_not_see_is_not_proved() {
    let old = network(NAME);
    let new = network(&format!("{NAME}addresses = [\"10.0.0.0/8\"]\n"));
    let nobody = Solver::at(Path::new("/nonexistent/cvc5"));
    let error = prove(&old, &new, nobody).unwrap_err();
    assert!(error.to_string().contains("addresses"), "{error}");
}
