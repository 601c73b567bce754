//! All approvals of an engine: asking for one, and looking at those there are.

use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use ringwall_grant::{PublicKey, Refused, Request, Token, TokenError, Verifier};
use ringwall_safekeeping::{FileError, Hold, Lock, hex, lock};

use crate::action::{Action, ActionError};
use crate::record::{ApprovalId, AskedFor, Decision, Kind, RecordError, Records, Requester};
use crate::rule::ElevationRule;

/// What one task may have waiting for people. More would be a flood in which a person agrees to
/// anything.
pub const MAX_PENDING_OF_TASK: usize = 16;
/// What all tasks of one tenant may: then another tenant can still ask.
pub const MAX_PENDING_OF_TENANT: usize = 64;
/// What all tenants together may.
pub const MAX_PENDING: usize = 1024;
/// Records of the past that are kept.
const MAX_RECORDS: usize = 4096;
/// Nobody looks at a question for longer.
const MAX_WAIT_SECONDS: u64 = 24 * 3600;

#[derive(Debug, thiserror::Error)]
pub enum AskError {
    #[error(transparent)]
    Action(#[from] ActionError),
    /// The grant is no good, or no approval could make the request good.
    #[error(transparent)]
    Refused(#[from] Refused),
    #[error(transparent)]
    Token(#[from] TokenError),
    #[error("the action is of the task {action:?}, the request of {request:?}")]
    OtherTask { action: String, request: String },
    #[error(
        "the task has {MAX_PENDING_OF_TASK} approvals waiting already; wait until people have decided on some"
    )]
    TaskFlood,
    #[error(
        "the tenant has {MAX_PENDING_OF_TENANT} approvals waiting already; wait until people have decided on some"
    )]
    TenantFlood,
    #[error("{MAX_PENDING} approvals are waiting already; wait until people have decided on some")]
    Flood,
    #[error(transparent)]
    Record(#[from] RecordError),
}

/// The approvals below an engine's home.
#[derive(Debug)]
pub struct Approvals {
    pub(crate) records: Records,
    lock_file: PathBuf,
}

/// An approval with all that is known of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Approval {
    pub asked: AskedFor,
    pub state: State,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum State {
    /// A person has to decide.
    Pending,
    /// Nobody decided in time.
    Lapsed,
    Denied(Decision),
    /// The elevation holds.
    Approved(Decision),
    /// The elevation has ended, by time or before.
    Over(Decision),
}

impl State {
    pub fn word(&self) -> &'static str {
        match self {
            State::Pending => "pending",
            State::Lapsed => "lapsed",
            State::Denied(_) => "denied",
            State::Approved(_) => "approved",
            State::Over(_) => "over",
        }
    }

    pub fn decision(&self) -> Option<&Decision> {
        match self {
            State::Pending | State::Lapsed => None,
            State::Denied(decision) | State::Approved(decision) | State::Over(decision) => {
                Some(decision)
            }
        }
    }
}

/// All approvals, with those that cannot be trusted apart.
#[derive(Debug, Default)]
pub struct Listed {
    /// Oldest first.
    pub approvals: Vec<Approval>,
    pub broken: Vec<(ApprovalId, RecordError)>,
}

impl Approvals {
    pub fn open(home: &Path) -> Result<Approvals, RecordError> {
        let records = Records::open(home)?;
        let lock_file = records.directory.join("lock");
        Ok(Approvals { records, lock_file })
    }

    pub(crate) fn lock(&self) -> Result<Lock, RecordError> {
        Ok(lock(&self.lock_file, Hold::Alone)?)
    }

    /// Makes a refused request a question to people, if an elevation could help it. The same question
    /// of the same grant is asked only once.
    pub fn ask(
        &self,
        verifier: &Verifier,
        token: &Token,
        request: &Request,
        action: &Action,
        rule: &ElevationRule,
        requester_key: Option<PublicKey>,
    ) -> Result<AskedFor, AskError> {
        action.validate()?;
        if action.task != request.task || action.tenant != request.tenant {
            let (action, request) = (action.task.clone(), request.task.clone());
            return Err(AskError::OtherTask { action, request });
        }
        let standing = verifier.check_elevatable(token, request)?;
        let token_request = hex::encode(token.elevation_request()?.as_bytes());
        let now = unix(verifier.now());
        let _lock = self.lock()?;
        let waiting = self.waiting(now)?;
        let same = |asked: &&AskedFor| {
            asked.action == *action
                && asked.token_request == token_request
                && asked.elevation == rule.name.as_str()
        };
        if let Some(asked) = waiting.iter().find(same) {
            return Ok(asked.clone());
        }
        // Tasks of other tenants may have the same name.
        let of_tenant = || waiting.iter().filter(|asked| asked.action.tenant == action.tenant);
        if of_tenant().filter(|asked| asked.action.task == action.task).count()
            >= MAX_PENDING_OF_TASK
        {
            return Err(AskError::TaskFlood);
        }
        if of_tenant().count() >= MAX_PENDING_OF_TENANT {
            return Err(AskError::TenantFlood);
        }
        if waiting.len() >= MAX_PENDING {
            return Err(AskError::Flood);
        }
        self.forget_oldest(now)?;
        let asked = AskedFor {
            id: ApprovalId::fresh().map_err(RecordError::from)?,
            action: action.clone(),
            elevation: rule.name.as_str().to_owned(),
            max_seconds: rule.max.as_secs(),
            single_use: rule.single_use,
            requester: Requester {
                holder: standing.holder,
                grants: standing.ids,
                key: requester_key,
            },
            asked_unix: now,
            expires_unix: standing.expires_unix.min(now + MAX_WAIT_SECONDS),
            token_request,
        };
        if self.records.create(&asked.id, Kind::Request, &asked, None)? {
            Ok(asked)
        } else {
            Err(RecordError::from(FileError::Exists(self.records.path(&asked.id, Kind::Request)))
                .into())
        }
    }

    /// One approval. Fails if any record of it is not as it was written.
    pub fn get(&self, id: &ApprovalId, now: SystemTime) -> Result<Approval, RecordError> {
        self.at(id, unix(now))
    }

    pub fn list(&self, now: SystemTime) -> Result<Listed, RecordError> {
        let mut listed = Listed::default();
        for id in self.records.ids()? {
            match self.at(&id, unix(now)) {
                Ok(approval) => listed.approvals.push(approval),
                // Removed since its name was read.
                Err(RecordError::File(FileError::Missing(_))) => {}
                Err(error) => listed.broken.push((id, error)),
            }
        }
        listed.approvals.sort_by_key(|approval| approval.asked.asked_unix);
        Ok(listed)
    }

    pub(crate) fn at(&self, id: &ApprovalId, now: u64) -> Result<Approval, RecordError> {
        let asked: AskedFor = self.records.read(id, Kind::Request)?;
        if asked.id != *id {
            return Err(RecordError::Forged(self.records.path(id, Kind::Request)));
        }
        if !self.records.exists(id, Kind::Decision) {
            let lapsed = now >= asked.expires_unix;
            let state = if lapsed { State::Lapsed } else { State::Pending };
            return Ok(Approval { asked, state });
        }
        let decision = self.records.read_decision(id)?;
        if decision.action_hash != asked.action.hash().to_string() {
            return Err(RecordError::Forged(self.records.path(id, Kind::Decision)));
        }
        let over = now >= decision.until_unix
            || self.records.exists(id, Kind::Ended)
            || self.records.exists(id, Kind::Returned);
        let state = match (decision.approved, over) {
            (false, _) => State::Denied(decision),
            (true, false) => State::Approved(decision),
            (true, true) => State::Over(decision),
        };
        Ok(Approval { asked, state })
    }

    fn waiting(&self, now: u64) -> Result<Vec<AskedFor>, RecordError> {
        let mut waiting = Vec::new();
        for id in self.records.ids()? {
            if self.records.exists(&id, Kind::Decision) {
                continue;
            }
            // A record that was tampered with is nobody's question, and is shown as broken.
            if let Ok(Approval { asked, state: State::Pending }) = self.at(&id, now) {
                waiting.push(asked);
            }
        }
        Ok(waiting)
    }

    /// Keeps the number of records bounded: what has ended, and was told to have, goes. The caller
    /// holds the lock.
    fn forget_oldest(&self, now: u64) -> Result<(), RecordError> {
        let ids = self.records.ids()?;
        if ids.len() < MAX_RECORDS {
            return Ok(());
        }
        let mut past: Vec<_> = ids.iter().filter_map(|id| self.at(id, now).ok()).collect();
        past.retain(|approval| match &approval.state {
            State::Pending | State::Approved(_) => false,
            State::Lapsed | State::Denied(_) => true,
            State::Over(decision) => {
                // Its end by time stands even when the marks are gone.
                now >= decision.until_unix
                    && self.records.exists(&approval.asked.id, Kind::Returned)
            }
        });
        past.sort_by_key(|approval| approval.asked.asked_unix);
        for approval in past.iter().take(MAX_RECORDS / 4) {
            // The request first: without it the others are not looked at, and no denied question is
            // ever open again.
            for kind in Kind::ALL {
                let path = self.records.path(&approval.asked.id, kind);
                match std::fs::remove_file(&path) {
                    Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                        return Err(FileError::Use { path, source: error }.into());
                    }
                    _ => {}
                }
            }
        }
        Ok(())
    }
}

pub(crate) fn unix(time: SystemTime) -> u64 {
    time.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}
