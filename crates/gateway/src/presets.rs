//! Rule sets that most tasks need, by name.

use serde::{Deserialize, Serialize};

use crate::host::Host;
use crate::pattern::HostPattern;
use crate::rules::{Allow, GitRights, RuleSet};

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Preset {
    /// Nothing; also what a task without presets has.
    None,
    /// Reading from the public package registries.
    Packages,
    /// Cloning and fetching from the public git hosts.
    GitRead,
    /// Every public name on ports 80 and 443. The engine must warn whoever chooses it.
    Open,
}

/// Labels of each registry's host, from the left.
const REGISTRIES: &[&[&str]] = &[
    &["index", "crates", "io"],
    &["static", "crates", "io"],
    &["registry", "npmjs", "org"],
    &["registry", "yarnpkg", "com"],
    &["pypi", "org"],
    &["files", "pythonhosted", "org"],
    &["proxy", "golang", "org"],
    &["sum", "golang", "org"],
    &["rubygems", "org"],
    &["repo", "maven", "apache", "org"],
    &["repo1", "maven", "org"],
    &["deb", "debian", "org"],
    &["archive", "ubuntu", "com"],
];

const GIT_HOSTS: &[&[&str]] =
    &[&["github", "com"], &["gitlab", "com"], &["codeberg", "org"], &["bitbucket", "org"]];

/// The rules of a preset. `Open` has none: it is a property of the whole set.
pub fn rules_of(preset: Preset) -> Vec<Allow> {
    match preset {
        Preset::None | Preset::Open => Vec::new(),
        Preset::Packages => REGISTRIES
            .iter()
            .map(|labels| Allow { methods: vec!["GET".into(), "HEAD".into()], ..allow(labels) })
            .collect(),
        Preset::GitRead => GIT_HOSTS
            .iter()
            .map(|labels| Allow {
                git: Some(GitRights { fetch: true, ..GitRights::default() }),
                ..allow(labels)
            })
            .collect(),
    }
}

fn allow(labels: &[&str]) -> Allow {
    Allow::host(HostPattern::Exact(Host::Name(labels.join("."))))
}

/// What a person must be told before a task runs with these rules.
pub fn warning(rules: &RuleSet) -> Option<&'static str> {
    rules.presets.contains(&Preset::Open).then_some(
        "the network preset `open` lets the task send anything that it can read to any public host",
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_preset_is_a_valid_rule_set() {
        for preset in [Preset::None, Preset::Packages, Preset::GitRead, Preset::Open] {
            let set = RuleSet { presets: vec![preset], ..RuleSet::default() };
            let rules = set.check().unwrap();
            assert_eq!(rules.open, preset == Preset::Open);
            assert_eq!(warning(&set).is_some(), preset == Preset::Open);
            for rule in &rules.allow {
                let name = Host::parse(&rule.host.to_string()).unwrap();
                assert!(rule.host.matches(&name));
                assert!(rule.git.is_some() || !rule.matching.methods.contains("POST"));
            }
        }
    }
}
