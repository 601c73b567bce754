//! What the policy refuses to a holder and an elevation would allow: done by one that a person has given,
//! else that person is asked. The same request, made again, finds the answer.
//!
//! The owner has no grant that could be elevated: what the policy refuses to the owner stays refused.

use std::collections::BTreeMap;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use ringwall_approval::{
    Action, ActionError, ApprovalId, Approvals, Approver, AskError, AskedFor, ElevationRule,
    Permit, State, UsedElevation, Wanted,
};
use ringwall_engine::{PolicySearch, Record};
use ringwall_grant::{Ask, Request};

use crate::caller::Caller;
use crate::problem::{Code, Problem, with_causes};
use crate::service::Service;

/// Where a sandbox that was made by an elevation says by which.
pub(crate) const APPROVAL_NOTE: &str = "approval";

/// All of what a person would allow.
pub(crate) struct Deed {
    /// What the grant is asked.
    pub(crate) ask: Ask,
    /// Another name for it, where the ask is not what is done.
    pub(crate) name: Option<&'static str>,
    pub(crate) parameters: BTreeMap<String, String>,
    pub(crate) sandbox: String,
    pub(crate) incarnation: String,
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

/// The parameter that says which workspace's policy counts, too.
pub(crate) const WORKSPACE: &str = "workspace";

/// An elevation in use. Where it was for one time, it is over when this goes.
#[derive(Debug)]
pub(crate) struct Elevated<'a> {
    service: &'a Service,
    used: UsedElevation,
    kept: bool,
}

impl Elevated<'_> {
    pub(crate) fn name(&self) -> &str {
        &self.used.elevation
    }

    pub(crate) fn approval(&self) -> &ApprovalId {
        &self.used.id
    }

    /// Whoever goes ahead by it stops when it ends.
    pub(crate) fn left(&self) -> Duration {
        let end = UNIX_EPOCH + Duration::from_secs(self.used.until_unix);
        end.duration_since(SystemTime::now()).unwrap_or_default()
    }

    /// A sandbox that lives on has it, and ends it: see [`sandbox_ended`].
    pub(crate) fn keep(mut self) {
        self.kept = true;
    }
}

impl Drop for Elevated<'_> {
    fn drop(&mut self) {
        if !self.kept {
            // What cannot be written down now is when its time is up.
            let _ = over(self.service, &self.used.id);
        }
    }
}

/// Lifts a refusal by what a person has allowed, if `deed` is exactly that; else asks. `lifted` says what
/// would be done, if the elevation that it is given is enough for it.
pub(crate) fn lift<'a>(
    (service, caller): (&'a Service, &Caller),
    refused: Problem,
    search: &PolicySearch,
    lifted: impl FnOnce(&str) -> Result<Deed, Problem>,
) -> Result<Elevated<'a>, Problem> {
    let (Caller::Holder(holder), Some(elevation)) = (caller, refused.elevation()) else {
        return Err(refused);
    };
    let elevation = elevation.to_owned();
    let deed = lifted(&elevation)?;
    let Some((rule, approvers)) = terms(search, &elevation)? else { return Err(refused) };
    let standing = &holder.inspected.standing;
    let request = Request::new(&standing.task, &standing.tenant, deed.ask);
    let mut action = Action::of(&request, deed.parameters, deed.sandbox, deed.incarnation);
    if let Some(name) = deed.name {
        action.action = name.to_owned();
    }
    let wanted = Wanted { request: &request, action: &action, rule: &rule, approvers: &approvers };
    let (approvals, verifier) = (open(service)?, service.verifier(false)?);
    match approvals.use_or_ask(&verifier, &holder.token, wanted) {
        Ok(Permit::Used(used)) => {
            let event = used.event(&action);
            let elevated = Elevated { service, used, kept: false };
            service.engine.record(vec![event])?;
            Ok(elevated)
        }
        Ok(Permit::Asked(asked)) => {
            service.engine.record(vec![asked.event()])?;
            Err(required(service, &refused, &asked))
        }
        Err(error) => Err(not_asked(&refused, &error)),
    }
}

/// What the policy says of an elevation, if it has one of this name.
pub(crate) fn terms(
    search: &PolicySearch,
    elevation: &str,
) -> Result<Option<(ElevationRule, Vec<Approver>)>, Problem> {
    let Some(terms) = search.load()?.elevation(elevation) else { return Ok(None) };
    ElevationRule::from_terms(&terms.name, &terms.approvers, terms.max, terms.single_use)
        .map(Some)
        .map_err(|error| Problem::new(Code::DeniedByPolicy, with_causes(&error)))
}

/// The answer to whom a person could help.
fn required(service: &Service, refused: &Problem, asked: &AskedFor) -> Problem {
    let (id, url) = (asked.id.to_string(), service.pages.place.of(asked.id.as_str()));
    let how = match &url {
        Some(url) => format!("at {url}, or with `ringwall approvals show {id}`"),
        None => format!("with `ringwall approvals show {id}`"),
    };
    let detail = format!(
        "{}; {id} waits for a person, who decides {how}; once it is approved, ask for the same again",
        refused.detail()
    );
    Problem::new(Code::ApprovalRequired, detail).asked(&asked.elevation, id, url)
}

/// Nobody can be asked about it.
fn not_asked(refused: &Problem, error: &AskError) -> Problem {
    let why = format!("{}; no person can be asked: {}", refused.detail(), with_causes(error));
    match error {
        AskError::TaskFlood | AskError::Flood => Problem::new(Code::Busy, why),
        AskError::Action(ActionError::TooLong(..) | ActionError::TooManyParameters) => {
            Problem::new(Code::DeniedByPolicy, format!("{why}; ask for less at a time"))
        }
        AskError::Record(_) => Problem::new(Code::Internal, why),
        _ => Problem::new(Code::DeniedByPolicy, why),
    }
}

pub(crate) fn open(service: &Service) -> Result<Approvals, Problem> {
    Approvals::open(&service.home).map_err(|error| Problem::internal(&error))
}

/// Its one use is over, if it was for one.
fn over(service: &Service, id: &ApprovalId) -> Result<(), Problem> {
    let (approvals, now) = (open(service)?, SystemTime::now());
    let known = approvals.get(id, now).map_err(|error| Problem::internal(&error))?;
    if matches!(&known.state, State::Approved(decision) if decision.once) {
        approvals.end(id, "its one use is over", now).map_err(|error| Problem::internal(&error))?;
        record_returned(service, &approvals)?;
    }
    Ok(())
}

/// A sandbox that lived on has ended, and with it the one use of the elevation that it was made by.
pub(crate) fn sandbox_ended(service: &Service, record: &Record) {
    let inputs = record.decided.as_ref().map(|decided| &decided.inputs);
    let id = inputs.and_then(|inputs| inputs.get(APPROVAL_NOTE)?.parse::<ApprovalId>().ok());
    if let Some(id) = id {
        // Else it is over when its time is up.
        let _ = over(service, &id);
    }
}

/// Writes down that old rights are back, if an elevation has ended since somebody looked.
pub(crate) fn record_ended(service: &Service) -> Result<(), Problem> {
    if Approvals::is_due(&service.home, SystemTime::now()) {
        record_returned(service, &open(service)?)?;
    }
    Ok(())
}

fn record_returned(service: &Service, approvals: &Approvals) -> Result<(), Problem> {
    let wrong = |error| Problem::internal(&error);
    for returned in approvals.returned(SystemTime::now()).map_err(wrong)? {
        if let Err(error) = service.engine.record(vec![returned.event()]) {
            approvals.tell_again(&returned).map_err(wrong)?;
            return Err(error.into());
        }
    }
    Ok(())
}
