//! Requests with an `Idempotency-Key`: done once, and answered again with the same words.

use std::sync::Arc;

use axum::Json;
use axum::extract::FromRequestParts;
use axum::http::request::Parts;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use ringwall_desk::Caller;
use ringwall_store::{Claim, Reply};
use serde::Serialize;

use crate::lanes::Whose;
use crate::problem::{Code, Problem};
use crate::service::Service;
use crate::trace::{self, Context};

const HEADER: &str = "idempotency-key";
const MOST_KEY_BYTES: usize = 128;
/// Longer answers are not kept for a second time.
const MOST_REPLY_BYTES: usize = 1 << 20;

/// The key of a request, if it has one.
#[derive(Debug)]
pub(crate) struct Key(Option<String>);

impl FromRequestParts<Arc<Service>> for Key {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _: &Arc<Service>) -> Result<Key, Problem> {
        let Some(given) = parts.headers.get(HEADER) else { return Ok(Key(None)) };
        let good = given.to_str().ok().filter(|key| {
            (1..=MOST_KEY_BYTES).contains(&key.len()) && key.bytes().all(|b| b.is_ascii_graphic())
        });
        let wrong =
            format!("an Idempotency-Key has 1 to {MOST_KEY_BYTES} visible characters of ASCII");
        let key = good.ok_or_else(|| Problem::new(Code::BadRequest, wrong))?;
        Ok(Key(Some(key.to_owned())))
    }
}

/// Does `work` unless the same was asked before. `request` is all that makes it this request. With a
/// key it is done to its end, also if the client goes away: it may come again and ask what came of it.
pub(crate) async fn once<T, F>(
    service: &Arc<Service>,
    caller: &Caller,
    key: Key,
    (route, request): (&'static str, &impl Serialize),
    (status, work): (StatusCode, F),
) -> Result<Response, Problem>
where
    T: Serialize + Send + 'static,
    F: Future<Output = Result<T, Problem>> + Send + 'static,
{
    let Some(key) = key.0 else {
        return Ok((status, Json(work.await?)).into_response());
    };
    let text = serde_json::to_vec(request).map_err(|error| Problem::internal(&error))?;
    let mut hasher = blake3::Hasher::new();
    hasher.update(route.as_bytes()).update(&[0]).update(&text);
    let fingerprint = hasher.finalize().to_hex().to_string();
    let key = key_of(caller, &key);
    let (service, whose) = (Arc::clone(service), Whose::of(caller));
    let claim = Claimed { service, whose, tenant: caller.tenant().to_owned(), key };
    match claim.take(fingerprint).await? {
        Claim::Taken => {}
        Claim::Answered(reply) => return Ok(repeated(reply)),
        Claim::UnderWay => {
            let why = "the first request with this key is not answered yet; ask again later";
            return Err(Problem::new(Code::RequestUnderWay, why));
        }
        Claim::Unknown => {
            let why = "the daemon ended while it was at this request; look what there is, and use a new key";
            return Err(Problem::new(Code::OutcomeUnknown, why));
        }
        Claim::OtherRequest => {
            let why = "the first request with this key asked for something else; use a new key";
            return Err(Problem::new(Code::KeyReused, why));
        }
    }
    let context = trace::current();
    let doing = Context::around(context, async move { claim.settle(status, work.await).await });
    let done = tokio::spawn(doing);
    match done.await {
        Ok(reply) => Ok(repeated(reply?)),
        Err(_) => Err(Problem::new(Code::Ending, "the request was broken off")),
    }
}

/// The key as it is kept. It means something only to the very grant that used it: an answer may hold what
/// another task, or a grant that was narrowed since, has no right to see.
fn key_of(caller: &Caller, key: &str) -> String {
    let (task, grants) = match caller {
        Caller::Owner => ("", Vec::new()),
        Caller::System(name) => ("", vec![format!("system {name}")]),
        Caller::Holder(holder) => {
            let standing = holder.standing();
            (standing.task.as_str(), standing.ids.iter().map(ToString::to_string).collect())
        }
    };
    scoped(task, &grants, key)
}

fn scoped(task: &str, grants: &[String], key: &str) -> String {
    let mut hasher = blake3::Hasher::new();
    let parts = [task, key].into_iter().chain(grants.iter().map(String::as_str));
    for part in parts {
        // With its length, so that no two lists of parts look alike.
        hasher.update(&(part.len() as u64).to_le_bytes()).update(part.as_bytes());
    }
    hasher.finalize().to_hex().to_string()
}

/// A key that is ours until the request is answered.
struct Claimed {
    service: Arc<Service>,
    whose: Whose,
    tenant: String,
    key: String,
}

impl Claimed {
    async fn take(&self, request: String) -> Result<Claim, Problem> {
        let (tenant, key) = (self.tenant.clone(), self.key.clone());
        let claim = move |service: &Arc<Service>| {
            Ok(service.store.claim_request(&tenant, &key, &request)?)
        };
        self.service.work(self.whose.clone(), claim).await
    }

    /// Keeps the answer, or gives the key up if nothing was done that could not be done again.
    async fn settle<T: Serialize>(
        self,
        status: StatusCode,
        done: Result<T, Problem>,
    ) -> Result<Reply, Problem> {
        let problem_reply = |problem: &Problem| -> Result<Reply, Problem> {
            let body = serde_json::to_string(&problem.body());
            let body = body.map_err(|error| Problem::internal(&error))?;
            Ok(Reply { status: problem.status().as_u16(), body })
        };
        let (reply, is_final) = match &done {
            Ok(done) => {
                let body = serde_json::to_string(done);
                let body = body.map_err(|error| Problem::internal(&error))?;
                (Reply { status: status.as_u16(), body }, true)
            }
            Err(problem) => (problem_reply(problem)?, problem.is_final()),
        };
        let kept = if reply.body.len() > MOST_REPLY_BYTES {
            let why =
                "the request was done, but its answer was too long to be kept for a second time";
            problem_reply(&Problem::new(Code::OutcomeUnknown, why))?
        } else {
            reply.clone()
        };
        let Claimed { service, whose, tenant, key } = self;
        service
            .work(whose, move |service| match is_final {
                true => Ok(service.store.finish_request(&tenant, &key, &kept)?),
                false => Ok(service.store.give_up_request(&tenant, &key)?),
            })
            .await?;
        match done {
            // With all that it says, such as when to ask again.
            Err(problem) if !is_final => Err(problem),
            _ => Ok(reply),
        }
    }
}

fn repeated(reply: Reply) -> Response {
    let status = StatusCode::from_u16(reply.status).unwrap_or(StatusCode::OK);
    let kind = if status.is_success() { "application/json" } else { "application/problem+json" };
    let mut response = (status, reply.body).into_response();
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static(kind));
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_of_another_task_or_grant_is_another_key() {
        let grants = |ids: &[&str]| ids.iter().map(|id| (*id).to_owned()).collect::<Vec<_>>();
        let all = [
            scoped("", &[], "k"),
            scoped("t-1", &grants(&["a"]), "k"),
            scoped("t-2", &grants(&["a"]), "k"),
            scoped("t-1", &grants(&["b"]), "k"),
            // Narrowed, and the same characters cut elsewhere.
            scoped("t-1", &grants(&["a", "c"]), "k"),
            scoped("t-1", &grants(&["ac"]), "k"),
            scoped("t-1k", &grants(&["a"]), ""),
        ];
        for (at, one) in all.iter().enumerate() {
            assert!(!all[at + 1..].contains(one), "{at}");
        }
        assert_eq!(scoped("t-1", &grants(&["a"]), "k"), all[1]);
    }
}
