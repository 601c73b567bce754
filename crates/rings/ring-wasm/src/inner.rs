//! A wasm ring inside another ring, raised by that ring's warden.
//!
//! Such a warden can make no namespaces: its own ring's filter and user namespace deny them. What
//! this ring adds needs no privilege: a Landlock domain with nothing but the granted directories,
//! one more filter, and the filter that the WASM warden puts on itself.

use ringwall_linux::step::{PathAccess, Slot, Step};
use ringwall_spec::DirAccess;

use crate::plan::path_access;

/// Where a ring has the program that runs tools, if a wasm ring comes inside it.
const WASM_WARDEN_PATH: &str = "/dev/.ringwall/wasm-warden";

/// `grants` are directories of the ring outside, as it names them. The WASM warden is told them in
/// this order.
pub fn inner_wasm_plan(grants: &[(String, DirAccess)]) -> Vec<Step> {
    // To be executed once, and what the facts are read from. The root itself has no rule.
    let mut rules =
        vec![(WASM_WARDEN_PATH.into(), PathAccess::Read), ("/proc".into(), PathAccess::ReadFiles)];
    rules.extend(grants.iter().map(|(path, access)| (path.into(), path_access(*access))));
    vec![
        Step::NoNewPrivileges,
        Step::Landlock { rules },
        Step::SeccompNesting,
        Step::Exec {
            program: WASM_WARDEN_PATH.into(),
            arguments: grants.iter().map(|(path, _)| path.clone()).collect(),
            environment: Vec::new(),
            descriptors: vec![Slot::passed(0)],
            open_files: None,
        },
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_allowed_but_the_program_facts_and_grants() {
        let grants = [("/workspace".to_owned(), DirAccess::Read)];
        let steps = inner_wasm_plan(&grants);
        let rules = steps.iter().find_map(|step| match step {
            Step::Landlock { rules } => Some(rules.clone()),
            _ => None,
        });
        let expected = vec![
            (WASM_WARDEN_PATH.into(), PathAccess::Read),
            ("/proc".into(), PathAccess::ReadFiles),
            ("/workspace".into(), PathAccess::Read),
        ];
        assert_eq!(rules, Some(expected));
    }

    #[test]
    fn power_is_given_up_before_the_warden_runs_and_only_its_stream_goes_along() {
        let names: Vec<&str> = inner_wasm_plan(&[]).iter().map(Step::name).collect();
        let order =
            ["set no-new-privileges", "apply Landlock", "apply seccomp filter", "start warden"];
        assert_eq!(names, order);
        assert!(matches!(
            inner_wasm_plan(&[]).last(),
            Some(Step::Exec { descriptors, .. }) if *descriptors == [Slot::passed(0)]
        ));
    }
}
