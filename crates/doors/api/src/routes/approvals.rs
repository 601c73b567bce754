//! Approvals: looked at by whom they concern, and decided by people with a key of their own. Whoever
//! carries a grant decides nothing.

use std::path::{Path as FilePath, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use axum::Json;
use axum::extract::{Path, State};
use ringwall_approval::{
    Answer, Approval, ApprovalId, DecideError, PersonError, RecordError, Verdict, default_place,
    load_key,
};
use ringwall_audit::{AdmissionDenied, Event, Id, Ids, Text};
use ringwall_desk::{Caller, WORKSPACE};
use ringwall_engine::PolicySearch;
use ringwall_safekeeping::FileError;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::ToSchema;

use crate::caller::Asker;
use crate::fields::{Body, absolute};
use crate::lanes::Whose;
use crate::problem::{Code, Problem, ProblemBody, with_causes};
use crate::service::Service;

/// A question to a person, and what came of it
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct ApprovalEntry {
    id: String,
    /// `pending`, `lapsed`, `denied`, `approved` or `over`
    state: String,
    elevation: String,
    /// The longest that it may last
    max_seconds: u64,
    single_use: bool,
    /// The holder of the grant that it was asked with
    asked_by: String,
    asked_unix: u64,
    expires_unix: u64,
    /// What exactly is asked for
    #[schema(value_type = Object)]
    action: Value,
    /// Of all of the action: what a decision is bound to
    action_sha256: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    decision: Option<DecisionEntry>,
    /// Where a person who is logged in decides, if the daemon has a page for people
    #[serde(skip_serializing_if = "Option::is_none")]
    url: Option<String>,
}

/// A person's answer
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct DecisionEntry {
    approved: bool,
    approver: String,
    reason: String,
    decided_unix: u64,
    until_unix: u64,
    once: bool,
}

impl ApprovalEntry {
    fn new(service: &Service, approval: &Approval) -> ApprovalEntry {
        let asked = &approval.asked;
        ApprovalEntry {
            id: asked.id.to_string(),
            state: approval.state.word().to_owned(),
            elevation: asked.elevation.clone(),
            max_seconds: asked.max_seconds,
            single_use: asked.single_use,
            asked_by: asked.requester.holder.clone(),
            asked_unix: asked.asked_unix,
            expires_unix: asked.expires_unix,
            action: serde_json::to_value(&asked.action).unwrap_or(Value::Null),
            action_sha256: asked.action.hash().to_string(),
            decision: approval.state.decision().map(|decision| DecisionEntry {
                approved: decision.approved,
                approver: decision.approver.clone(),
                reason: decision.reason.clone(),
                decided_unix: decision.decided_unix,
                until_unix: decision.until_unix,
                once: decision.once,
            }),
            url: service.pages.place.of(asked.id.as_str()),
        }
    }
}

fn is_seen(caller: &Caller, approval: &Approval) -> bool {
    let action = &approval.asked.action;
    caller.sees(&action.tenant, &action.task)
}

/// One of them, in the same words whether it is another's or never was.
pub(crate) fn found(service: &Service, id: &str) -> Result<Approval, Problem> {
    let unknown = || Problem::not_found("approval", id);
    let id: ApprovalId = id.parse().map_err(|_| unknown())?;
    match service.books.approvals()?.get(&id, SystemTime::now()) {
        Ok(approval) => Ok(approval),
        Err(RecordError::File(FileError::Missing(_))) => Err(unknown()),
        Err(error) => Err(Problem::internal(&error)),
    }
}

/// List approvals
#[utoipa::path(get, path = "/v1/approvals", tag = "approvals", responses(
    (status = 200, body = Vec<ApprovalEntry>),
    (status = "default", body = ProblemBody, content_type = "application/problem+json"),
))]
pub(crate) async fn list(
    State(service): State<Arc<Service>>,
    Asker(caller): Asker,
) -> Result<Json<Vec<ApprovalEntry>>, Problem> {
    service
        .work(Whose::of(&caller), move |service| {
            let listed = service.books.approvals()?.list(SystemTime::now());
            let all = listed.map_err(|error| Problem::internal(&error))?.approvals;
            let seen = all.iter().filter(|approval| is_seen(&caller, approval));
            Ok(Json(seen.map(|approval| ApprovalEntry::new(service, approval)).collect()))
        })
        .await
}

/// Look at an approval
#[utoipa::path(get, path = "/v1/approvals/{id}", tag = "approvals", params(("id" = String, Path)), responses(
    (status = 200, body = ApprovalEntry),
    (status = "default", body = ProblemBody, content_type = "application/problem+json"),
))]
pub(crate) async fn get(
    State(service): State<Arc<Service>>,
    Asker(caller): Asker,
    Path(id): Path<String>,
) -> Result<Json<ApprovalEntry>, Problem> {
    service
        .work(Whose::of(&caller), move |service| match found(service, &id) {
            Ok(approval) if is_seen(&caller, &approval) => {
                Ok(Json(ApprovalEntry::new(service, &approval)))
            }
            // What is broken is the owner's to know of.
            Err(problem) if caller.holder().is_none() => Err(problem),
            _ => Err(Problem::not_found("approval", &id)),
        })
        .await
}

/// A person's yes, and why
#[derive(Debug, Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct ApproveFields {
    /// A sentence or two, for the record
    reason: String,
    /// As long as the policy allows if nothing is said
    seconds: Option<u64>,
    /// The file of the approver's key, absolute; `ringwall/approver.key` in the owner's configuration if
    /// nothing is said
    key: Option<String>,
    /// The `action_sha256` that was looked at: the decision is refused if another is asked for
    action_sha256: Option<String>,
}

/// A person's no, and why
#[derive(Debug, Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct DenyFields {
    /// A sentence or two, for the record
    reason: String,
    /// As for a yes
    key: Option<String>,
    action_sha256: Option<String>,
}

/// Allow exactly what is asked for; for an approver, over the owner's socket, never with a grant
#[utoipa::path(post, path = "/v1/approvals/{id}/approve", tag = "approvals", request_body = ApproveFields,
    params(("id" = String, Path)), responses(
    (status = 200, body = ApprovalEntry),
    (status = "default", body = ProblemBody, content_type = "application/problem+json"),
))]
pub(crate) async fn approve(
    State(service): State<Arc<Service>>,
    Asker(caller): Asker,
    Path(id): Path<String>,
    Body(fields, _held): Body<ApproveFields>,
) -> Result<Json<ApprovalEntry>, Problem> {
    let ApproveFields { reason, seconds, key, action_sha256 } = fields;
    let verdict = Verdict::Approve { lasting: seconds.map(Duration::from_secs) };
    answered(service, caller, id, (verdict, reason, key, action_sha256)).await
}

/// Refuse what is asked for; for an approver, over the owner's socket, never with a grant
#[utoipa::path(post, path = "/v1/approvals/{id}/deny", tag = "approvals", request_body = DenyFields,
    params(("id" = String, Path)), responses(
    (status = 200, body = ApprovalEntry),
    (status = "default", body = ProblemBody, content_type = "application/problem+json"),
))]
pub(crate) async fn deny(
    State(service): State<Arc<Service>>,
    Asker(caller): Asker,
    Path(id): Path<String>,
    Body(fields, _held): Body<DenyFields>,
) -> Result<Json<ApprovalEntry>, Problem> {
    let DenyFields { reason, key, action_sha256 } = fields;
    answered(service, caller, id, (Verdict::Deny, reason, key, action_sha256)).await
}

async fn answered(
    service: Arc<Service>,
    caller: Caller,
    id: String,
    (verdict, reason, key, hash): (Verdict, String, Option<String>, Option<String>),
) -> Result<Json<ApprovalEntry>, Problem> {
    service
        .work(Whose::of(&caller), move |service| {
            must_be_person(service, &caller, &id)?;
            let key = key_place(key.as_deref())?;
            let approval = found(service, &id)?;
            let said = Said { verdict, reason: &reason, key: &key, hash: hash.as_deref() };
            decide(service, &approval, said)?;
            Ok(Json(ApprovalEntry::new(service, &found(service, &id)?)))
        })
        .await
}

/// Turns away whoever carries a grant, and writes the attempt down.
pub(crate) fn must_be_person(service: &Service, caller: &Caller, id: &str) -> Result<(), Problem> {
    let Caller::Holder(holder) = caller else { return Ok(()) };
    let why = "approvals are decided by people with a key of their own: over the unix socket of the daemon without a token, with `ringwall approvals`, or on its page";
    let (standing, grant) = (holder.standing(), holder.id());
    let denied = AdmissionDenied {
        action: Text::new("decide on an approval"),
        resource: Text::new(id),
        rule: Text::new("whoever carries a grant cannot decide"),
        reason: Text::new("the call carried a grant"),
        fix: None,
    };
    let ids = Ids::default().task(Id::new(&standing.task)).grant(Id::new(grant));
    service.engine.record(vec![(ids, Event::AdmissionDenied(denied))])?;
    Err(Problem::new(Code::ApproverOnly, why))
}

/// The file of the person's key: the one that was named, or the usual one of the daemon's owner.
pub(crate) fn key_place(named: Option<&str>) -> Result<PathBuf, Problem> {
    let variable = |name| std::env::var_os(name).map(PathBuf::from);
    match named {
        Some(path) => absolute(path),
        None => Ok(default_place(variable("XDG_CONFIG_HOME"), variable("HOME"))?),
    }
}

/// What a person says to a question.
pub(crate) struct Said<'a> {
    pub(crate) verdict: Verdict,
    pub(crate) reason: &'a str,
    /// The file of the person's key, which is read for this alone.
    pub(crate) key: &'a FilePath,
    /// Of what the person was shown.
    pub(crate) hash: Option<&'a str>,
}

/// Decides, as `ringwall approvals` does: signed with the person's own key, under the policy that counts
/// where the action is.
pub(crate) fn decide(
    service: &Service,
    approval: &Approval,
    said: Said<'_>,
) -> Result<(), Problem> {
    let asked = &approval.asked;
    if said.hash.is_some_and(|hash| hash != asked.action.hash().to_string()) {
        let why = "what was shown is not what is asked for; look at it again";
        return Err(Problem::new(Code::BadRequest, why));
    }
    let key = load_key(said.key, &service.home)?;
    let workspace = asked.action.parameters.get(WORKSPACE).and_then(|text| workspace(text));
    let search = PolicySearch::from_environment(workspace);
    let Some((rule, approvers)) = ringwall_desk::terms(&search.load()?, &asked.elevation)? else {
        let why = format!(
            "the policy in force offers no elevation {:?}, so nobody may decide on it; write it into ringwall.toml",
            asked.elevation
        );
        return Err(Problem::new(Code::DeniedByPolicy, why));
    };
    let answer = Answer {
        verdict: said.verdict,
        reason: said.reason,
        key: &key,
        approvers: &approvers,
        rule: &rule,
        presented: &[],
    };
    let decided = service.books.approvals()?.decide(&asked.id, &answer, SystemTime::now())?;
    service.engine.record(vec![decided.event()])?;
    Ok(())
}

/// The directory that an action is about, as its parameters name it.
fn workspace(text: &str) -> Option<PathBuf> {
    let value: Value = serde_json::from_str(text).ok()?;
    value.get("path").and_then(Value::as_str).map(PathBuf::from)
}

impl From<PersonError> for Problem {
    fn from(error: PersonError) -> Problem {
        Problem::new(Code::Refused, with_causes(&error))
    }
}

impl From<DecideError> for Problem {
    fn from(error: DecideError) -> Problem {
        let code = match &error {
            DecideError::AlreadyDecided(..) | DecideError::Lapsed(_) => Code::AlreadyDecided,
            DecideError::WrongKey(_)
            | DecideError::NotAnApprover { .. }
            | DecideError::SelfApproval(_)
            | DecideError::WithGrant
            | DecideError::OtherRule { .. } => Code::NotAnApprover,
            DecideError::TooLong { .. } | DecideError::TooShort | DecideError::Reason => {
                Code::BadRequest
            }
            DecideError::Sign(_) | DecideError::Record(_) => Code::Internal,
        };
        Problem::new(code, with_causes(&error))
    }
}
