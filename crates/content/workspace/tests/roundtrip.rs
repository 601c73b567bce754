//! Whatever a job does to its workspace, collecting and applying it gives the host exactly the
//! tree that the job left.

mod support;

use proptest::prelude::*;
use support::{Sandbox, tree};

/// Names that collide often, and one that is awkward.
const NAMES: [&str; 5] = ["a", "b", "c", "d e", "n\nl"];

#[derive(Debug, Clone)]
enum Deed {
    Write(String, u8),
    MakeDir(String),
    Remove(String),
    Link(String, String),
    Mode(String, u32),
    Move(String, String),
}

impl Deed {
    /// A line of shell; what makes no sense at that moment fails and is passed over.
    fn line(&self) -> String {
        let quiet = "2>/dev/null || :";
        match self {
            Deed::Write(path, byte) => format!("{{ echo {byte} > '{path}'; }} {quiet}"),
            Deed::MakeDir(path) => format!("mkdir -p '{path}' {quiet}"),
            Deed::Remove(path) => format!("rm -rf '{path}' {quiet}"),
            Deed::Link(path, target) => format!("ln -sn '{target}' '{path}' {quiet}"),
            Deed::Mode(path, mode) => {
                format!("[ -L '{path}' ] || chmod {mode:o} '{path}' {quiet}")
            }
            Deed::Move(from, to) => format!("mv -T '{from}' '{to}' {quiet}"),
        }
    }
}

fn path() -> impl Strategy<Value = String> {
    proptest::collection::vec(proptest::sample::select(&NAMES[..]), 1..4)
        .prop_map(|names| names.join("/"))
}

fn deed() -> impl Strategy<Value = Deed> {
    let mode = proptest::sample::select(&[0o700, 0o755, 0o750, 0o711][..]);
    prop_oneof![
        4 => (path(), 0u8..4).prop_map(|(path, byte)| Deed::Write(path, byte)),
        3 => path().prop_map(Deed::MakeDir),
        2 => path().prop_map(Deed::Remove),
        1 => (path(), proptest::sample::select(&NAMES[..]))
            .prop_map(|(path, target)| Deed::Link(path, target.to_owned())),
        1 => (path(), mode).prop_map(|(path, mode)| Deed::Mode(path, mode)),
        2 => (path(), path()).prop_map(|(from, to)| Deed::Move(from, to)),
    ]
}

fn script(deeds: &[Deed]) -> String {
    deeds.iter().map(|deed| deed.line() + "\n").collect()
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 48,
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    #[test]
    fn applying_what_was_collected_reproduces_the_tree(
        before in proptest::collection::vec(deed(), 0..25),
        during in proptest::collection::vec(deed(), 0..25),
    ) {
        let mut sandbox = Sandbox::with(&[]);
        let made = std::process::Command::new("sh")
            .args(["-c", &script(&before)])
            .current_dir(sandbox.workspace())
            .status();
        prop_assert!(made.unwrap().success());
        sandbox.run(&(script(&during) + "cp -a . \"$COPY\"\n"));
        let wanted = tree(&sandbox.beside("copy"));
        let changes = sandbox.collect();
        prop_assert!(changes.refused().is_empty());
        sandbox.apply(&changes).unwrap();
        prop_assert_eq!(sandbox.tree(), wanted);
        // Nothing is left to be done.
        prop_assert!(sandbox.collect().is_empty());
    }
}
