//! The audit log, as far as the caller may see it.

use std::collections::HashSet;
use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use ringwall_audit::{AuditPaths, Filter, Id, LogReader, ReadError, Stored};
use ringwall_desk::Caller;
use serde::Deserialize;
use serde_json::Value;
use utoipa::IntoParams;

use crate::caller::{Asker, own_task};
use crate::fields::Params;
use crate::lanes::Whose;
use crate::problem::{Code, Problem, ProblemBody};
use crate::service::Service;

/// How far back a holder's records are looked for.
const LOOKED_AT: usize = 20_000;

/// Which records
#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub(crate) struct Which {
    /// The last so many, 1 to 1000
    #[serde(default = "usual")]
    #[param(default = 100, minimum = 1, maximum = 1000)]
    limit: u32,
    /// Only those of this sandbox
    sandbox: Option<String>,
    /// Only those of this task; for the owner
    task: Option<String>,
    /// Only those of this kind, such as `call-ended`
    kind: Option<String>,
    /// Only those since then
    since_unix_ms: Option<u64>,
}

fn usual() -> u32 {
    100
}

/// The last records, oldest first
#[utoipa::path(get, path = "/v1/audit", tag = "audit", params(Which), responses(
    (status = 200, body = Vec<Object>),
    (status = "default", body = ProblemBody, content_type = "application/problem+json"),
))]
pub(crate) async fn records(
    State(service): State<Arc<Service>>,
    Asker(caller): Asker,
    Params(which): Params<Which>,
) -> Result<Json<Vec<Value>>, Problem> {
    if !(1..=1000).contains(&which.limit) {
        return Err(Problem::new(Code::BadRequest, "limit must be 1 to 1000"));
    }
    let records =
        service.work(Whose::of(&caller), move |service| read(service, &caller, &which)).await?;
    // A record is kept as it stands in the log, with the hash that ties it to those before.
    let parsed = records.iter().filter_map(|record| serde_json::from_str(&record.line).ok());
    Ok(Json(parsed.collect()))
}

fn read(service: &Service, caller: &Caller, which: &Which) -> Result<Vec<Stored>, Problem> {
    let filter = Filter {
        // Tasks of two tenants may have the same name.
        task: which.task.as_ref().filter(|_| caller.holder().is_none()).map(Id::new),
        sandbox: which.sandbox.as_ref().map(Id::new),
        kind: which.kind.clone(),
        since: which.since_unix_ms,
    };
    let log = AuditPaths::in_home(&service.home).log();
    let most = which.limit as usize;
    let last = |count| match LogReader::last(&log, count, &filter) {
        Ok((records, _)) => Ok(records),
        Err(ReadError::NoLog(_)) => Ok(Vec::new()),
        Err(error) => Err(Problem::internal(&error)),
    };
    let (Caller::Holder(holder), Some(whose)) = (caller, own_task(caller)) else {
        return last(most);
    };
    let sandboxes: HashSet<Id> = service.store.ids_of_task(whose)?.iter().map(Id::new).collect();
    let grants: HashSet<Id> =
        holder.standing().ids.iter().map(|id| Id::new(id.to_string())).collect();
    let mut records = last(LOOKED_AT)?;
    records.retain(|record| {
        let ids = &record.ids;
        ids.sandbox.as_ref().is_some_and(|id| sandboxes.contains(id))
            || ids.grant.as_ref().is_some_and(|id| grants.contains(id))
    });
    let surplus = records.len().saturating_sub(most);
    records.drain(..surplus);
    Ok(records)
}
