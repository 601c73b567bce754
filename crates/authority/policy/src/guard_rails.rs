//! Extra `.cedar` policies beside a policy file. They can only forbid.

use cedar_policy::{Effect, Policy, PolicyId, PolicySet, Schema, ValidationMode, Validator};
use miette::Diagnostic as _;

use crate::layer::{GuardRailText, RuleRef};
use crate::parse::{Fault, Reader};

const MOST_BYTES: usize = 64 << 10;
/// How deep brackets may nest; nobody writes this, and readers of trees must not be led deeper.
const MOST_DEPTH: usize = 32;

const SCHEMA: &str = include_str!("schema.cedarschema");

/// What rules and guard-rails are written against.
pub fn schema() -> Result<Schema, String> {
    Schema::from_cedarschema_str(SCHEMA).map(|(schema, _)| schema).map_err(|e| e.to_string())
}

/// The policies with the places where they stand.
pub(crate) fn read(from: &GuardRailText) -> Result<Vec<(Policy, RuleRef)>, Fault> {
    let reader = Reader { name: &from.path, text: &from.text };
    if from.text.len() > MOST_BYTES {
        return Err(reader.fault(0, format!("guard-rails are at most {MOST_BYTES} bytes long")));
    }
    if let Some(offset) = too_deep(&from.text) {
        return Err(reader.fault(offset, format!("brackets nest deeper than {MOST_DEPTH}")));
    }
    let set: PolicySet = from.text.parse().map_err(|errors: cedar_policy::ParseErrors| {
        let label = errors.labels().and_then(|mut labels| labels.next());
        reader.fault(label.map_or(0, |label| label.offset()), errors.to_string())
    })?;
    if set.templates().next().is_some() {
        return Err(reader.fault(0, "guard-rails have no slots; write ?principal out"));
    }
    let mut found = Vec::new();
    let mut renamed = PolicySet::new();
    for policy in set.policies() {
        let text = policy.to_cedar().unwrap_or_default();
        let offset = from.text.find(&text).unwrap_or(0);
        if policy.effect() == Effect::Permit {
            let message = "a guard-rail can only forbid; what is allowed stands in ringwall.toml";
            return Err(reader.fault(offset, message));
        }
        let name = policy.annotation("id").map_or_else(|| policy.id().to_string(), str::to_owned);
        let place = reader.fault(offset, "");
        let id = PolicyId::new(format!("guard-rail {name}@{}:{}", place.line, place.column));
        let rule = RuleRef {
            file: from.path.clone(),
            rule: format!("guard-rail {name}"),
            line: Some(place.line),
            permits: false,
        };
        let policy = policy.new_id(id);
        renamed.add(policy.clone()).map_err(|error| reader.fault(offset, error.to_string()))?;
        found.push((policy, rule, offset));
    }
    // A policy that fails when it is asked would forbid nothing, so its types are checked first.
    let validator = Validator::new(schema().map_err(|error| reader.fault(0, error))?);
    let result = validator.validate(&renamed, ValidationMode::Strict);
    if let Some(error) = result.validation_errors().next() {
        let at = found.iter().find(|(policy, ..)| policy.id() == error.policy_id());
        return Err(reader.fault(at.map_or(0, |(.., offset)| *offset), error.to_string()));
    }
    Ok(found.into_iter().map(|(policy, rule, _)| (policy, rule)).collect())
}

fn too_deep(text: &str) -> Option<usize> {
    let mut depth = 0_usize;
    for (offset, character) in text.char_indices() {
        match character {
            '(' | '[' | '{' => depth += 1,
            ')' | ']' | '}' => depth = depth.saturating_sub(1),
            _ => {}
        }
        if depth > MOST_DEPTH {
            return Some(offset);
        }
    }
    None
}
