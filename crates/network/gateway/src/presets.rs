//! Rule sets that most tasks need, by name.

use ringwall_spec::{Allow, GitRights, Preset};

/// The rules of a preset. `Open` has none: it is a property of the whole set.
pub fn rules_of(preset: Preset) -> Vec<Allow> {
    let rules = preset.hosts().iter().map(|host| Allow::host(*host));
    match preset {
        Preset::None | Preset::Open => Vec::new(),
        Preset::Packages => {
            rules.map(|rule| Allow { methods: vec!["GET".into(), "HEAD".into()], ..rule }).collect()
        }
        Preset::GitRead => rules
            .map(|rule| Allow {
                git: Some(GitRights { fetch: true, ..GitRights::default() }),
                ..rule
            })
            .collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::host::Host;
    use ringwall_spec::RuleSet;

    #[test]
    fn every_preset_is_a_valid_rule_set() {
        for preset in [Preset::None, Preset::Packages, Preset::GitRead, Preset::Open] {
            let set = RuleSet { presets: vec![preset], ..RuleSet::default() };
            let rules = crate::rules::check(&[set]).unwrap();
            assert_eq!(rules.open, preset == Preset::Open);
            assert_eq!(rules.allow.len(), preset.hosts().len());
            for rule in &rules.allow {
                let name = Host::parse(&rule.host.to_string()).unwrap();
                assert!(rule.host.matches(&name));
                assert!(rule.git.is_some() || !rule.matching.methods.contains("POST"));
            }
        }
    }
}
