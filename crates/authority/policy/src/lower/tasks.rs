//! Lowering of what a task does with files, phases, its workspace and elevations.

use super::expr::{E, all, any, is, not, one_of, path, paths, principal, resource, truth};
use super::{Rule, Source};
use crate::file::TrustRules;
use crate::pattern::PathPattern;
use crate::values::{Grant, Name};
use crate::words::{TaintEffect, Trust};

impl Source<'_> {
    pub(super) fn read(self) -> Vec<Rule> {
        let mut rules = self.trust_levels_of_files("read", |trust| &trust.read);
        rules.extend(self.by_elevation(|grant| match grant {
            Grant::Read(pattern) => Some(path(pattern)),
            _ => None,
        }));
        rules
    }

    pub(super) fn write(self) -> Vec<Rule> {
        let granted = |grant: &Grant| match grant {
            Grant::Write(pattern) => Some(path(pattern)),
            _ => None,
        };
        let mut rules = self.trust_levels_of_files("write", |trust| &trust.write);
        rules.extend(self.by_elevation(granted));
        let Some(phases) = &self.file.phases else { return rules };
        let names: Vec<&str> = phases.value.keys().map(Name::as_str).collect();
        let elsewhere = not(one_of(&names, principal("phase")));
        rules.push(Rule::forbid("phases", phases.offset, elsewhere));
        for (name, phase) in &phases.value {
            let in_phase = || is(principal("phase"), name.as_str());
            let lifted = || self.lifted(granted);
            let outside = all([in_phase(), not(paths(&phase.value.write))]);
            let rule = Rule::forbid(format!("phases.{name}.write"), phase.offset, outside);
            rules.push(rule.unless(lifted()));
            if !phase.value.deny.is_empty() {
                let denied = all([in_phase(), paths(&phase.value.deny)]);
                let rule = Rule::forbid(format!("phases.{name}.deny"), phase.offset, denied);
                rules.push(rule.unless(lifted()));
            }
        }
        rules
    }

    fn trust_levels_of_files(
        self,
        key: &str,
        list: fn(&TrustRules) -> &Vec<PathPattern>,
    ) -> Vec<Rule> {
        self.by_trust(key, |trust| {
            let patterns = list(trust);
            (!patterns.is_empty()).then(|| paths(patterns))
        })
    }

    /// A permit for each trust level of which `holds` says under which condition.
    fn by_trust(self, key: &str, holds: impl Fn(&TrustRules) -> Option<E>) -> Vec<Rule> {
        let mut rules = Vec::new();
        for trust in Trust::ALL {
            let of_trust = is(principal("trust"), trust.name());
            let name = format!("trust-levels.{trust}.{key}");
            match self.file.trust_rules(*trust) {
                Some(row) => {
                    if let Some(holds) = holds(&row.value) {
                        rules.push(Rule::permit(name, row.offset, all([of_trust, holds])));
                    }
                }
                None if !self.base => rules.push(Rule::inherited(&name, of_trust)),
                None => {}
            }
        }
        rules
    }

    pub(super) fn phase(self) -> Vec<Rule> {
        let mut rules = Vec::new();
        match &self.file.phases {
            Some(phases) => {
                for (name, phase) in &phases.value {
                    let next: Vec<&str> =
                        phase.value.next.iter().map(|next| next.value.as_str()).collect();
                    let when = all([
                        is(principal("phase"), name.as_str()),
                        one_of(&next, resource("name")),
                    ]);
                    rules.push(Rule::permit(format!("phases.{name}.next"), phase.offset, when));
                }
            }
            None if !self.base => rules.push(Rule::inherited("phases", truth(true))),
            None => {}
        }
        rules.extend(self.by_elevation(|grant| match grant {
            Grant::Phase(name) => Some(is(resource("name"), name.as_str())),
            _ => None,
        }));
        rules.extend(self.taint(TaintEffect::NoPhaseChange));
        rules
    }

    pub(super) fn apply(self) -> Vec<Rule> {
        let mut rules = self.by_trust("apply", |trust| trust.apply.then(|| truth(true)));
        rules.extend(self.by_elevation(|grant| (*grant == Grant::Apply).then(|| truth(true))));
        rules.extend(self.taint(TaintEffect::NoApply));
        rules
    }

    pub(super) fn elevate(self) -> Vec<Rule> {
        if self.file.elevation.is_empty() && !self.base {
            return vec![Rule::inherited("elevation", truth(true))];
        }
        let elevations = self.file.elevation.iter();
        elevations
            .map(|elevation| {
                let name = elevation.value.name.as_str();
                let when = any([is(resource("name"), name)]);
                Rule::permit(format!("elevation.{name}"), elevation.offset, when)
            })
            .collect()
    }

    /// What a tainted task loses outright, where the file says so.
    pub(super) fn taint(self, effect: TaintEffect) -> Option<Rule> {
        let present = self.file.taint_effect(effect)?;
        let rule = Rule::forbid(format!("taint.{effect}"), present.offset, principal("tainted"));
        Some(rule.unless(self.taint_lifted()))
    }
}
