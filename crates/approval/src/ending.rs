//! The way back: elevations that hold, and those that have ended. Whoever enforces closes the streams
//! that use an ended one.

use std::time::SystemTime;

use crate::record::{ApprovalId, AskedFor, Decision, Kind, Mark, RecordError};
use crate::store::{Approvals, State, unix};

/// An elevation that has ended: the old rights are back.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Returned {
    pub asked: AskedFor,
    pub decision: Decision,
    pub at_unix: u64,
    pub why: Why,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Why {
    /// Its time was up.
    Time,
    /// Somebody ended it before, and said this.
    Ended(String),
}

#[derive(Debug, thiserror::Error)]
pub enum EndError {
    #[error("{0} does not hold: it is {1}")]
    NotApproved(ApprovalId, &'static str),
    #[error(transparent)]
    Record(#[from] RecordError),
}

impl Approvals {
    /// The elevations that hold now, the one that ends first first.
    pub fn holding(&self, now: SystemTime) -> Result<Vec<(AskedFor, Decision)>, RecordError> {
        let mut holding: Vec<_> = self
            .list(now)?
            .approvals
            .into_iter()
            .filter_map(|approval| match approval.state {
                State::Approved(decision) => Some((approval.asked, decision)),
                _ => None,
            })
            .collect();
        holding.sort_by_key(|(_, decision)| decision.until_unix);
        Ok(holding)
    }

    /// Ends an elevation before its time.
    pub fn end(&self, id: &ApprovalId, why: &str, now: SystemTime) -> Result<(), EndError> {
        let now = unix(now);
        let approval = self.at(id, now)?;
        if !matches!(approval.state, State::Approved(_)) {
            return Err(EndError::NotApproved(id.clone(), approval.state.word()));
        }
        let note = why.chars().take(256).collect();
        self.records.create(id, Kind::Ended, &Mark { at_unix: now, note }, None)?;
        Ok(())
    }

    /// The elevations that have ended and that nobody was told of yet. Each is told to one caller
    /// only, so that it stands in the audit log once.
    pub fn returned(&self, now: SystemTime) -> Result<Vec<Returned>, RecordError> {
        let at_unix = unix(now);
        let mut returned = Vec::new();
        for approval in self.list(now)?.approvals {
            let State::Over(decision) = approval.state else {
                continue;
            };
            let id = &approval.asked.id;
            let mark = Mark { at_unix, note: String::new() };
            if self.records.exists(id, Kind::Returned)
                || !self.records.create(id, Kind::Returned, &mark, None)?
            {
                continue;
            }
            let why = match self.records.read::<Mark>(id, Kind::Ended) {
                Ok(mark) => Why::Ended(mark.note),
                Err(_) => Why::Time,
            };
            returned.push(Returned { asked: approval.asked, decision, at_unix, why });
        }
        Ok(returned)
    }
}
