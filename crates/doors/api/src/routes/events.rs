//! What happens to sandboxes and calls, as it happens.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use axum::extract::State;
use axum::http::HeaderMap;
use axum::response::sse::{Event, KeepAlive, Sse};
use futures_util::Stream;
use ringwall_desk::Caller;
use ringwall_store::EventRow;
use serde_json::{Value, json};

use super::calls::last_seen;
use crate::caller::{Asker, own_task};
use crate::lanes::Whose;
use crate::problem::{Problem, ProblemBody};
use crate::service::Service;
use crate::until::Until;

/// How often a follower looks. Other engines may write to the same state, so nobody is told.
const POLL: Duration = Duration::from_millis(200);
const AT_ONCE: u32 = 200;

/// Follow what happens: `sandbox.created`, `sandbox.ended`, `call.started`, `call.ended` and
/// `call.lost`. `Last-Event-ID` goes on behind that event; without it, from now on
#[utoipa::path(get, path = "/v1/events", tag = "events",
    params(("Last-Event-ID" = Option<u64>, Header, description = "The number of the last event seen")),
    responses(
        (status = 200, body = String, content_type = "text/event-stream"),
        (status = "default", body = ProblemBody, content_type = "application/problem+json"),
    ))]
pub(crate) async fn follow(
    State(service): State<Arc<Service>>,
    Asker(caller): Asker,
    headers: HeaderMap,
) -> Result<Sse<impl Stream<Item = Result<Event, Infallible>>>, Problem> {
    let seen = match last_seen(&headers)? {
        Some(seen) => seen,
        None => service.work(Whose::of(&caller), |service| Ok(service.store.last_event()?)).await?,
    };
    let until = Until::of(&service.books, &caller, "following all events".to_owned());
    let at = At { service, caller, until: Arc::new(until), seen, ready: VecDeque::new() };
    let stream = futures_util::stream::unfold(at, |mut at| async move {
        loop {
            if at.until.is_over() {
                return None;
            }
            if let Some(row) = at.ready.pop_front() {
                at.seen = row.number;
                return Some((Ok(shown(&row)), at));
            }
            let (caller, until, seen) = (at.caller.clone(), Arc::clone(&at.until), at.seen);
            let rows = at.service.work(Whose::of(&caller), move |service| {
                // A grant may have ended since, and then the record says that this has, too.
                until.look()?;
                Ok(service.store.events_after(own_task(&caller), seen, AT_ONCE)?)
            });
            at.ready = rows.await.ok()?.into();
            if at.ready.is_empty() {
                tokio::time::sleep(POLL).await;
            }
        }
    });
    Ok(Sse::new(stream).keep_alive(KeepAlive::default()))
}

struct At {
    service: Arc<Service>,
    caller: Caller,
    until: Arc<Until>,
    seen: u64,
    ready: VecDeque<EventRow>,
}

fn shown(row: &EventRow) -> Event {
    let detail: Value = serde_json::from_str(&row.detail).unwrap_or(Value::Null);
    let data = json!({
        "time_unix_ms": row.time_ms,
        "sandbox": row.sandbox,
        "call": row.call,
        "detail": detail,
    });
    Event::default().id(row.number.to_string()).event(&row.kind).data(data.to_string())
}
