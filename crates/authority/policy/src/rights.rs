//! The rights of a task as data, for those who enforce them: paths for mounts, endpoints for the
//! gateway.

use ringwall_spec::{Allow, Deny, EgressSpec, Preset, RuleSet};
use serde::{Deserialize, Serialize};

use crate::decide::{Action, Task};
use crate::file::NetworkRules;
use crate::layer::{Layer, RuleRef};
use crate::lower::Act;
use crate::pattern::{FilePath, PathPattern};
use crate::stack::Stack;
use crate::values::Grant;
use crate::words::{Reach, TaintEffect, Trust};

/// What one layer lets a task do with files. A list that is absent restricts nothing.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PathRights {
    pub read: Option<Vec<PathPattern>>,
    pub write: Option<Vec<PathPattern>>,
    /// Of these, what the phase lets be written.
    pub phase: Option<Vec<PathPattern>>,
    pub phase_deny: Vec<PathPattern>,
    /// What an elevation gives beside all that.
    pub also_read: Vec<PathPattern>,
    pub also_write: Vec<PathPattern>,
}

impl PathRights {
    pub fn may_read(&self, path: &FilePath) -> bool {
        fits(&self.also_read, path) || self.read.as_ref().is_none_or(|read| fits(read, path))
    }

    pub fn may_write(&self, path: &FilePath) -> bool {
        let in_phase = self.phase.as_ref().is_none_or(|phase| fits(phase, path))
            && !fits(&self.phase_deny, path);
        let of_trust = self.write.as_ref().is_none_or(|write| fits(write, path));
        fits(&self.also_write, path) || (of_trust && in_phase)
    }
}

fn fits(patterns: &[PathPattern], path: &FilePath) -> bool {
    patterns.iter().any(|pattern| pattern.matches(path))
}

impl Stack {
    /// One for each layer and each trust level that counts.
    pub fn path_rights(&self, task: &Task) -> Vec<PathRights> {
        let phase = self.phase_of(task);
        let subjects = self.subjects(task);
        let mut rights = Vec::new();
        for layer in self.layers() {
            for subject in &subjects {
                let of_layer = path_rights(layer, subject.trust, &phase, task);
                if !rights.contains(&of_layer) {
                    rights.push(of_layer);
                }
            }
        }
        rights
    }

    /// Where a task may connect, as rules of the gateway with the secrets that may be used; nothing if
    /// that is nowhere. Every layer of the policy is a set of rules, and each must allow.
    pub fn egress(&self, task: &Task) -> Option<EgressSpec> {
        let mut egress = EgressSpec::default();
        let mut denied_everywhere = Vec::new();
        for layer in self.layers() {
            for subject in self.subjects(task) {
                match reach_of(layer, subject.trust, task) {
                    Reached::Nothing => return None,
                    Reached::Inherited(deny) => denied_everywhere.extend(deny),
                    Reached::Rules(rules) if egress.layers.contains(&rules) => {}
                    Reached::Rules(rules) => egress.layers.push(rules),
                }
            }
        }
        for rules in &mut egress.layers {
            for rule in &mut rules.allow {
                if !self.may_use_secret(task, rule) {
                    rule.secret = None;
                }
                if let Some(secret) = rule.secret.as_ref().filter(|it| !egress.secrets.contains(it))
                {
                    egress.secrets.push(secret.clone());
                }
            }
        }
        egress.layers.first_mut()?.deny.extend(denied_everywhere);
        Some(egress)
    }

    /// Every layer may have something to say about the secret.
    fn may_use_secret(&self, task: &Task, rule: &Allow) -> bool {
        let (Some(name), Some(host)) = (&rule.secret, rule.host.exact()) else { return false };
        let action = Action::UseSecret { name: name.clone(), host: host.bare(), port: rule.port() };
        self.decide(task, &action).allowed
    }

    /// A guard-rail that could forbid writing: mounts cannot say what it says.
    pub fn write_guard_rail(&self) -> Option<&RuleRef> {
        self.layers().iter().find_map(|layer| layer.guard_rail_of(&[Act::Write]))
    }

    /// A guard-rail that could forbid connections or secrets: data cannot say what it says.
    pub fn network_guard_rail(&self) -> Option<&RuleRef> {
        self.layers().iter().find_map(|layer| layer.guard_rail_of(&[Act::Connect, Act::Secret]))
    }
}

/// What one layer says of the network for one trust level.
enum Reached {
    Nothing,
    /// It only narrows and lists nothing: what the others allow, but not this.
    Inherited(Vec<Deny>),
    Rules(RuleSet),
}

fn reach_of(layer: &Layer, trust: Trust, task: &Task) -> Reached {
    let reach = match layer.file.trust_rules(trust) {
        Some(row) => row.value.network.value,
        None if layer.base => Reach::None,
        None => Reach::Allowlist,
    };
    let grants = || active_grants(layer, task);
    let tainted = task.tainted
        && layer.file.taint_effect(TaintEffect::NoNetwork).is_some()
        && !grants().any(|grant| *grant == Grant::Taint);
    if tainted {
        return Reached::Nothing;
    }
    let network = layer.file.network.as_ref().map(|network| &network.value);
    let deny: Vec<Deny> =
        network.iter().flat_map(|network| &network.deny).map(|deny| deny.value.clone()).collect();
    let is_list = network.is_some_and(|it| it.presets.is_some() || !it.allow.is_empty());
    if reach == Reach::Allowlist && !layer.base && !is_list {
        return Reached::Inherited(deny);
    }
    let mut rules = match reach {
        Reach::None => RuleSet::default(),
        Reach::Open => open_rules(network),
        Reach::Allowlist => listed_rules(network),
    };
    rules.allow.extend(grants().filter_map(|grant| match grant {
        Grant::Connect(host) => Some(Allow::host(host.clone())),
        _ => None,
    }));
    if rules.is_nothing() { Reached::Nothing } else { Reached::Rules(RuleSet { deny, ..rules }) }
}

fn listed_rules(network: Option<&NetworkRules>) -> RuleSet {
    let presets = network.iter().flat_map(|network| &network.presets);
    let allow = network.iter().flat_map(|network| &network.allow);
    RuleSet {
        presets: presets.flat_map(|presets| presets.value.clone()).collect(),
        allow: allow.map(|allow| allow.value.clone()).collect(),
        ..RuleSet::default()
    }
}

/// All is open, so only what carries a secret needs a rule.
fn open_rules(network: Option<&NetworkRules>) -> RuleSet {
    let mut rules = RuleSet { presets: vec![Preset::Open], ..RuleSet::default() };
    let allow = network.iter().flat_map(|network| &network.allow).map(|allow| &allow.value);
    for rule in allow.filter(|rule| rule.secret.is_some()) {
        if rule.port() == rule.scheme().default_port() {
            // All else there is as open as everywhere, and carries no secret.
            rules.allow.push(Allow {
                scheme: Some(rule.scheme()),
                addresses: rule.addresses.clone(),
                ..Allow::host(rule.host.clone())
            });
        }
        rules.allow.push(rule.clone());
    }
    rules
}

/// What elevations that this layer knows give to a task that has them.
fn active_grants<'l>(layer: &'l Layer, task: &Task) -> impl Iterator<Item = &'l Grant> {
    let elevated = task.elevated.clone();
    let elevations = layer.file.elevation.iter().map(|elevation| &elevation.value);
    elevations
        .filter(move |elevation| elevated.contains(elevation.name.as_str()))
        .flat_map(|elevation| &elevation.grants)
}

fn path_rights(layer: &Layer, trust: Trust, phase: &str, task: &Task) -> PathRights {
    let row = layer.file.trust_rules(trust).map(|row| &row.value);
    let of_base = layer.base.then(Vec::new);
    let phases = layer.file.phases.as_ref().map(|phases| &phases.value);
    let in_phase = phases.and_then(|phases| phases.get(phase)).map(|phase| &phase.value);
    // A phase that the file does not know lets nothing be written, not even with an elevation.
    let unknown = phases.is_some() && in_phase.is_none();
    let active = || active_grants(layer, task);
    PathRights {
        read: row.map(|row| row.read.clone()).or_else(|| of_base.clone()),
        write: row.map(|row| row.write.clone()).or(of_base),
        phase: phases.map(|_| in_phase.map(|phase| phase.write.clone()).unwrap_or_default()),
        phase_deny: in_phase.map(|phase| phase.deny.clone()).unwrap_or_default(),
        also_read: active()
            .filter_map(|grant| match grant {
                Grant::Read(pattern) => Some(pattern.clone()),
                _ => None,
            })
            .collect(),
        also_write: active()
            .filter_map(|grant| match grant {
                Grant::Write(pattern) if !unknown => Some(pattern.clone()),
                _ => None,
            })
            .collect(),
    }
}
