//! Who may approve what. These come from policy, as data.

use std::time::Duration;

use ringwall_grant::{Name, PublicKey, TrustedApprovers};

/// A person who may approve, with the key that only this person has.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Approver {
    pub name: Name,
    pub groups: Vec<Name>,
    pub key: PublicKey,
}

/// An elevation that policy offers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ElevationRule {
    pub name: Name,
    /// Names of approvers, or `group:NAME`.
    pub approvers: Vec<Name>,
    /// The longest that it may last.
    pub max: Duration,
    pub single_use: bool,
}

impl ElevationRule {
    pub fn admits(&self, approver: &Approver) -> bool {
        self.approvers.iter().any(|entry| match entry.as_str().strip_prefix("group:") {
            Some(group) => approver.groups.iter().any(|own| own.as_str() == group),
            None => *entry == approver.name,
        })
    }
}

/// The keys whose signature makes each of these elevations, for a check of a grant.
pub fn trusted(rules: &[ElevationRule], approvers: &[Approver]) -> Vec<TrustedApprovers> {
    let keys = |rule: &ElevationRule| {
        approvers.iter().filter(|one| rule.admits(one)).map(|one| one.key).collect()
    };
    rules
        .iter()
        .map(|rule| TrustedApprovers { elevation: rule.name.as_str().to_owned(), keys: keys(rule) })
        .collect()
}
