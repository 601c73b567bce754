//! Sandboxes: made, looked at, ended.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use axum::Json;
use axum::extract::{self, State};
use axum::http::StatusCode;
use axum::response::Response;
use ringwall_approval::sandbox_parameters;
use ringwall_engine::{Asked, RecordState, narrow_writing};
use ringwall_grant::Ask;
use ringwall_policy::AdmittedSpec;
use ringwall_spec::{EgressSpec, Limits, WorkspaceMode};
use ringwall_store::SandboxState;
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use super::new_id;
use crate::caller::Caller;
use crate::elevating::{self, APPROVAL_NOTE, Deed, Elevated};
use crate::fields::{
    Body, CommandFields, LIFETIME, Page, Params, Sandbox, SandboxFields, next_cursor,
};
use crate::once::{Key, once};
use crate::problem::{Code, Problem, ProblemBody};
use crate::service::Service;
use crate::spending::{self, Sending};
use crate::trace;

/// Make a sandbox that lives until it is deleted or its time is over
#[utoipa::path(post, path = "/v1/sandboxes", tag = "sandboxes", request_body = SandboxFields,
    params(("Idempotency-Key" = Option<String>, Header, description = "The same key does the same thing once")),
    responses(
        (status = 201, body = Sandbox),
        (status = "default", body = ProblemBody, content_type = "application/problem+json"),
    ))]
pub(crate) async fn create(
    State(service): State<Arc<Service>>,
    caller: Caller,
    key: Key,
    Body(fields): Body<SandboxFields>,
) -> Result<Response, Problem> {
    let work = {
        let (service, caller, fields) = (Arc::clone(&service), caller.clone(), fields.clone());
        async move { create_now(&service, &caller, &fields).await }
    };
    let request = ("create", &fields);
    once(&service, &caller, key, request, (StatusCode::CREATED, work)).await
}

async fn create_now(
    service: &Arc<Service>,
    caller: &Caller,
    fields: &SandboxFields,
) -> Result<Sandbox, Problem> {
    let permit = service.admission.enter(caller.tenant(), fields.memory()).await?;
    let (caller, fields) = (caller.clone(), fields.clone());
    service
        .work(move |service| {
            let default = Limits { timeout: LIFETIME, ..Limits::default() };
            let (admitted, elevated) = admit((service, &caller), &fields, (default, None))?;
            let command = fields.command.as_ref().map(CommandFields::command).transpose()?;
            let _making = service.making();
            let name = fields.name.as_deref();
            if let Some(name) = name
                && service.store.sandbox(Some(caller.tenant()), name)?.is_some()
            {
                let why = format!("the name {name} is taken; choose another");
                return Err(Problem::new(Code::NameTaken, why));
            }
            let warm = match &command {
                None => service.warm.take(&admitted),
                Some(_) => None,
            };
            let sending = Sending::begin(service, &caller, &new_id(), &admitted)?;
            let made = match warm {
                Some((record, attached)) => Ok((record, Some(attached))),
                None => trace::part("start", |span| {
                    let record = service.engine.create(&admitted, command.as_ref())?;
                    span.note("ringwall.sandbox", record.id.as_str());
                    Ok((record, None))
                }),
            };
            let (record, attached) = match (made, sending) {
                (Ok(made), None) => made,
                (Ok(made), Some(sending)) => {
                    sending.keep_for(made.0.id.as_str())?;
                    made
                }
                (Err(error), sending) => {
                    sending.map(|sending| sending.end(Some(0))).transpose()?;
                    return Err(error);
                }
            };
            if let Err(problem) = service.remember(&caller, &record, name) {
                // Nobody would know of it.
                let _ = service.engine.stop(&record, Duration::ZERO);
                return Err(problem);
            }
            if let Some(elevated) = elevated {
                elevated.keep();
            }
            service.hold_memory(record.id.as_str(), permit);
            if let Some(attached) = attached {
                // What the keeper has written down since is the record that counts.
                let record = service.engine.find(record.id.as_str())?;
                service.attached(caller.tenant(), record, attached);
            }
            let mut made: Sandbox = service.row(&caller, record.id.as_str())?.into();
            let warning = admitted.spec().egress.as_ref().and_then(EgressSpec::warning);
            made.warning = warning.map(str::to_owned);
            Ok(made)
        })
        .await
}

/// What was admitted, and the elevation that it was admitted by, if only one allowed it.
pub(crate) type Admitted<'a> = (AdmittedSpec, Option<Elevated<'a>>);

/// Has policy and grant decide. `at_most` is what the budget leaves of the time.
pub(crate) fn admit<'a>(
    asking: (&'a Service, &Caller),
    fields: &SandboxFields,
    (default, at_most): (Limits, Option<Duration>),
) -> Result<Admitted<'a>, Problem> {
    trace::part("placement", |span| {
        let (admitted, elevated) = place(asking, fields, (default, at_most))?;
        span.note("ringwall.wall", admitted.spec().wall.to_string());
        span.note("ringwall.kind", admitted.kind());
        Ok((admitted, elevated))
    })
}

fn place<'a>(
    (service, caller): (&'a Service, &Caller),
    fields: &SandboxFields,
    (default, at_most): (Limits, Option<Duration>),
) -> Result<Admitted<'a>, Problem> {
    let (mut asked, search) = fields.asked(caller, default)?;
    let limits = |default| fields.limits.over(default);
    let Caller::Holder(holder) = caller else {
        return Ok((service.engine.admit(asked, &limits, &search)?, None));
    };
    narrow_writing(&mut asked.spec, holder.inspected.writable());
    let life = holder.inspected.standing.life(SystemTime::now());
    let most = at_most.map_or(life, |most| most.min(life));
    let left = match &asked.network_at_most {
        Some(_) => spending::network_left(service, holder)?,
        None => None,
    };
    // What a grant allows is on top of a policy, never instead of one.
    let policy = search.load()?;
    let by_policy = |mut asked: Asked, most: Duration| {
        if let Some(network) = &mut asked.network_at_most {
            network.sent_bytes = left;
        }
        let within = |default| capped(limits(default), most);
        ringwall_engine::deciding(|| service.engine.admit_by(&policy, asked, &within))
    };
    let (admitted, elevated) = match by_policy(asked.clone(), most) {
        Ok(admitted) => (admitted, None),
        Err(refused) => {
            let elevated = elevating::lift((service, caller), refused.into(), &search, |by| {
                asked.task.elevated.insert(by.to_owned());
                // What is left of a budget is no part of what people are asked: it changes.
                let lifted = ringwall_engine::deciding(|| {
                    service.engine.admit_by(&policy, asked.clone(), &limits)
                })?;
                deed(fields, &lifted)
            })?;
            asked.notes.insert(APPROVAL_NOTE.to_owned(), elevated.approval().to_string());
            (by_policy(asked, most.min(elevated.left()))?, Some(elevated))
        }
    };
    let spec = admitted.spec();
    spending::refuse_uncounted(service, holder, spec)?;
    if elevated.is_none() {
        caller.may(service, placing(&admitted))?;
    }
    if let Some(workspace) = &spec.workspace {
        caller.may(service, Ask::Read { path: canonical(&workspace.path)? })?;
        if workspace.mode == WorkspaceMode::ReadWrite {
            caller.may(service, Ask::Write { path: canonical(&workspace.path)? })?;
        }
    }
    for path in &spec.read_only_paths {
        caller.may(service, Ask::Read { path: canonical(path)? })?;
    }
    Ok((admitted, elevated))
}

fn capped(limits: Limits, most: Duration) -> Limits {
    Limits { timeout: limits.timeout.min(most), ..limits }
}

fn placing(admitted: &AdmittedSpec) -> Ask {
    Ask::Place { kind: admitted.kind().to_owned(), wall: admitted.spec().wall.to_string() }
}

/// All of what a person would allow by letting this be admitted.
fn deed(fields: &SandboxFields, lifted: &AdmittedSpec) -> Result<Deed, Problem> {
    let command = fields.command.as_ref().map(CommandFields::command).transpose()?;
    let deed = Deed {
        ask: placing(lifted),
        name: None,
        parameters: sandbox_parameters(lifted.spec(), command.as_ref()),
        sandbox: fields.name.clone().unwrap_or_else(|| "-".to_owned()),
        incarnation: "new".to_owned(),
    };
    let input = fields.command.as_ref().and_then(|command| command.stdin.clone());
    Ok(match input {
        Some(input) => deed.with("input", input),
        None => deed,
    })
}

/// The one spelling of a path that grants speak of.
pub(crate) fn canonical(path: &Path) -> Result<String, Problem> {
    let real = std::fs::canonicalize(path).ok();
    let real = real.and_then(|path| path.to_str().map(str::to_owned));
    // Whether it exists is not for everybody to know.
    real.ok_or_else(|| Problem::new(Code::NotGranted, format!("{path:?} cannot be used")))
}

/// Which sandboxes
#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub(crate) struct Which {
    /// Only those that are `running` or have `ended`
    state: Option<String>,
}

/// A page of sandboxes, the newest first
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct SandboxPage {
    items: Vec<Sandbox>,
    /// The cursor of the next page, if there is one
    #[serde(skip_serializing_if = "Option::is_none")]
    next: Option<u64>,
}

/// List sandboxes
#[utoipa::path(get, path = "/v1/sandboxes", tag = "sandboxes", params(Page, Which), responses(
    (status = 200, body = SandboxPage),
    (status = "default", body = ProblemBody, content_type = "application/problem+json"),
))]
pub(crate) async fn list(
    State(service): State<Arc<Service>>,
    caller: Caller,
    Params(page): Params<Page>,
    Params(which): Params<Which>,
) -> Result<Json<SandboxPage>, Problem> {
    let (before, most) = page.bounds()?;
    let state = match which.state.as_deref() {
        None => None,
        Some("running") => Some(SandboxState::Running),
        Some("ended") => Some(SandboxState::Ended),
        Some(_) => return Err(Problem::new(Code::BadRequest, "state is `running` or `ended`")),
    };
    let rows = service
        .work(move |service| {
            service.look_round()?;
            Ok(service.store.sandboxes(caller.sees(), state, before, most)?)
        })
        .await?;
    let next = next_cursor(&rows, most, |row| row.number);
    Ok(Json(SandboxPage { next, items: rows.into_iter().map(Sandbox::from).collect() }))
}

/// Look at a sandbox, by id or by its tenant's name for it
#[utoipa::path(get, path = "/v1/sandboxes/{id}", tag = "sandboxes",
    params(("id" = String, Path)), responses(
    (status = 200, body = Sandbox),
    (status = "default", body = ProblemBody, content_type = "application/problem+json"),
))]
pub(crate) async fn get(
    State(service): State<Arc<Service>>,
    caller: Caller,
    extract::Path(id): extract::Path<String>,
) -> Result<Json<Sandbox>, Problem> {
    let row = service.work(move |service| service.row(&caller, &id)).await?;
    Ok(Json(row.into()))
}

/// How to end
#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub(crate) struct How {
    /// How long its processes get to end by themselves
    #[serde(default = "grace")]
    #[param(default = 2000, maximum = 60000)]
    grace_ms: u64,
    /// Keep its changes and its log
    #[serde(default)]
    keep: bool,
}

fn grace() -> u64 {
    2000
}

/// End a sandbox, and remove what it left unless that is to be kept
#[utoipa::path(delete, path = "/v1/sandboxes/{id}", tag = "sandboxes",
    params(("id" = String, Path), How), responses(
    (status = 204, description = "It has ended"),
    (status = "default", body = ProblemBody, content_type = "application/problem+json"),
))]
pub(crate) async fn delete(
    State(service): State<Arc<Service>>,
    caller: Caller,
    extract::Path(id): extract::Path<String>,
    Params(how): Params<How>,
) -> Result<StatusCode, Problem> {
    let grace = Duration::from_millis(how.grace_ms.min(60_000));
    service
        .work(move |service| {
            if service.runs.kill(caller.sees(), &id) {
                return Ok(StatusCode::NO_CONTENT);
            }
            let row = service.row(&caller, &id)?;
            let engine = &service.engine;
            if let Ok(record) = engine.find(&row.id) {
                if record.state == RecordState::Running {
                    engine.stop(&record, grace)?;
                }
                let left = engine.find(&row.id).ok();
                let outcome = left.as_ref().and_then(|left| left.outcome.clone());
                elevating::sandbox_ended(service, &record);
                if let Some(left) = left.filter(|_| !how.keep) {
                    engine.remove(&left)?;
                }
                service.ended(&row.id, outcome.as_ref())?;
            } else {
                service.ended(&row.id, None)?;
            }
            Ok(StatusCode::NO_CONTENT)
        })
        .await
}
