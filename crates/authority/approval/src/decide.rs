//! A person's yes or no.

use std::time::{Duration, SystemTime};

use ringwall_grant::{Elevation, ElevationRequest, GrantId, SecretKey, TokenError};
use ringwall_safekeeping::hex;

use crate::record::{ApprovalId, AskedFor, Decision, RecordError};
use crate::rule::{Approver, ElevationRule};
use crate::store::{Approvals, State, unix};

/// A reason is a sentence or two.
pub const MAX_REASON_BYTES: usize = 2048;

/// How a person answers.
#[derive(Debug)]
pub struct Answer<'a> {
    pub verdict: Verdict,
    /// Why, for the record.
    pub reason: &'a str,
    /// The person's own key.
    pub key: &'a SecretKey,
    /// The rule of this elevation and its approvers, from policy. Those of other elevations are none of these.
    pub approvers: &'a [Approver],
    pub rule: &'a ElevationRule,
    /// The grants that the deciding call carried, if it came over an API. A person's has none.
    pub presented: &'a [GrantId],
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// For so long; `None`: as long as the rule allows.
    Approve {
        lasting: Option<Duration>,
    },
    Deny,
}

#[derive(Debug, thiserror::Error)]
pub enum DecideError {
    #[error("{0} was decided already, {1} by {2}")]
    AlreadyDecided(ApprovalId, &'static str, String),
    #[error("{0} cannot be decided any more: it was not answered in time")]
    Lapsed(ApprovalId),
    #[error(
        "your key is not one of an approver in the policy; have its public part, {0}, written there"
    )]
    WrongKey(String),
    #[error("{approver} may not approve {elevation:?}; the policy names others for it")]
    NotAnApprover { approver: String, elevation: String },
    #[error("whoever asks cannot approve: this approval was asked for by {0}")]
    SelfApproval(String),
    #[error("a call that carries a grant cannot decide; approvals are for people with a key")]
    WithGrant,
    #[error("the approval is for the elevation {asked:?}, the rule is of {rule:?}")]
    OtherRule { asked: String, rule: String },
    #[error("{asked} seconds are longer than the policy allows for this elevation: {most}")]
    TooLong { asked: u64, most: u64 },
    #[error("an elevation must last for a second at least")]
    TooShort,
    #[error("give a reason, of at most {MAX_REASON_BYTES} bytes")]
    Reason,
    #[error("the elevation cannot be signed")]
    Sign(#[from] TokenError),
    #[error(transparent)]
    Record(#[from] RecordError),
}

/// What was decided, for the audit log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Decided {
    pub asked: AskedFor,
    pub decision: Decision,
}

impl Approvals {
    /// Decides an approval, once and for all. Of several people at once, one does.
    pub fn decide(
        &self,
        id: &ApprovalId,
        answer: &Answer<'_>,
        now: SystemTime,
    ) -> Result<Decided, DecideError> {
        let now = unix(now);
        let reason = answer.reason.trim();
        if reason.is_empty() || reason.len() > MAX_REASON_BYTES {
            return Err(DecideError::Reason);
        }
        let approval = self.at(id, now)?;
        let asked = approval.asked;
        match &approval.state {
            State::Pending => {}
            State::Lapsed => return Err(DecideError::Lapsed(id.clone())),
            decided => return Err(already(id, decided)),
        }
        let approver = may_decide(&asked, answer)?;
        let (until_unix, once) = match answer.verdict {
            Verdict::Deny => (now, false),
            Verdict::Approve { lasting } => {
                // Policy may have changed since: the stricter of then and now.
                let most = answer.rule.max.as_secs().min(asked.max_seconds);
                let seconds = lasting.map_or(most, |lasting| lasting.as_secs());
                if seconds > most {
                    return Err(DecideError::TooLong { asked: seconds, most });
                }
                if seconds == 0 {
                    return Err(DecideError::TooShort);
                }
                let once = answer.rule.single_use || asked.single_use;
                ((now + seconds).min(asked.expires_unix), once)
            }
        };
        let approved = answer.verdict != Verdict::Deny;
        let block = approved.then(|| sign(&asked, answer, until_unix, once)).transpose()?;
        let decision = Decision {
            id: id.clone(),
            // Of what was shown, not of what a record says its hash is.
            action_hash: asked.action.hash().to_string(),
            approved,
            approver: approver.name.as_str().to_owned(),
            key: answer.key.public(),
            reason: reason.to_owned(),
            decided_unix: now,
            until_unix,
            once,
            block,
        };
        if approved {
            // First: that it is looked at too early does no harm.
            self.due_by(until_unix)?;
        }
        if self.records.create_decision(&decision, answer.key)? {
            return Ok(Decided { asked, decision });
        }
        Err(already(id, &self.at(id, now)?.state))
    }
}

fn already(id: &ApprovalId, state: &State) -> DecideError {
    let by = state.decision().map_or(String::new(), |decision| decision.approver.clone());
    DecideError::AlreadyDecided(id.clone(), state.word(), by)
}

fn may_decide<'a>(asked: &AskedFor, answer: &Answer<'a>) -> Result<&'a Approver, DecideError> {
    if answer.rule.name.as_str() != asked.elevation {
        let rule = answer.rule.name.as_str().to_owned();
        return Err(DecideError::OtherRule { asked: asked.elevation.clone(), rule });
    }
    let own = || DecideError::SelfApproval(asked.requester.holder.clone());
    if answer.presented.iter().any(|id| asked.requester.grants.contains(id)) {
        return Err(own());
    }
    if !answer.presented.is_empty() {
        return Err(DecideError::WithGrant);
    }
    let key = answer.key.public();
    if asked.requester.key == Some(key) {
        return Err(own());
    }
    let approver = answer
        .approvers
        .iter()
        .find(|approver| approver.key == key)
        .ok_or_else(|| DecideError::WrongKey(key.to_string()))?;
    // Under any name that the policy has for this key.
    let names = answer.approvers.iter().filter(|approver| approver.key == key);
    if names.map(|one| one.name.as_str()).any(|name| name == asked.requester.holder) {
        return Err(own());
    }
    if !answer.rule.admits(approver) {
        return Err(DecideError::NotAnApprover {
            approver: approver.name.as_str().to_owned(),
            elevation: asked.elevation.clone(),
        });
    }
    Ok(approver)
}

fn sign(
    asked: &AskedFor,
    answer: &Answer<'_>,
    until: u64,
    once: bool,
) -> Result<String, DecideError> {
    const WRONG: TokenError = TokenError::Malformed("it asks for no elevation");
    let request = hex::decode(&asked.token_request).ok_or(WRONG)?;
    let elevation = Elevation {
        approval: asked.id.as_str().parse().map_err(|_| WRONG)?,
        name: answer.rule.name.clone(),
        action: asked.action.hash(),
        until,
        once,
    };
    let signed = ElevationRequest::from_bytes(&request)?.sign(answer.key, &elevation)?;
    Ok(hex::encode(signed.as_bytes()))
}
