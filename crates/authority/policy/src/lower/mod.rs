//! Lowering: a policy file becomes Cedar policies, each with the name and line of the rule that it
//! comes from.
//!
//! A layer that stands below another one only narrows, so what it does not speak of it permits: the
//! layer above still decides. The first layer permits only what it says.

pub(crate) mod expr;
mod network;
mod tasks;
mod work;

use std::collections::BTreeMap;

use cedar_policy::pst::{
    ActionConstraint, Clause, Effect, EntityType, EntityUID, Name, PrincipalConstraint,
    PstConstructionError, ResourceConstraint, StaticPolicy, Template,
};
use cedar_policy::{Policy, PolicySet};
use ringwall_spec::HostPattern;
use serde::{Deserialize, Serialize};

use crate::file::PolicyFile;
use crate::values::Grant;
use expr::{E, all, any, elevated};

/// What a request is about; each has its own set of policies.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Act {
    Run,
    Call,
    Read,
    Write,
    Connect,
    Secret,
    Phase,
    Apply,
    Elevate,
}

impl Act {
    pub const ALL: [Act; 9] = [
        Act::Run,
        Act::Call,
        Act::Read,
        Act::Write,
        Act::Connect,
        Act::Secret,
        Act::Phase,
        Act::Apply,
        Act::Elevate,
    ];

    pub fn name(self) -> &'static str {
        match self {
            Act::Run => "run",
            Act::Call => "call",
            Act::Read => "read",
            Act::Write => "write",
            Act::Connect => "connect",
            Act::Secret => "secret",
            Act::Phase => "phase",
            Act::Apply => "apply",
            Act::Elevate => "elevate",
        }
    }

    /// The entity type of what it is done to.
    pub(crate) fn resource(self) -> &'static str {
        match self {
            Act::Run => "Job",
            Act::Call => "Tool",
            Act::Read | Act::Write => "File",
            Act::Connect => "Endpoint",
            Act::Secret => "Secret",
            Act::Phase => "Phase",
            Act::Apply => "Workspace",
            Act::Elevate => "Elevation",
        }
    }
}

/// One rule of a file, lowered.
#[derive(Debug, Clone)]
pub(crate) struct Rule {
    /// As a person finds it in the file: `trust-levels.low.write`.
    pub(crate) name: String,
    /// Where it stands; nothing for what a file does not say.
    pub(crate) offset: Option<usize>,
    pub(crate) permits: bool,
    pub(crate) when: E,
    pub(crate) unless: Option<E>,
    /// It says nothing of hosts that this does not match: there `when` is false.
    pub(crate) host: Option<HostPattern>,
}

impl Rule {
    fn new(name: String, offset: Option<usize>, permits: bool, when: E) -> Rule {
        Rule { name, offset, permits, when, unless: None, host: None }
    }

    fn permit(name: impl Into<String>, offset: usize, when: E) -> Rule {
        Rule::new(name.into(), Some(offset), true, when)
    }

    fn forbid(name: impl Into<String>, offset: usize, when: E) -> Rule {
        Rule::new(name.into(), Some(offset), false, when)
    }

    /// A layer says nothing here, so the layer above decides.
    fn inherited(name: &str, when: E) -> Rule {
        Rule::new(format!("{name} (not restricted here)"), None, true, when)
    }

    /// The same, of no other hosts than these. `when` must say so, too.
    fn of_host(self, host: &HostPattern) -> Rule {
        Rule { host: Some(host.clone()), ..self }
    }

    fn unless(self, lifted: Vec<E>) -> Rule {
        let unless = (!lifted.is_empty()).then(|| any(lifted));
        Rule { unless, ..self }
    }

    /// Built as a tree; fails only for names that Cedar does not know, of which there are none.
    pub(crate) fn policy(&self, id: &str, act: Act) -> Result<Policy, PstConstructionError> {
        let entity = |ty: &str, id: &str| -> Result<EntityUID, PstConstructionError> {
            Ok(EntityUID { ty: EntityType(Name::unqualified(ty)?), eid: id.into() })
        };
        let effect = if self.permits { Effect::Permit } else { Effect::Forbid };
        let mut clauses = vec![Clause::When(self.when.clone())];
        clauses.extend(self.unless.clone().map(Clause::Unless));
        let annotations = BTreeMap::from([("id".to_owned(), id.into())]);
        let template = Template::new(
            id,
            effect,
            PrincipalConstraint::Any,
            ActionConstraint::Eq(entity("Action", act.name())?),
            ResourceConstraint::Any,
        )
        .try_with_clauses(clauses)?
        .with_annotations(annotations);
        Policy::from_pst(StaticPolicy::try_from(template)?.into())
    }
}

/// One layer as lowering sees it.
#[derive(Clone, Copy)]
pub(crate) struct Source<'a> {
    pub(crate) file: &'a PolicyFile,
    /// The layer on which the others stand: it permits only what it says.
    pub(crate) base: bool,
}

impl Source<'_> {
    pub(crate) fn rules(self, act: Act) -> Vec<Rule> {
        match act {
            Act::Run => self.run(),
            Act::Call => self.call(),
            Act::Read => self.read(),
            Act::Write => self.write(),
            Act::Connect => self.connect(),
            Act::Secret => self.secret(),
            Act::Phase => self.phase(),
            Act::Apply => self.apply(),
            Act::Elevate => self.elevate(),
        }
    }

    /// The elevations that give something that `grants` picks, with what else must then hold.
    fn lifted(self, grants: impl Fn(&Grant) -> Option<E>) -> Vec<E> {
        let elevations = self.file.elevation.iter();
        elevations
            .flat_map(|elevation| {
                let name = elevation.value.name.as_str();
                elevation
                    .value
                    .grants
                    .iter()
                    .filter_map(&grants)
                    .map(|holds| all([elevated(name), holds]))
                    .collect::<Vec<_>>()
            })
            .collect()
    }

    /// A permit for each elevation that gives something that `grants` picks.
    fn by_elevation(self, grants: impl Fn(&Grant) -> Option<E>) -> Vec<Rule> {
        let elevations = self.file.elevation.iter();
        elevations
            .filter_map(|elevation| {
                let name = elevation.value.name.as_str();
                let given: Vec<E> = elevation.value.grants.iter().filter_map(&grants).collect();
                let when = all([elevated(name), any(given.iter().cloned())]);
                let rule = Rule::permit(format!("elevation.{name}"), elevation.offset, when);
                (!given.is_empty()).then_some(rule)
            })
            .collect()
    }
}

/// Rules with the names under which Cedar answers.
pub(crate) fn policy_set(
    rules: &[(String, Rule)],
    act: Act,
    guard_rails: &[Policy],
) -> Result<PolicySet, LowerError> {
    let mut set = PolicySet::new();
    for (id, rule) in rules {
        let policy = rule.policy(id, act).map_err(LowerError::of)?;
        set.add(policy).map_err(LowerError::of)?;
    }
    for policy in guard_rails {
        set.add(policy.clone()).map_err(LowerError::of)?;
    }
    Ok(set)
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the policy could not be lowered to Cedar: {0}")]
pub struct LowerError(pub(crate) String);

impl LowerError {
    pub(crate) fn of(error: impl std::fmt::Display) -> LowerError {
        LowerError(error.to_string())
    }
}
