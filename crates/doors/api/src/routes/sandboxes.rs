//! Sandboxes: made, looked at, ended.

use std::sync::Arc;
use std::time::Duration;

use axum::Json;
use axum::extract::{self, State};
use axum::http::StatusCode;
use axum::response::Response;
use ringwall_desk::{Action, Caller, Input, Keeper, Placed, Placing};
use ringwall_engine::RecordState;
use ringwall_spec::{EgressSpec, Limits};
use ringwall_store::{SandboxState, sandbox_reservation};
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use super::new_id;
use crate::caller::{Asker, own_task};
use crate::fields::{
    Body, CommandFields, LIFETIME, Page, Params, Sandbox, SandboxFields, next_cursor,
};
use crate::lanes::Whose;
use crate::once::{Key, once};
use crate::problem::{Code, Problem, ProblemBody};
use crate::service::Service;
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
    Asker(caller): Asker,
    key: Key,
    Body(fields, held): Body<SandboxFields>,
) -> Result<Response, Problem> {
    let work = {
        let (service, caller, fields) = (Arc::clone(&service), caller.clone(), fields.clone());
        async move {
            let _held = held;
            create_now(&service, &caller, &fields).await
        }
    };
    let request = ("create", &fields);
    once(&service, &caller, key, request, (StatusCode::CREATED, work)).await
}

async fn create_now(
    service: &Arc<Service>,
    caller: &Caller,
    fields: &SandboxFields,
) -> Result<Sandbox, Problem> {
    let slot = service.admission.enter(caller.tenant(), fields.memory()).await?;
    let (caller, fields) = (caller.clone(), fields.clone());
    service
        .job(slot, move |service, slot| {
            let default = Limits { timeout: LIFETIME, ..Limits::default() };
            let account = sandbox_reservation(&new_id());
            let placed = place((service, &caller), &fields, (default, &account))?;
            let warning = placed.permit.spec().egress.as_ref().and_then(EgressSpec::warning);
            let warning = warning.map(str::to_owned);
            let command = fields.command.as_ref().map(CommandFields::command).transpose()?;
            let _making = service.making();
            let name = fields.name.as_deref();
            if let Some(name) = name
                && service.store.sandbox(caller.tenant(), name)?.is_some()
            {
                placed.reservation.give_back()?;
                let why = format!("the name {name} is taken; choose another");
                return Err(Problem::new(Code::NameTaken, why));
            }
            let warm = match &command {
                None => service.warm.take(&placed.permit),
                Some(_) => None,
            };
            let made = match warm {
                Some((record, attached)) => Ok((record, Some(attached))),
                None => trace::part("start", |span| {
                    let record = service.engine.create(&placed.permit, command.as_ref())?;
                    span.note("ringwall.sandbox", record.id.as_str());
                    Ok::<_, Problem>((record, None))
                }),
            };
            let (record, attached) = match made {
                Ok(made) => made,
                Err(problem) => {
                    placed.reservation.give_back()?;
                    return Err(problem);
                }
            };
            placed.leave_to(Keeper::Daemon, &record.id)?;
            if let Err(problem) = service.remember(&caller, &record, name) {
                // Nobody would know of it.
                let _ = service.engine.stop(&record, Duration::ZERO);
                service.books.sandbox_ended(Keeper::Daemon, record.id.as_str(), None)?;
                return Err(problem);
            }
            service.hold_memory(record.id.as_str(), slot);
            if let Some(attached) = attached {
                // What the keeper has written down since is the record that counts.
                let record = service.engine.find(record.id.as_str())?;
                service.attached(&caller, record, attached);
            }
            let mut made: Sandbox = service.row(&caller, record.id.as_str())?.into();
            made.warning = warning;
            Ok(made)
        })
        .await
}

/// Has grant, policy, people and budget decide. `account` is a name of its own for the ledger.
pub(crate) fn place(
    (service, caller): (&Service, &Caller),
    fields: &SandboxFields,
    (default, account): (Limits, &str),
) -> Result<Placed, Problem> {
    trace::part("placement", |span| {
        let desk = service.desk();
        // Before any of them is looked at: whether a path exists is not for everybody to know.
        for (path, writes) in fields.paths()? {
            desk.may_use_path(caller, &path, writes)?;
        }
        let (asked, search) = fields.asked(caller, default)?;
        let command = fields.command.as_ref().map(CommandFields::command).transpose()?;
        let whole = fields.command.as_ref().and_then(|command| command.stdin.as_deref());
        let input = command.as_ref().map_or(Input::Nothing, |it| Input::of(it, whole));
        let placing = Placing {
            asked,
            search: &search,
            limits: &|default| fields.limits.over(default),
            command: command.as_ref(),
            input,
            name: fields.name.as_deref(),
            account,
        };
        let placed = desk.place(caller, placing).map_err(|refused| service.told(refused))?;
        span.note("ringwall.wall", placed.permit.spec().wall.to_string());
        span.note("ringwall.kind", placed.permit.kind());
        Ok(placed)
    })
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
    Asker(caller): Asker,
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
        .work(Whose::of(&caller), move |service| {
            service.look_round()?;
            Ok(service.store.sandboxes(own_task(&caller), state, before, most)?)
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
    Asker(caller): Asker,
    extract::Path(id): extract::Path<String>,
) -> Result<Json<Sandbox>, Problem> {
    let row = service.work(Whose::of(&caller), move |service| service.row(&caller, &id)).await?;
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
    Asker(caller): Asker,
    extract::Path(id): extract::Path<String>,
    Params(how): Params<How>,
) -> Result<StatusCode, Problem> {
    let grace = Duration::from_millis(how.grace_ms.min(60_000));
    service
        .work(Whose::of(&caller), move |service| {
            if service.runs.kill(&caller, &id) {
                return Ok(StatusCode::NO_CONTENT);
            }
            let row = service.row(&caller, &id)?;
            let engine = &service.engine;
            if let Ok(record) = engine.find(&row.id) {
                service.enter(&caller, &record, Action::Stop)?;
                if record.state == RecordState::Running {
                    engine.stop(&record, grace)?;
                }
                let left = engine.find(&row.id).ok();
                let outcome = left.as_ref().and_then(|left| left.outcome.clone());
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
