//! The rights of a task as data, for those who enforce them: paths for mounts, endpoints for the
//! gateway.

use serde::{Deserialize, Serialize};

use crate::decide::Task;
use crate::file::{AllowRule, DenyRule};
use crate::layer::{Layer, RuleRef};
use crate::lower::Act;
use crate::pattern::{FilePath, HostPattern, PathPattern};
use crate::stack::Stack;
use crate::values::Grant;
use crate::words::{Preset, Reach, TaintEffect, Tier};

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
        let of_tier = self.write.as_ref().is_none_or(|write| fits(write, path));
        fits(&self.also_write, path) || (of_tier && in_phase)
    }
}

fn fits(patterns: &[PathPattern], path: &FilePath) -> bool {
    patterns.iter().any(|pattern| pattern.matches(path))
}

/// Where a task may connect.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Egress {
    /// Nowhere; no gateway is needed.
    None,
    /// Where every layer allows it.
    Layers(Vec<EgressRules>),
}

/// What one layer says of the network.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct EgressRules {
    pub reach: Reach,
    pub presets: Vec<Preset>,
    pub allow: Vec<AllowRule>,
    pub deny: Vec<DenyRule>,
    /// Hosts that elevations give beside all that, at port 443.
    pub granted: Vec<HostPattern>,
}

impl Stack {
    /// One for each layer and each tier that counts.
    pub fn path_rights(&self, task: &Task) -> Vec<PathRights> {
        let phase = self.phase_of(task);
        let subjects = self.subjects(task);
        let mut rights = Vec::new();
        for layer in self.layers() {
            for subject in &subjects {
                let of_layer = path_rights(layer, subject.tier, &phase, task);
                if !rights.contains(&of_layer) {
                    rights.push(of_layer);
                }
            }
        }
        rights
    }

    pub fn egress(&self, task: &Task) -> Egress {
        let mut layers = Vec::new();
        for layer in self.layers() {
            for subject in self.subjects(task) {
                let row = layer.file.tier_rules(subject.tier);
                let reach = match row {
                    Some(row) => row.value.network.value,
                    None if layer.base => Reach::None,
                    None => Reach::Allowlist,
                };
                let grants = || active_grants(layer, task);
                let tainted = task.tainted
                    && layer.file.taint_effect(TaintEffect::NoNetwork).is_some()
                    && !grants().any(|grant| *grant == Grant::Taint);
                let granted: Vec<HostPattern> = grants()
                    .filter_map(|grant| match grant {
                        Grant::Connect(pattern) => Some(pattern.clone()),
                        _ => None,
                    })
                    .collect();
                let network = layer.file.network.as_ref().map(|network| &network.value);
                let reaches = match (reach, network) {
                    (Reach::None, _) => false,
                    (Reach::Open, _) => true,
                    (Reach::Allowlist, Some(network)) => {
                        let named = network.presets.iter().flat_map(|presets| &presets.value);
                        let listed = named.into_iter().any(|preset| *preset != Preset::None);
                        let only_denies = network.presets.is_none() && network.allow.is_empty();
                        listed || !network.allow.is_empty() || (only_denies && !layer.base)
                    }
                    (Reach::Allowlist, None) => !layer.base,
                };
                if tainted || (!reaches && granted.is_empty()) {
                    return Egress::None;
                }
                let network = network.cloned().unwrap_or_default();
                let rules = EgressRules {
                    reach: if reaches { reach } else { Reach::None },
                    presets: network.presets.map(|presets| presets.value).unwrap_or_default(),
                    allow: network.allow.into_iter().map(|allow| allow.value).collect(),
                    deny: network.deny.into_iter().map(|deny| deny.value).collect(),
                    granted,
                };
                if !layers.contains(&rules) {
                    layers.push(rules);
                }
            }
        }
        Egress::Layers(layers)
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

/// What elevations that this layer knows give to a task that has them.
fn active_grants<'l>(layer: &'l Layer, task: &Task) -> impl Iterator<Item = &'l Grant> {
    let elevated = task.elevated.clone();
    let elevations = layer.file.elevation.iter().map(|elevation| &elevation.value);
    elevations
        .filter(move |elevation| elevated.contains(elevation.name.as_str()))
        .flat_map(|elevation| &elevation.grants)
}

fn path_rights(layer: &Layer, tier: Tier, phase: &str, task: &Task) -> PathRights {
    let row = layer.file.tier_rules(tier).map(|row| &row.value);
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
