//! The way of an enforcement point: what was refused is done by an elevation that a person has given for
//! exactly this, else a person is asked. The same request, made again, finds the answer.

use ringwall_grant::{Request, Token, Verifier};

use crate::action::Action;
use crate::record::AskedFor;
use crate::rule::{Approver, ElevationRule};
use crate::spend::{ElevateError, UseError, UsedElevation};
use crate::store::{Approvals, AskError, State};

/// What was refused, and the elevation that would allow it.
#[derive(Debug, Clone, Copy)]
pub struct Wanted<'a> {
    pub request: &'a Request,
    pub action: &'a Action,
    pub rule: &'a ElevationRule,
    /// Those of this rule.
    pub approvers: &'a [Approver],
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Permit {
    /// It may go ahead, and stops when this ends.
    Used(UsedElevation),
    /// It waits for a person. The same question is asked only once.
    Asked(Box<AskedFor>),
}

impl Approvals {
    /// Uses an elevation for what is wanted, or asks for one. Of one that is single-use, one caller has
    /// the use; the others ask again.
    pub fn use_or_ask(
        &self,
        verifier: &Verifier,
        token: &Token,
        wanted: Wanted<'_>,
    ) -> Result<Permit, AskError> {
        let Wanted { request, action, rule, approvers } = wanted;
        let now = verifier.now();
        for approval in self.list(now)?.approvals {
            let holds = matches!(approval.state, State::Approved(_))
                && approval.asked.elevation == rule.name.as_str()
                && approval.asked.action == *action;
            if !holds {
                continue;
            }
            let token = match self.elevate(token, &approval.asked.id, now) {
                Ok(token) => token,
                Err(ElevateError::Record(error)) => return Err(error.into()),
                // It was given to another grant, or has ended meanwhile.
                Err(_) => continue,
            };
            match self.authorize(verifier, &token, request, action, (rule, approvers), true) {
                Ok(authorized) => match authorized.used {
                    Some(used) => return Ok(Permit::Used(used)),
                    None => continue,
                },
                Err(UseError::Record(error)) => return Err(error.into()),
                // It was used up, or its approver is none any more: people are asked again, unless the
                // grant itself is no good.
                Err(_) => continue,
            }
        }
        Ok(Permit::Asked(Box::new(self.ask(verifier, token, request, action, rule, None)?)))
    }
}
