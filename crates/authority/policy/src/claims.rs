//! What must be shown of two policies for the new one to allow nothing that the old one denies.

use cedar_policy::PolicySet;

use crate::diff::{is_network_in_cedar, named_by, same_rules};
use crate::layer::Layer;
use crate::lower::{Act, LowerError};
use crate::stack::Stack;

/// Every request that `new` allows, `old` allows too. If all claims about two policies are true, the
/// new one allows nothing new: every layer must allow, and each allows no more than it did.
#[derive(Debug, Clone)]
pub struct Claim {
    pub act: Act,
    /// The new file.
    pub layer: String,
    pub old: PolicySet,
    pub new: PolicySet,
}

/// Why two policies cannot be compared layer by layer.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NoClaims {
    #[error("the two have {old} and {new} layers")]
    Layers { old: usize, new: usize },
    #[error(
        "cannot compare: the edit changes the risk level, trust level, phase or [[tool]], so the same command makes another request"
    )]
    Asked,
    #[error(
        "the edit changes rules with `addresses` or with branches for git, which the proof does not see"
    )]
    Network,
    #[error(transparent)]
    Lower(#[from] LowerError),
}

/// One claim for each action of each layer whose rules are not the same.
pub fn claims(old: &Stack, new: &Stack) -> Result<Vec<Claim>, NoClaims> {
    let (before, after) = (old.layers(), new.layers());
    if before.len() != after.len() {
        return Err(NoClaims::Layers { old: before.len(), new: after.len() });
    }
    let pairs = || before.iter().zip(after);
    // What Cedar is asked depends on these. Where they are the same, so is the question.
    if !pairs().all(|(one, other)| named_by(one) == named_by(other)) {
        return Err(NoClaims::Asked);
    }
    if !pairs().all(|(one, other)| is_network_in_cedar(one, other)) {
        return Err(NoClaims::Network);
    }
    let mut claims = Vec::new();
    for act in Act::ALL.into_iter().filter(|act| !same_rules(old, new, *act)) {
        for (one, other) in pairs() {
            let set = |layer: &Layer| layer.set(act).map(|set| set.policies.clone());
            let layer = other.path.clone();
            claims.push(Claim { act, layer, old: set(one)?, new: set(other)? });
        }
    }
    Ok(claims)
}
