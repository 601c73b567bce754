//! The way back: elevations that hold, and those that have ended. Whoever enforces closes the streams
//! that use an ended one.

use std::path::Path;
use std::time::SystemTime;

use ringwall_safekeeping::{Content, FileError, Trust, read, replace};

use crate::record::{ApprovalId, AskedFor, DIRECTORY, Decision, Kind, Mark, RecordError};
use crate::store::{Approvals, State, unix};

/// The time at which the first elevation ends that nobody was told of, as a number.
const DUE: &str = "due";

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
        self.due_by(now).map_err(EndError::from)
    }

    /// The elevations that have ended and that nobody was told of yet. Each is told to one caller
    /// only, so that it stands in the audit log once.
    pub fn returned(&self, now: SystemTime) -> Result<Vec<Returned>, RecordError> {
        let at_unix = unix(now);
        let mut returned = Vec::new();
        let _lock = self.lock()?;
        let mut next = None::<u64>;
        for approval in self.list(now)?.approvals {
            let decision = match approval.state {
                State::Over(decision) => decision,
                State::Approved(decision) => {
                    next = Some(next.map_or(decision.until_unix, |it| it.min(decision.until_unix)));
                    continue;
                }
                _ => continue,
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
        self.set_due(next)?;
        Ok(returned)
    }

    /// Has one that was told of told again: the caller could not write it down.
    pub fn tell_again(&self, returned: &Returned) -> Result<(), RecordError> {
        let path = self.records.path(&returned.asked.id, Kind::Returned);
        std::fs::remove_file(&path).map_err(|source| FileError::Use { path, source })?;
        self.due_by(0)
    }

    /// Whether an elevation may have ended that nobody was told of. Reads at most one small file.
    pub fn is_due(home: &Path, now: SystemTime) -> bool {
        match read(&home.join(DIRECTORY).join(DUE), Trust::Secret, 32) {
            Ok(text) => {
                let due = std::str::from_utf8(&text).ok().and_then(|text| text.parse().ok());
                due.is_none_or(|due: u64| due <= unix(now))
            }
            Err(FileError::Missing(_)) => false,
            Err(_) => true,
        }
    }

    /// Somebody will have to be told at that time, at the latest.
    pub(crate) fn due_by(&self, at: u64) -> Result<(), RecordError> {
        let _lock = self.lock()?;
        let path = self.records.directory.join(DUE);
        let known = read(&path, Trust::Secret, 32).ok();
        let known = known.and_then(|text| std::str::from_utf8(&text).ok()?.parse().ok());
        self.set_due(Some(known.map_or(at, |known: u64| known.min(at))))
    }

    fn set_due(&self, at: Option<u64>) -> Result<(), RecordError> {
        let path = self.records.directory.join(DUE);
        match at {
            Some(at) => Ok(replace(&path, Content::durable(at.to_string().as_bytes()))?),
            None => match std::fs::remove_file(&path) {
                Err(source) if source.kind() != std::io::ErrorKind::NotFound => {
                    Err(FileError::Use { path, source }.into())
                }
                _ => Ok(()),
            },
        }
    }
}
