//! Lowering of what a task does with files, phases, its workspace and elevations.

use super::expr::{E, all, any, is, not, one_of, path, paths, principal, resource, truth};
use super::{Rule, Source};
use crate::file::TierRules;
use crate::pattern::PathPattern;
use crate::values::{Grant, Name};
use crate::words::{TaintEffect, Tier};

impl Source<'_> {
    pub(super) fn read(self) -> Vec<Rule> {
        let mut rules = self.tiers_of_files("read", |tier| &tier.read);
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
        let mut rules = self.tiers_of_files("write", |tier| &tier.write);
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

    fn tiers_of_files(self, key: &str, list: fn(&TierRules) -> &Vec<PathPattern>) -> Vec<Rule> {
        self.by_tier(key, |tier| {
            let patterns = list(tier);
            (!patterns.is_empty()).then(|| paths(patterns))
        })
    }

    /// A permit for each tier of which `holds` says under which condition.
    fn by_tier(self, key: &str, holds: impl Fn(&TierRules) -> Option<E>) -> Vec<Rule> {
        let mut rules = Vec::new();
        for tier in Tier::ALL {
            let of_tier = is(principal("tier"), tier.name());
            let name = format!("tiers.{tier}.{key}");
            match self.file.tier_rules(*tier) {
                Some(row) => {
                    if let Some(holds) = holds(&row.value) {
                        rules.push(Rule::permit(name, row.offset, all([of_tier, holds])));
                    }
                }
                None if !self.base => rules.push(Rule::inherited(&name, of_tier)),
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
        let mut rules = self.by_tier("apply", |tier| tier.apply.then(|| truth(true)));
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
