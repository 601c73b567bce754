//! Calls: begun and followed, looked at, killed.

use std::convert::Infallible;
use std::sync::Arc;

use axum::Json;
use axum::extract::{FromRequest, Path, Request, State};
use axum::http::{HeaderMap, StatusCode};
use axum::response::Response;
use axum::response::sse::{Event, KeepAlive, Sse};
use base64::Engine as _;
use futures_util::Stream;
use ringwall_desk::Caller;
use serde::{Deserialize, Serialize};
use serde_json::json;
use tokio::sync::{oneshot, watch};
use utoipa::{IntoParams, ToSchema};

use super::{new_id, runs};
use crate::caller::{Asker, own_task};
use crate::fields::{Body, Call, CommandFields, LargeBody, Page, Params, next_cursor};
use crate::lanes::Whose;
use crate::live::{Happened, IntoLog, LiveCall};
use crate::once::{Key, once};
use crate::problem::{Code, Problem, ProblemBody};
use crate::service::Service;
use crate::trace::{self, Context};
use crate::until::Until;

/// Begin a command in a sandbox, to be followed under `/v1/calls/{id}/events`
#[utoipa::path(post, path = "/v1/sandboxes/{id}/calls", tag = "calls", request_body = CommandFields,
    params(
        ("id" = String, Path),
        ("Idempotency-Key" = Option<String>, Header, description = "The same key does the same thing once"),
    ),
    responses(
        (status = 202, body = Call),
        (status = "default", body = ProblemBody, content_type = "application/problem+json"),
    ))]
pub(crate) async fn start(
    State(service): State<Arc<Service>>,
    Asker(caller): Asker,
    Path(id): Path<String>,
    key: Key,
    request: Request,
) -> Result<Response, Problem> {
    runs::may_exec(&service, (&caller, &id), request.headers()).await?;
    let Body(fields, held) = LargeBody::<CommandFields>::from_request(request, &service).await?;
    let work = {
        let (service, caller) = (Arc::clone(&service), caller.clone());
        let (id, fields) = (id.clone(), fields.clone());
        async move {
            let _held = held;
            start_now(&service, &caller, &id, &fields).await
        }
    };
    let request = ("call", &(&id, &fields));
    once(&service, &caller, key, request, (StatusCode::ACCEPTED, work)).await
}

async fn start_now(
    service: &Arc<Service>,
    caller: &Caller,
    id: &str,
    fields: &CommandFields,
) -> Result<Call, Problem> {
    let permit = service.admission.enter(caller.tenant(), 0).await?;
    let (asking, id, fields) = (caller.clone(), id.to_owned(), fields.clone());
    let call = new_id();
    let name = call.clone();
    let (begun, waiting) = oneshot::channel();
    let shared = Arc::clone(service);
    let context = trace::current();
    let work = move || {
        let _permit = permit;
        let live = shared.calls.begin(&name, (&asking, &id));
        let mut begun = Some(begun);
        let started = |job: &ringwall_engine::Job| {
            live.started(job.input());
            let _ = begun.take().map(|begun| begun.send(()));
        };
        let mut output = IntoLog(&live);
        let ended = runs::exec_in(&shared, &asking, (&id, &name), &fields, started, &mut output);
        let result = match &ended {
            Ok(ended) => ended.summary(),
            Err(problem) => json!({ "failed": problem.body() }).to_string(),
        };
        live.ended(result);
        shared.calls.over(&name);
        ended
    };
    let running = tokio::task::spawn_blocking(move || Context::within(context, work));
    if waiting.await.is_err() {
        // It ended before it began: its error is the answer.
        match running.await {
            Ok(Err(problem)) => return Err(problem),
            _ => return Err(Problem::new(Code::Ending, "the call was broken off")),
        }
    }
    let caller = caller.clone();
    service
        .work(Whose::of(&caller), move |service| {
            let row = service.store.call(own_task(&caller), &call)?;
            row.map(Call::from).ok_or_else(|| Problem::not_found("call", &call))
        })
        .await
}

/// Which calls
#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub(crate) struct Which {
    /// Only those in this sandbox
    sandbox: Option<String>,
}

/// A page of calls, the newest first
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct CallPage {
    items: Vec<Call>,
    /// The cursor of the next page, if there is one
    #[serde(skip_serializing_if = "Option::is_none")]
    next: Option<u64>,
}

/// List calls
#[utoipa::path(get, path = "/v1/calls", tag = "calls", params(Page, Which), responses(
    (status = 200, body = CallPage),
    (status = "default", body = ProblemBody, content_type = "application/problem+json"),
))]
pub(crate) async fn list(
    State(service): State<Arc<Service>>,
    Asker(caller): Asker,
    Params(page): Params<Page>,
    Params(which): Params<Which>,
) -> Result<Json<CallPage>, Problem> {
    let (before, most) = page.bounds()?;
    let rows = service
        .work(Whose::of(&caller), move |service| {
            let sandbox = which.sandbox.as_deref();
            Ok(service.store.calls(own_task(&caller), sandbox, before, most)?)
        })
        .await?;
    let next = next_cursor(&rows, most, |row| row.number);
    Ok(Json(CallPage { next, items: rows.into_iter().map(Call::from).collect() }))
}

/// Look at a call
#[utoipa::path(get, path = "/v1/calls/{id}", tag = "calls", params(("id" = String, Path)), responses(
    (status = 200, body = Call),
    (status = "default", body = ProblemBody, content_type = "application/problem+json"),
))]
pub(crate) async fn get(
    State(service): State<Arc<Service>>,
    Asker(caller): Asker,
    Path(id): Path<String>,
) -> Result<Json<Call>, Problem> {
    service
        .work(Whose::of(&caller), move |service| {
            let row = service.store.call(own_task(&caller), &id)?;
            row.map(|row| Json(row.into())).ok_or_else(|| Problem::not_found("call", &id))
        })
        .await
}

/// Kill a call that is under way
#[utoipa::path(delete, path = "/v1/calls/{id}", tag = "calls", params(("id" = String, Path)), responses(
    (status = 204, description = "It was killed, or was over already"),
    (status = "default", body = ProblemBody, content_type = "application/problem+json"),
))]
pub(crate) async fn kill(
    State(service): State<Arc<Service>>,
    Asker(caller): Asker,
    Path(id): Path<String>,
) -> Result<StatusCode, Problem> {
    service
        .work(Whose::of(&caller), move |service| match service.calls.get(&caller, &id) {
            Some(call) => {
                service.may_follow(&caller, &call)?;
                call.kill();
                Ok(StatusCode::NO_CONTENT)
            }
            None => match service.store.call(own_task(&caller), &id)? {
                Some(_) => Ok(StatusCode::NO_CONTENT),
                None => Err(Problem::not_found("call", &id)),
            },
        })
        .await
}

/// Follow a call: `stdout`, `stderr` (JSON with `base64`), `missed` and, last, `ended` (its result).
/// `Last-Event-ID` goes on behind that event
#[utoipa::path(get, path = "/v1/calls/{id}/events", tag = "calls",
    params(
        ("id" = String, Path),
        ("Last-Event-ID" = Option<u64>, Header, description = "The number of the last event seen"),
    ),
    responses(
        (status = 200, body = String, content_type = "text/event-stream"),
        (status = "default", body = ProblemBody, content_type = "application/problem+json"),
    ))]
pub(crate) async fn events(
    State(service): State<Arc<Service>>,
    Asker(caller): Asker,
    Path(id): Path<String>,
    headers: HeaderMap,
) -> Result<Sse<impl Stream<Item = Result<Event, Infallible>>>, Problem> {
    let seen = last_seen(&headers)?.unwrap_or(0);
    let call = service.calls.get(&caller, &id).ok_or_else(|| {
        let why = format!("there is no call {id:?} that can be followed; a call can be until two minutes after its end");
        Problem::new(Code::NotFound, why)
    })?;
    let (asking, followed) = (caller.clone(), Arc::clone(&call));
    let may = move |service: &Arc<Service>| service.may_follow(&asking, &followed);
    service.work(Whose::of(&caller), may).await?;
    let until = Until::of(&service.books, &caller, format!("following the call {id}"));
    Ok(Sse::new(follow(call, seen, until)).keep_alive(KeepAlive::default()))
}

/// Where a follower goes on.
pub(crate) fn last_seen(headers: &HeaderMap) -> Result<Option<u64>, Problem> {
    let Some(given) = headers.get("last-event-id") else { return Ok(None) };
    let number = given.to_str().ok().and_then(|text| text.parse().ok());
    let wrong = || Problem::new(Code::BadRequest, "Last-Event-ID must be the number of an event");
    number.map(Some).ok_or_else(wrong)
}

/// Until the call has ended, or the follower's grant has.
fn follow(
    call: Arc<LiveCall>,
    seen: u64,
    until: Until,
) -> impl Stream<Item = Result<Event, Infallible>> {
    struct At {
        until: Until,
        call: Arc<LiveCall>,
        changed: watch::Receiver<u64>,
        seen: u64,
        ready: std::collections::VecDeque<Happened>,
        over: bool,
    }
    let changed = call.follow();
    let ready = Default::default();
    let at = At { until, call, changed, seen, ready, over: false };
    futures_util::stream::unfold(at, |mut at| async move {
        loop {
            if at.until.is_over() {
                return None;
            }
            if let Some(next) = at.ready.pop_front() {
                let event = match next {
                    Happened::Wrote { number, stream, bytes } => {
                        at.seen = number;
                        let text = base64::engine::general_purpose::STANDARD.encode(&bytes);
                        let data = json!({ "base64": text });
                        Event::default()
                            .id(number.to_string())
                            .event(stream.name())
                            .data(data.to_string())
                    }
                    Happened::Missed { number, count } => {
                        at.seen = number;
                        let data = json!({ "events": count });
                        Event::default()
                            .id(number.to_string())
                            .event("missed")
                            .data(data.to_string())
                    }
                    Happened::Ended { number, result } => {
                        at.over = true;
                        Event::default().id(number.to_string()).event("ended").data(result)
                    }
                };
                return Some((Ok(event), at));
            }
            if at.over {
                return None;
            }
            at.changed.mark_unchanged();
            at.ready = at.call.after(at.seen).into();
            if at.ready.is_empty() {
                tokio::select! {
                    changed = at.changed.changed() => changed.ok()?,
                    () = at.until.over() => return None,
                }
            }
        }
    })
}
