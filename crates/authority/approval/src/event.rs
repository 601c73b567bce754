//! What the audit log is to be told of an approval. Writing it there is the caller's.

use ringwall_audit::{self as audit, ApprovalApproved, ApprovalAsked, Event, Id, Ids, Text};

use crate::action::Action;
use crate::decide::Decided;
use crate::ending::{Returned, Why};
use crate::record::{ApprovalId, AskedFor};
use crate::spend::UsedElevation;

fn ids(action: &Action, approval: &ApprovalId) -> Ids {
    Ids::default().task(Id::new(&action.task)).approval(Id::new(approval.to_string()))
}

impl AskedFor {
    pub fn event(&self) -> audit::Record {
        let event = Event::ApprovalAsked(ApprovalAsked {
            action: Text::new(&self.action.action),
            resource: Text::new(&self.action.resource),
            rule: Text::new(&self.elevation),
            request: Text::new(self.action.hash().to_string()),
            expires_unix_ms: Some(self.expires_unix.saturating_mul(1000)),
        });
        (ids(&self.action, &self.id), event)
    }
}

impl Decided {
    pub fn event(&self) -> audit::Record {
        let Decided { asked, decision } = self;
        let (by, reason) = (Text::new(&decision.approver), Text::new(&decision.reason));
        let event = match decision.approved {
            true => Event::ApprovalApproved(ApprovalApproved {
                by,
                reason,
                request: Text::new(&decision.action_hash),
                until_unix_ms: Some(decision.until_unix.saturating_mul(1000)),
                single_use: decision.once,
            }),
            false => Event::ApprovalDenied { by, reason },
        };
        (ids(&asked.action, &asked.id), event)
    }
}

impl UsedElevation {
    /// That this was done by it.
    pub fn event(&self, action: &Action) -> audit::Record {
        let event = Event::ApprovalUsed { request: Text::new(action.hash().to_string()) };
        (ids(action, &self.id), event)
    }
}

impl Returned {
    pub fn event(&self) -> audit::Record {
        let why = match self.why {
            Why::Time => audit::Returned::Expired,
            Why::Ended(_) => audit::Returned::Ended,
        };
        let event = Event::ApprovalReturned { why, closed_streams: 0 };
        (ids(&self.asked.action, &self.asked.id), event)
    }
}
