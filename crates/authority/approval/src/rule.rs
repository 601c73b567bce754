//! Who may approve what. These come from policy, as data.

use std::time::Duration;

use ringwall_grant::{Name, NameError, PublicKey, PublicKeyError, TrustedApprovers};

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

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TermsError {
    #[error("the policy's elevation cannot be used")]
    Name(#[from] NameError),
    #[error("the policy's approver cannot be used")]
    Key(#[from] PublicKeyError),
}

impl ElevationRule {
    /// The rule and its approvers, from the terms that a policy gives for an elevation: names and
    /// public keys of all who may approve it.
    pub fn from_terms(
        name: &str,
        approvers: &[(String, String)],
        max: Duration,
        single_use: bool,
    ) -> Result<(ElevationRule, Vec<Approver>), TermsError> {
        let people = approvers
            .iter()
            .map(|(name, key)| {
                Ok(Approver { name: name.parse()?, groups: Vec::new(), key: key.parse()? })
            })
            .collect::<Result<Vec<Approver>, TermsError>>()?;
        let names = people.iter().map(|one| one.name.clone()).collect();
        Ok((ElevationRule { name: name.parse()?, approvers: names, max, single_use }, people))
    }

    pub fn admits(&self, approver: &Approver) -> bool {
        self.approvers.iter().any(|entry| match entry.as_str().strip_prefix("group:") {
            Some(group) => approver.groups.iter().any(|own| own.as_str() == group),
            None => *entry == approver.name,
        })
    }
}

/// The keys whose signature makes this elevation, for a check of a grant. One rule at a time: a name means
/// a person only among the approvers of its own rule.
pub fn trusted(rule: &ElevationRule, approvers: &[Approver]) -> TrustedApprovers {
    let admitted = approvers.iter().filter(|one| rule.admits(one));
    TrustedApprovers {
        elevation: rule.name.as_str().to_owned(),
        keys: admitted.map(|one| one.key).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_terms_of_a_policy_make_a_rule_that_admits_its_approvers() {
        let key = ringwall_grant::SecretKey::generate().unwrap().public();
        let terms = |key: String| {
            let approvers = [("alice".to_owned(), key)];
            ElevationRule::from_terms("net", &approvers, Duration::from_secs(1), true)
        };
        let (rule, approvers) = terms(key.to_string()).unwrap();
        assert!(rule.admits(&approvers[0]));
        let trusted = trusted(&rule, &approvers);
        assert_eq!((trusted.elevation.as_str(), trusted.keys), ("net", vec![key]));
        assert!(matches!(terms("ed25519/00".to_owned()), Err(TermsError::Key(_))));
    }
}
