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
        let rail = |port: u32| {
            format!(
                "forbid(principal, action == Action::\"connect\", resource) when {{ resource.port > {port} }};"
            )
        };
        let old = stack(DEFAULT_POLICY, Some(&rail(20_000)));
        let new = stack(DEFAULT_POLICY, Some(&rail(20_001)));
        assert!(compare(&old, &new).widened.is_empty(), "no sample has this port");
        let found = prove(&old, &new, solver()).unwrap();
        let Proof::Widens(example) = found else { panic!("port 20001 is newly allowed") };
        assert!(example.request.contains("20001"), "{}", example.request);
        let back = prove(&new, &old, solver()).unwrap();
        assert!(matches!(back, Proof::NothingNew { .. }), "{back:?}");
    });
}

#[test]
fn what_shapes_the_question_is_not_compared() {
    let old = stack(DEFAULT_POLICY, None);
    let new = stack(&edited("tier = \"medium\"", "tier = \"low\""), None);
    let nobody = Solver::at(Path::new("/nonexistent/cvc5"));
    let error = prove(&old, &new, nobody).unwrap_err();
    assert!(error.to_string().contains("tier"), "{error}");
}

#[test]
fn a_solver_that_cannot_be_started_proves_nothing() {
    let old = stack(DEFAULT_POLICY, None);
    let new = stack(&format!("{DEFAULT_POLICY}\n[[network.deny]]\nhost = \"example.com\"\n"), None);
    prove(&old, &new, Solver::at(Path::new("/nonexistent/cvc5"))).unwrap_err();
    // It says nothing.
    prove(&old, &new, Solver::at(Path::new("/bin/true"))).unwrap_err();
}
