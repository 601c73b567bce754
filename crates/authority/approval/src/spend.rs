//! Using an elevation: putting it into the one token that it is for, and going ahead with the one
//! action that it is for.

use ringwall_grant::{
    Allowed, Basis, Reason, Refused, Request, SeenElevation, SignedElevation, Token, TokenError,
    Verifier,
};
use ringwall_safekeeping::hex;

use crate::action::Action;
use crate::record::{ApprovalId, AskedFor, Decision, Kind, Mark, RecordError};
use crate::rule::{Approver, ElevationRule, trusted};
use crate::store::{Approvals, State, unix};

#[derive(Debug, thiserror::Error)]
pub enum ElevateError {
    #[error("{0} is not approved: it is {1}")]
    NotApproved(ApprovalId, &'static str),
    #[error("{0} was approved for another grant; ask with this one")]
    OtherToken(ApprovalId),
    #[error(transparent)]
    Token(#[from] TokenError),
    #[error(transparent)]
    Record(#[from] RecordError),
}

#[derive(Debug, thiserror::Error)]
pub enum UseError {
    /// The grant does not allow it, and carries no elevation that does.
    #[error(transparent)]
    Refused(#[from] Refused),
    #[error("{id} was given for another {what}; ask for this one")]
    OtherAction { id: ApprovalId, what: Difference },
    #[error("{0} may be used once, and was; ask again")]
    AlreadyUsed(ApprovalId),
    #[error("{0} does not hold: it is {1}")]
    NotApproved(ApprovalId, &'static str),
    #[error("the elevation in the grant is not the one that was decided on in {0}")]
    OtherDecision(ApprovalId),
    #[error(transparent)]
    Record(#[from] RecordError),
}

/// In what an action differs from the one that was approved.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Difference {
    Task,
    Tenant,
    Action,
    Resource,
    Parameters,
    Sandbox,
    Incarnation,
}

/// A request that may go ahead.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Authorized {
    pub allowed: Allowed,
    /// The elevation that it goes ahead by.
    pub used: Option<UsedElevation>,
}

/// Whoever goes ahead by this stops when it ends.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UsedElevation {
    pub id: ApprovalId,
    pub elevation: String,
    pub approver: String,
    pub until_unix: u64,
    pub once: bool,
    /// Nobody used it before.
    pub first: bool,
}

impl Approvals {
    /// The token with the elevation that was approved for it.
    pub fn elevate(
        &self,
        token: &Token,
        id: &ApprovalId,
        now: std::time::SystemTime,
    ) -> Result<Token, ElevateError> {
        let approval = self.at(id, unix(now))?;
        let State::Approved(decision) = &approval.state else {
            return Err(ElevateError::NotApproved(id.clone(), approval.state.word()));
        };
        if hex::encode(token.elevation_request()?.as_bytes()) != approval.asked.token_request {
            return Err(ElevateError::OtherToken(id.clone()));
        }
        let block = decision.block.as_deref().and_then(hex::decode);
        let forged = || RecordError::Forged(self.records.path(id, Kind::Decision));
        let block = SignedElevation::from_verified_record(block.ok_or_else(forged)?);
        Ok(token.elevated(&block)?)
    }

    /// Decides a request whose token may carry an elevation. One that is single-use is used up by
    /// this, and of many at once, in whatever process, one succeeds.
    ///
    /// `policy_needs_it`: the grant has the right, and policy still asks for the elevation.
    pub fn authorize(
        &self,
        verifier: &Verifier,
        token: &Token,
        request: &Request,
        action: &Action,
        policy: (&ElevationRule, &[Approver]),
        policy_needs_it: bool,
    ) -> Result<Authorized, UseError> {
        let request =
            request.clone().with_elevations(action.hash(), vec![trusted(policy.0, policy.1)]);
        let allowed = match verifier.check(token, &request) {
            Ok(allowed) => allowed,
            Err(refused) => return Err(self.explain(verifier, token, action, refused)),
        };
        let needed = policy_needs_it || allowed.basis == Basis::Elevation;
        let used = match allowed.elevation.as_ref().filter(|_| needed) {
            Some(seen) => Some(self.spend_any(verifier, token, &request, action, seen)?),
            None => None,
        };
        Ok(Authorized { allowed, used })
    }

    /// A token can carry several elevations for the same action, of which some were used up.
    fn spend_any(
        &self,
        verifier: &Verifier,
        token: &Token,
        request: &Request,
        action: &Action,
        longest: &SeenElevation,
    ) -> Result<UsedElevation, UseError> {
        let now = unix(verifier.now());
        let failed = match self.spend(longest, action, now) {
            Ok(used) => return Ok(used),
            Err(error) => error,
        };
        let trusted = |seen: &SeenElevation| {
            request.sought.iter().flat_map(|sought| &sought.trusted).any(|trusted| {
                trusted.elevation == seen.elevation.name.as_str()
                    && trusted.keys.contains(&seen.approver)
            })
        };
        for seen in verifier.inspect(token)?.elevations {
            let usable = seen.elevation.action == action.hash()
                && now < seen.elevation.until
                && trusted(&seen);
            if usable && let Ok(used) = self.spend(&seen, action, now) {
                return Ok(used);
            }
        }
        Err(failed)
    }

    fn spend(
        &self,
        seen: &SeenElevation,
        action: &Action,
        now: u64,
    ) -> Result<UsedElevation, UseError> {
        let (asked, decision) = self.record_of(seen, now)?;
        let id = asked.id.clone();
        if let Some(what) = Difference::between(&asked.action, action) {
            return Err(UseError::OtherAction { id, what });
        }
        let first = if !decision.once && self.records.exists(&id, Kind::Used) {
            false
        } else {
            let mark = Mark { at_unix: now, note: String::new() };
            self.records.create(&id, Kind::Used, &mark, None)?
        };
        if decision.once && !first {
            return Err(UseError::AlreadyUsed(id));
        }
        Ok(UsedElevation {
            id,
            elevation: asked.elevation,
            approver: decision.approver,
            until_unix: decision.until_unix,
            once: decision.once,
            first,
        })
    }

    /// The record must say what the token says: either alone is worth nothing.
    fn record_of(&self, seen: &SeenElevation, now: u64) -> Result<(AskedFor, Decision), UseError> {
        let name = seen.elevation.approval.as_str();
        let id: ApprovalId =
            name.parse().map_err(|_| RecordError::Forged(self.records.directory.join(name)))?;
        let approval = self.at(&id, now)?;
        let State::Approved(decision) = approval.state else {
            return Err(UseError::NotApproved(id, approval.state.word()));
        };
        let same = decision.key == seen.approver
            && decision.until_unix == seen.elevation.until
            && decision.once == seen.elevation.once
            && approval.asked.elevation == seen.elevation.name.as_str();
        if same { Ok((approval.asked, decision)) } else { Err(UseError::OtherDecision(id)) }
    }

    /// A token with an elevation for something else: says what is different.
    fn explain(
        &self,
        verifier: &Verifier,
        token: &Token,
        action: &Action,
        refused: Refused,
    ) -> UseError {
        if !matches!(refused.reason, Reason::NotGranted(_)) {
            return refused.into();
        }
        let elevations = verifier.inspect(token).map(|shown| shown.elevations).unwrap_or_default();
        for seen in elevations.iter().rev() {
            let Ok(id) = seen.elevation.approval.as_str().parse::<ApprovalId>() else {
                continue;
            };
            let Ok(asked) = self.records.read::<AskedFor>(&id, Kind::Request) else {
                continue;
            };
            if let Some(what) = Difference::between(&asked.action, action) {
                return UseError::OtherAction { id, what };
            }
        }
        refused.into()
    }
}

impl Difference {
    pub fn between(approved: &Action, asked: &Action) -> Option<Difference> {
        let differences = [
            (approved.tenant != asked.tenant, Difference::Tenant),
            (approved.task != asked.task, Difference::Task),
            (approved.sandbox != asked.sandbox, Difference::Sandbox),
            (approved.incarnation != asked.incarnation, Difference::Incarnation),
            (approved.action != asked.action, Difference::Action),
            (approved.resource != asked.resource, Difference::Resource),
            (approved.parameters != asked.parameters, Difference::Parameters),
        ];
        differences.into_iter().find(|(differs, _)| *differs).map(|(_, what)| what)
    }
}

impl std::fmt::Display for Difference {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Difference::Task => "task",
            Difference::Tenant => "tenant",
            Difference::Action => "action",
            Difference::Resource => "resource",
            Difference::Parameters => "set of parameters",
            Difference::Sandbox => "sandbox",
            Difference::Incarnation => "incarnation of the sandbox",
        })
    }
}
