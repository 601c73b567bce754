//! What the policy refuses to a holder and an elevation would allow: done by one that a person has given,
//! else that person is asked. The same request, made again, finds the answer.
//!
//! The owner has no grant that could be elevated: what the policy refuses to the owner stays refused.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use ringwall_approval::{
    Action, ApprovalId, Approvals, Approver, ElevationRule, Permit, State, UsedElevation, Wanted,
};
use ringwall_engine::{PolicySearch, Record, deciding, with_causes};
use ringwall_grant::Ask;
use ringwall_policy::Stack;

use crate::books::{Books, Desk};
use crate::caller::Caller;
use crate::refused::{Kind, Refused};

/// Where the decision about a sandbox that was made by an elevation says by which.
pub(crate) const APPROVAL_NOTE: &str = "approval";

/// The parameter that says which workspace's policy counts, too.
pub const WORKSPACE: &str = "workspace";

/// All of what a person would allow.
#[derive(Debug, Clone)]
pub(crate) struct Deed {
    /// What the grant is asked.
    pub ask: Ask,
    /// Another name for it, where the ask is not what is done.
    pub name: Option<&'static str>,
    pub parameters: BTreeMap<String, String>,
    pub sandbox: String,
    pub incarnation: String,
}

impl Deed {
    /// Something that is done in, or with, a sandbox that there is.
    pub(crate) fn there(record: &Record, ask: Ask) -> Deed {
        let workspace = record.workspace.as_ref();
        let workspace = workspace.and_then(|it| serde_json::to_string(it).ok());
        let workspace = workspace.map(|text| (WORKSPACE.to_owned(), text));
        Deed {
            ask,
            name: None,
            parameters: workspace.into_iter().collect(),
            sandbox: record.id.to_string(),
            incarnation: record.created_unix_ms.to_string(),
        }
    }

    pub(crate) fn with(mut self, name: &str, value: impl Into<String>) -> Deed {
        self.parameters.insert(name.to_owned(), value.into());
        self
    }
}

/// An elevation in use. Where it was for one time, it is over when this goes.
#[derive(Debug)]
pub struct Elevated {
    books: Arc<Books>,
    used: UsedElevation,
    /// The number of the audit record of its use.
    record: Option<u64>,
    kept: bool,
}

impl Elevated {
    pub fn name(&self) -> &str {
        &self.used.elevation
    }

    pub fn approval(&self) -> &ApprovalId {
        &self.used.id
    }

    pub(crate) fn record(&self) -> Option<u64> {
        self.record
    }

    /// Whoever goes ahead by it stops when it ends.
    pub fn left(&self) -> Duration {
        let end = UNIX_EPOCH + Duration::from_secs(self.used.until_unix);
        end.duration_since(SystemTime::now()).unwrap_or_default()
    }

    /// A sandbox that lives on has it, and ends it: see [`Books::sandbox_ended`].
    pub fn keep(mut self) {
        self.kept = true;
    }
}

impl Drop for Elevated {
    fn drop(&mut self) {
        if !self.kept {
            // What cannot be written down now is when its time is up.
            let _ = self.books.use_is_over(&self.used.id);
        }
    }
}

impl Desk<'_> {
    /// Lifts a refusal by what a person has allowed, if `lifted` is exactly that; else asks. `lifted` says
    /// what would be done, if the elevation that it is given is enough for it.
    pub(crate) fn lift(
        &self,
        caller: &Caller,
        refused: Refused,
        search: &PolicySearch,
        lifted: impl FnOnce(&str) -> Result<Deed, Refused>,
    ) -> Result<Elevated, Refused> {
        let (Caller::Holder(holder), Some(elevation)) = (caller, refused.elevation.clone()) else {
            return Err(refused);
        };
        if holder.is_agent() {
            // The model asks people itself, and its task then has the elevation.
            return Err(refused);
        }
        let deed = lifted(&elevation)?;
        let policy = deciding(|| search.load())?;
        let Some((rule, approvers)) = terms(&policy, &elevation)? else { return Err(refused) };
        let request = holder.request(deed.ask);
        let mut action = Action::of(&request, deed.parameters, deed.sandbox, deed.incarnation);
        if let Some(name) = deed.name {
            action.action = name.to_owned();
        }
        let wanted =
            Wanted { request: &request, action: &action, rule: &rule, approvers: &approvers };
        let (approvals, verifier) = (self.books.approvals()?, self.books.verifier(false)?);
        match approvals.use_or_ask(&verifier, &holder.token, wanted) {
            Ok(Permit::Used(used)) => {
                let event = used.event(&action);
                let books = Arc::clone(self.books);
                let mut elevated = Elevated { books, used, record: None, kept: false };
                elevated.record = Some(self.books.write(event)?);
                Ok(elevated)
            }
            Ok(Permit::Asked(asked)) => {
                self.books.write(asked.event())?;
                Err(refused.asking(asked))
            }
            Err(error) => Err(refused.unasked(&error)),
        }
    }
}

/// What the policy says of an elevation, if it has one of this name: the rule with its own approvers and
/// no others.
pub fn terms(
    policy: &Stack,
    elevation: &str,
) -> Result<Option<(ElevationRule, Vec<Approver>)>, Refused> {
    let Some(terms) = policy.elevation(elevation) else { return Ok(None) };
    ElevationRule::from_terms(&terms.name, &terms.approvers, terms.max, terms.single_use)
        .map(Some)
        .map_err(|error| Refused::new(Kind::DeniedByPolicy, with_causes(&error)))
}

impl Books {
    /// Its one use is over, if it was for one.
    pub(crate) fn use_is_over(&self, id: &ApprovalId) -> Result<(), Refused> {
        let (approvals, now) = (self.approvals()?, SystemTime::now());
        let known = approvals.get(id, now).map_err(|error| Refused::internal(&error))?;
        if matches!(&known.state, State::Approved(decision) if decision.once) {
            let ended = approvals.end(id, "its one use is over", now);
            ended.map_err(|error| Refused::internal(&error))?;
            self.record_returned(&approvals)?;
        }
        Ok(())
    }

    /// Writes down that old rights are back, if an elevation has ended since somebody looked.
    pub fn record_ended(&self) -> Result<(), Refused> {
        if Approvals::is_due(self.home(), SystemTime::now()) {
            self.record_returned(&self.approvals()?)?;
        }
        Ok(())
    }

    /// The same without looking whether there is anything to write down.
    pub fn record_returned(&self, approvals: &Approvals) -> Result<(), Refused> {
        let wrong = |error| Refused::internal(&error);
        for returned in approvals.returned(SystemTime::now()).map_err(wrong)? {
            let recorded = self.write(returned.event());
            if recorded.is_err() {
                approvals.tell_again(&returned).map_err(wrong)?;
            }
            recorded?;
        }
        Ok(())
    }
}
