//! All layers of policy together. Every one must allow, so a layer can narrow and never widen.

use std::collections::BTreeSet;
use std::time::Duration;

use ringwall_spec::Limits;
use serde::{Deserialize, Serialize};

use crate::decide::{Subject, Task};
use crate::layer::{FileFacts, Layer, LayerText, LoadError, OriginKind};
use crate::lower::{Act, LowerError};
use crate::pattern::{FilePath, PathPattern};
use crate::values::TaintSource;
use crate::words::{Kind, Risk, Trust};

/// The policy that `ringwall policy init` writes.
pub const DEFAULT_POLICY: &str = include_str!("default.toml");

/// The policy in force: one layer or several.
#[derive(Debug)]
pub struct Stack {
    layers: Vec<Layer>,
}

/// A layer as records name it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LayerRef {
    pub origin: OriginKind,
    pub path: String,
    pub digest: String,
}

/// On what terms an elevation can be had, all layers that speak of it taken together.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ElevationTerms {
    pub name: String,
    pub grants: Vec<String>,
    /// Who may approve: name and public key.
    pub approvers: Vec<(String, String)>,
    pub max: Duration,
    pub single_use: bool,
    /// Whoever decides must write down why.
    pub reason: bool,
}

/// Something that a task took in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TakenIn<'a> {
    Network,
    Tool(&'a str),
    File(&'a FilePath),
    OutputOf(Kind),
}

impl Stack {
    /// Whether any layer wants a tool to be called in its strict mode.
    pub fn wants_strict(&self, tool: &str) -> bool {
        self.layers.iter().any(|layer| layer.wants_strict(tool))
    }

    /// Reads every layer. The order of `texts` does not count: where they come from does.
    pub fn load(mut texts: Vec<LayerText>) -> Result<Stack, LoadError> {
        texts.sort_by_key(|text| text.origin);
        match texts.first() {
            None => return Err(LoadError::Absent),
            Some(first) if first.origin == OriginKind::Workspace => {
                return Err(LoadError::OnlyWorkspace(first.path.clone()));
            }
            Some(_) => {}
        }
        let layers = texts
            .into_iter()
            .enumerate()
            .map(|(index, text)| Layer::load(text, index == 0))
            .collect::<Result<_, _>>()?;
        Ok(Stack { layers })
    }

    /// The shipped policy as a layer, for a workspace's file to stand on.
    pub fn built_in() -> LayerText {
        LayerText {
            origin: OriginKind::BuiltIn,
            path: "built-in policy".to_owned(),
            text: DEFAULT_POLICY.to_owned(),
            guard_rails: None,
            facts: FileFacts::default(),
        }
    }

    pub(crate) fn layers(&self) -> &[Layer] {
        &self.layers
    }

    /// What the decisions stand on, for records.
    pub fn layer_refs(&self) -> Vec<LayerRef> {
        let layers = self.layers.iter();
        layers
            .map(|layer| LayerRef {
                origin: layer.origin,
                path: layer.path.clone(),
                digest: layer.digest.clone(),
            })
            .collect()
    }

    /// The risk levels and trust levels under which all layers must allow. Mostly one: more where a layer
    /// below names another risk level or trust level, so that naming one never takes a restriction away.
    pub fn subjects(&self, task: &Task) -> Vec<Subject> {
        self.subjects_of(task, self.layers.len())
    }

    /// Those of the first layer, whatever the ones below it name.
    pub(crate) fn subjects_of_first(&self, task: &Task) -> Vec<Subject> {
        self.subjects_of(task, 1)
    }

    fn subjects_of(&self, task: &Task, layers: usize) -> Vec<Subject> {
        let base = self.layers.first().map(|layer| &layer.file);
        let own_risk = base.and_then(|file| file.risk.as_ref()).map(|at| at.value);
        let below = || self.layers.iter().take(layers).skip(1).map(|layer| &layer.file);
        // What nobody says is taken for the worst.
        let mut risk_levels = BTreeSet::from([own_risk.unwrap_or(Risk::VeryHigh)]);
        risk_levels.extend(task.risk);
        risk_levels.extend(below().filter_map(|file| file.risk.as_ref()).map(|at| at.value));
        let mut trust_levels = BTreeSet::from([task.trust.unwrap_or(self.own_trust())]);
        trust_levels.extend(below().filter_map(|file| file.trust.as_ref()).map(|at| at.value));
        let of_risk = |risk| trust_levels.iter().map(move |trust| Subject { risk, trust: *trust });
        risk_levels.into_iter().flat_map(of_risk).collect()
    }

    /// How far the first layer trusts a task that names no trust level.
    pub fn own_trust(&self) -> Trust {
        let own = self.layers.first().and_then(|layer| layer.file.trust.as_ref());
        own.map_or(Trust::Low, |at| at.value)
    }

    /// The task's phase, or the one in which tasks begin; empty where there are no phases.
    pub fn phase_of(&self, task: &Task) -> String {
        let first = || {
            let file = &self.layers.first()?.file;
            file.phase.as_ref().map(|phase| phase.value.as_str().to_owned())
        };
        task.phase.clone().or_else(first).unwrap_or_default()
    }

    /// The phases that there are, as the first layer names them.
    pub fn phase_names(&self) -> Vec<String> {
        let phases = self.layers.first().and_then(|layer| layer.file.phases.as_ref());
        phases.iter().flat_map(|phases| phases.value.keys()).map(ToString::to_string).collect()
    }

    /// What a job gets that asks for nothing, and the most that it may ask for.
    pub fn limits(&self) -> Limits {
        self.layers.iter().fold(Limits::default(), |above, layer| layer.limits(&above))
    }

    /// Names of all elevations, each once.
    pub fn elevation_names(&self) -> Vec<String> {
        let all = self.layers.iter().flat_map(|layer| &layer.file.elevation);
        let names: BTreeSet<&str> = all.map(|elevation| elevation.value.name.as_str()).collect();
        names.into_iter().map(str::to_owned).collect()
    }

    /// The terms of one elevation: every layer that names it must agree to the approver.
    pub fn elevation(&self, name: &str) -> Option<ElevationTerms> {
        let mut terms: Option<ElevationTerms> = None;
        for layer in &self.layers {
            let elevations = &layer.file.elevation;
            let Some(found) = elevations.iter().find(|e| e.value.name.as_str() == name) else {
                continue;
            };
            let own = own_terms(layer, &found.value);
            terms = Some(match terms {
                None => own,
                Some(above) => ElevationTerms {
                    approvers: above
                        .approvers
                        .into_iter()
                        .filter(|(_, key)| own.approvers.iter().any(|(_, also)| also == key))
                        .collect(),
                    max: above.max.min(own.max),
                    single_use: above.single_use || own.single_use,
                    reason: above.reason || own.reason,
                    ..above
                },
            });
        }
        terms
    }

    /// The file that forbids to pull missing images, if one does.
    pub fn forbids_pull(&self) -> Option<&str> {
        let forbids = |layer: &&Layer| {
            let images = layer.file.images.as_ref();
            images.is_some_and(|images| images.value.pull == Some(false))
        };
        self.layers.iter().find(forbids).map(|layer| layer.path.as_str())
    }

    /// Whether jobs in a guest may put filters of their own in force: the first layer says so, and
    /// none says otherwise.
    pub fn allows_own_filters(&self) -> bool {
        let said = |layer: &Layer| layer.file.own_filters.as_ref().map(|at| at.value);
        self.layers.first().and_then(said) == Some(true)
            && self.layers.iter().all(|layer| said(layer) != Some(false))
    }

    pub(crate) fn taint_sources(&self) -> impl Iterator<Item = &TaintSource> {
        let taints = self.layers.iter().filter_map(|layer| layer.file.taint.as_ref());
        taints.flat_map(|taint| &taint.value.sources)
    }

    /// The paths whose files taint a task.
    pub fn tainting_paths(&self) -> impl Iterator<Item = &PathPattern> {
        self.taint_sources().filter_map(|source| match source {
            TaintSource::Path(pattern) => Some(pattern),
            _ => None,
        })
    }

    /// Whether a task that took this in is tainted from now on.
    pub fn taints(&self, taken: &TakenIn<'_>) -> bool {
        self.taint_sources().any(|source| match (source, taken) {
            (TaintSource::Network, TakenIn::Network) => true,
            (TaintSource::Tool(pattern), TakenIn::Tool(name)) => pattern.matches(name),
            (TaintSource::Path(pattern), TakenIn::File(path)) => pattern.matches(path),
            (TaintSource::Kind(kind), TakenIn::OutputOf(of)) => kind == of,
            _ => false,
        })
    }

    /// The Cedar text of all layers for one action, for people.
    pub fn cedar(&self, act: Act) -> Result<String, LowerError> {
        let mut text = String::new();
        for layer in &self.layers {
            text.push_str(&format!("// {}\n", layer.path));
            let mut policies: Vec<String> = layer
                .set(act)?
                .policies
                .policies()
                .filter_map(|policy| policy.to_cedar())
                .collect();
            policies.sort();
            for policy in policies {
                text.push_str(&policy);
                text.push('\n');
            }
        }
        Ok(text)
    }
}

fn own_terms(layer: &Layer, elevation: &crate::file::Elevation) -> ElevationTerms {
    let named = |approver: &crate::file::Approver| {
        elevation.approvers.iter().any(|who| match who.value.strip_prefix("group:") {
            Some(group) => approver.groups.iter().any(|of| of.as_str() == group),
            None => approver.name.as_str() == who.value,
        })
    };
    let approvers = layer.file.approver.iter().map(|approver| &approver.value);
    ElevationTerms {
        name: elevation.name.to_string(),
        grants: elevation.grants.iter().cloned().map(String::from).collect(),
        approvers: approvers
            .filter(|approver| named(approver))
            .map(|approver| (approver.name.to_string(), approver.key.to_string()))
            .collect(),
        max: elevation.max.value.0,
        single_use: elevation.single_use,
        reason: elevation.reason,
    }
}
