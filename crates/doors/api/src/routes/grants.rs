//! Grants: made, looked at, revoked.

use std::collections::{BTreeMap, BTreeSet};
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use axum::Json;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use ringwall_audit::{Event, GrantMinted, Id, Ids, Text};
use ringwall_desk::Caller;
use ringwall_grant::{
    Authority, AuthorityError, Budget, DEFAULT_LIFETIME, GrantId, Name, NameError, Rights,
};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::caller::Asker;
use crate::fields::Body;
use crate::lanes::Whose;
use crate::problem::{Code, Problem, ProblemBody, with_causes};
use crate::service::Service;

/// What the holder of a new grant may do. An empty list allows nothing
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct GrantFields {
    task: String,
    tenant: String,
    /// Who is meant to hold it, for people to read
    holder: String,
    #[serde(default)]
    tools: Vec<String>,
    /// Directories of the host, with all that is below them
    #[serde(default)]
    read: Vec<String>,
    #[serde(default)]
    write: Vec<String>,
    /// Kinds of work that a sandbox may be asked for with
    #[serde(default)]
    kinds: Vec<String>,
    #[serde(default)]
    walls: Vec<String>,
    #[serde(default)]
    phases: Vec<String>,
    /// `HOST:PORT`, with methods behind a space where not every one is allowed: `api.example.com:443 GET,HEAD`
    #[serde(default)]
    endpoints: Vec<String>,
    #[serde(default)]
    secrets: Vec<String>,
    /// By `calls`, `wall_seconds`, `cpu_seconds`, `fuel`, `memory_mib_seconds`, `egress_bytes`,
    /// `tokens` and `money_micros`
    #[serde(default)]
    budget: BTreeMap<String, u64>,
    /// An hour if nothing is said
    #[serde(default)]
    lifetime_seconds: Option<u64>,
}

impl GrantFields {
    fn rights(&self) -> Result<Rights, Problem> {
        let name = |text: &str| text.parse::<Name>();
        let mut budget = Budget::default();
        for (dimension, most) in &self.budget {
            let unknown = || Problem::new(Code::BadRequest, format!("no budget is {dimension:?}"));
            budget = budget.least(Budget::of(dimension, *most).ok_or_else(unknown)?);
        }
        Ok(Rights {
            tools: set(&self.tools)?,
            read: set(&self.read)?,
            write: set(&self.write)?,
            kinds: set(&self.kinds)?,
            walls: set(&self.walls)?,
            phases: set(&self.phases)?,
            endpoints: set(&self.endpoints)?,
            secrets: set(&self.secrets)?,
            budget,
            ..Rights::none(name(&self.task)?, name(&self.tenant)?, name(&self.holder)?)
        })
    }
}

fn set<T: FromStr<Err = NameError> + Ord>(texts: &[String]) -> Result<BTreeSet<T>, NameError> {
    texts.iter().map(|text| text.parse()).collect()
}

/// A grant, without its token
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct GrantEntry {
    id: String,
    task: String,
    tenant: String,
    holder: String,
    expires_unix: u64,
}

/// A new grant. The token is shown once and kept nowhere
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct NewGrant {
    token: String,
    grant: GrantEntry,
}

fn failed(error: &AuthorityError) -> Problem {
    Problem::new(Code::Refused, with_causes(error))
}

/// Make a grant; for the owner
#[utoipa::path(post, path = "/v1/grants", tag = "grants", request_body = GrantFields, responses(
    (status = 201, body = NewGrant),
    (status = "default", body = ProblemBody, content_type = "application/problem+json"),
))]
pub(crate) async fn mint(
    State(service): State<Arc<Service>>,
    Asker(caller): Asker,
    Body(fields, _held): Body<GrantFields>,
) -> Result<(StatusCode, Json<NewGrant>), Problem> {
    caller.must_be_owner()?;
    service
        .work(Whose::of(&caller), move |service| {
            let rights = fields.rights()?;
            let lifetime = fields.lifetime_seconds.map_or(DEFAULT_LIFETIME, Duration::from_secs);
            let authority = Authority::open(&service.home).map_err(|error| failed(&error))?;
            let minted = authority.mint(&rights, lifetime).map_err(|error| failed(&error))?;
            let record = &minted.record;
            let event = Event::GrantMinted(GrantMinted {
                holder: Text::new(&record.holder),
                summary: Text::default(),
                expires_unix_ms: Some(record.expires_unix.saturating_mul(1000)),
            });
            let ids = Ids::default().grant(Id::new(record.id.to_string()));
            service.engine.record(vec![(ids.task(Id::new(&record.task)), event)])?;
            let token = minted.token.to_text().to_string();
            Ok((StatusCode::CREATED, Json(NewGrant { token, grant: entry(record) })))
        })
        .await
}

fn entry(record: &ringwall_grant::Record) -> GrantEntry {
    GrantEntry {
        id: record.id.to_string(),
        task: record.task.clone(),
        tenant: record.tenant.clone(),
        holder: record.holder.clone(),
        expires_unix: record.expires_unix,
    }
}

/// List the grants that were made here; for the owner
#[utoipa::path(get, path = "/v1/grants", tag = "grants", responses(
    (status = 200, body = Vec<GrantEntry>),
    (status = "default", body = ProblemBody, content_type = "application/problem+json"),
))]
pub(crate) async fn list(
    State(service): State<Arc<Service>>,
    Asker(caller): Asker,
) -> Result<Json<Vec<GrantEntry>>, Problem> {
    caller.must_be_owner()?;
    let records = service
        .work(Whose::of(&caller), |service| match Authority::open_existing(&service.home) {
            Err(AuthorityError::NoKey) => Ok(Vec::new()),
            Err(error) => Err(failed(&error)),
            Ok(authority) => authority.records().map_err(|error| failed(&error)),
        })
        .await?;
    Ok(Json(records.iter().map(entry).collect()))
}

/// The grant that this request was made with
#[utoipa::path(get, path = "/v1/grant", tag = "grants", responses(
    (status = 200, body = GrantEntry),
    (status = "default", body = ProblemBody, content_type = "application/problem+json"),
))]
pub(crate) async fn own(Asker(caller): Asker) -> Result<Json<GrantEntry>, Problem> {
    let Caller::Holder(holder) = caller else {
        return Err(Problem::new(Code::NotFound, "the owner needs no grant"));
    };
    let standing = holder.standing();
    Ok(Json(GrantEntry {
        id: holder.id(),
        task: standing.task.clone(),
        tenant: standing.tenant.clone(),
        holder: standing.holder.clone(),
        expires_unix: standing.expires_unix,
    }))
}

/// Revoke a grant, with all that were narrowed from it; for the owner
#[utoipa::path(delete, path = "/v1/grants/{id}", tag = "grants", params(("id" = String, Path)), responses(
    (status = 204, description = "It is revoked"),
    (status = "default", body = ProblemBody, content_type = "application/problem+json"),
))]
pub(crate) async fn revoke(
    State(service): State<Arc<Service>>,
    Asker(caller): Asker,
    Path(id): Path<String>,
) -> Result<StatusCode, Problem> {
    caller.must_be_owner()?;
    service
        .work(Whose::of(&caller), move |service| {
            let parsed: GrantId = id.parse().map_err(|error: ringwall_grant::GrantIdError| {
                Problem::new(Code::BadRequest, error.to_string())
            })?;
            let authority =
                Authority::open_existing(&service.home).map_err(|error| failed(&error))?;
            let known = authority.records().map_err(|error| failed(&error))?;
            if !known.iter().any(|record| record.id == parsed) {
                return Err(Problem::not_found("grant", &id));
            }
            authority.revoke(&[parsed]).map_err(|error| failed(&error))?;
            let event = Event::GrantRevoked {
                by: Text::new("the owner, through the API"),
                reason: Text::default(),
            };
            let ids = Ids::default().grant(Id::new(parsed.to_string()));
            service.engine.record(vec![(ids, event)])?;
            for (_, closed) in
                service.engine.close_networks_of_grant(&id, "its grant was revoked")?
            {
                closed.map_err(|error| Problem::internal(&error))?;
            }
            Ok(StatusCode::NO_CONTENT)
        })
        .await
}
