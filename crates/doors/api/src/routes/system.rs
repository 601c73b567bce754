//! The daemon itself: health, figures, policy, images, budgets.

use std::sync::Arc;

use axum::extract::State;
use axum::http::header;
use axum::response::IntoResponse;
use axum::{Extension, Json};
use ringwall_desk::Caller;
use ringwall_engine::PolicySearch;
use ringwall_grant::{Account, Budget};
use serde::Serialize;
use utoipa::ToSchema;

use crate::caller::{Asker, Via};
use crate::lanes::Whose;
use crate::problem::{Problem, ProblemBody};
use crate::service::Service;
use crate::spending;

/// That the daemon answers
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Health {
    /// `ok`
    status: String,
    version: String,
}

/// Whether the daemon works; needs no token
#[utoipa::path(get, path = "/v1/health", tag = "system", responses(
    (status = 200, body = Health),
    (status = "default", body = ProblemBody, content_type = "application/problem+json"),
))]
pub(crate) async fn health(
    State(service): State<Arc<Service>>,
    via: Option<Extension<Via>>,
) -> Result<Json<Health>, Problem> {
    let whose = match via {
        Some(Extension(Via::OwnersSocket)) => Whose::Owner,
        _ => Whose::Holder(String::new()),
    };
    service.work(whose, |service| Ok(service.store.last_event()?)).await?;
    Ok(Json(Health { status: "ok".to_owned(), version: env!("CARGO_PKG_VERSION").to_owned() }))
}

/// Figures for Prometheus; for the owner
#[utoipa::path(get, path = "/metrics", tag = "system", responses(
    (status = 200, body = String, content_type = "text/plain"),
    (status = "default", body = ProblemBody, content_type = "application/problem+json"),
))]
pub(crate) async fn metrics(
    State(service): State<Arc<Service>>,
    Asker(caller): Asker,
) -> Result<impl IntoResponse, Problem> {
    caller.must_be_owner()?;
    let (running, waiting, memory) = service.admission.counts();
    let [ready, taken, missed] = service.warm.counts();
    let gauges = [
        ("ringwall_jobs_running", "Jobs under way", running as u64),
        ("ringwall_jobs_waiting", "Requests that wait for room", waiting as u64),
        ("ringwall_memory_admitted_bytes", "Memory limits of all that lives", memory),
        ("ringwall_sandboxes_living", "Sandboxes that live", service.living_count() as u64),
        ("ringwall_warm_ready", "Sandboxes that are kept ready", ready),
        ("ringwall_warm_taken", "Sandboxes that were ready when they were asked for", taken),
        ("ringwall_warm_missed", "Times that none was ready that should have been", missed),
        ("process_resident_memory_bytes", "Memory of the daemon", resident()),
    ];
    let kind = [(header::CONTENT_TYPE, "text/plain; version=0.0.4")];
    Ok((kind, service.metrics.text(&gauges)))
}

/// Pages are of 4 KiB on every machine that Ringwall runs on.
fn resident() -> u64 {
    let text = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    let pages = text.split_whitespace().nth(1).and_then(|pages| pages.parse::<u64>().ok());
    pages.unwrap_or(0).saturating_mul(4096)
}

/// One file of the policy in force
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct PolicyLayer {
    /// `system`, `user`, `named`, `workspace` or `built-in`
    origin: String,
    path: String,
    text: String,
}

/// The policy for what has no workspace; for the owner
#[utoipa::path(get, path = "/v1/policy", tag = "system", responses(
    (status = 200, body = Vec<PolicyLayer>),
    (status = "default", body = ProblemBody, content_type = "application/problem+json"),
))]
pub(crate) async fn policy(
    State(service): State<Arc<Service>>,
    Asker(caller): Asker,
) -> Result<Json<Vec<PolicyLayer>>, Problem> {
    caller.must_be_owner()?;
    let layers = service
        .work(Whose::of(&caller), |_| Ok(PolicySearch::from_environment(None).read()?))
        .await?;
    let layers = layers.into_iter().map(|layer| PolicyLayer {
        origin: format!("{:?}", layer.origin).to_lowercase(),
        path: layer.path,
        text: layer.text,
    });
    Ok(Json(layers.collect()))
}

/// An image in the store
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Image {
    name: String,
    digest: String,
    size_bytes: u64,
    layers: u64,
}

/// The images that there are; for the owner
#[utoipa::path(get, path = "/v1/images", tag = "system", responses(
    (status = 200, body = Vec<Image>),
    (status = "default", body = ProblemBody, content_type = "application/problem+json"),
))]
pub(crate) async fn images(
    State(service): State<Arc<Service>>,
    Asker(caller): Asker,
) -> Result<Json<Vec<Image>>, Problem> {
    caller.must_be_owner()?;
    let images = service
        .work(Whose::of(&caller), |service| {
            let store = service.engine.images().map_err(|error| Problem::internal(&error))?;
            store.list().map_err(|error| Problem::internal(&error))
        })
        .await?;
    let images = images.into_iter().map(|image| Image {
        name: image.name,
        digest: image.digest,
        size_bytes: image.size,
        layers: image.layers as u64,
    });
    Ok(Json(images.collect()))
}

/// What was spent of one thing that is counted
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Spent {
    /// `calls`, `wall_seconds`, `cpu_seconds`, `fuel`, `memory_mib_seconds`, `egress_bytes`,
    /// `tokens` or `money_micros`
    dimension: String,
    spent: u64,
    /// By what is under way, or was killed meanwhile
    reserved: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    limit: Option<u64>,
}

/// A budget, and what is left of it
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct BudgetOf {
    /// `grant:` with the grant's id, or `tenant:` with the tenant's name
    scope: String,
    spent: Vec<Spent>,
}

/// The budgets that calls of this caller count against; for the owner, who has none, those of all tenants
#[utoipa::path(get, path = "/v1/budgets", tag = "system", responses(
    (status = 200, body = Vec<BudgetOf>),
    (status = "default", body = ProblemBody, content_type = "application/problem+json"),
))]
pub(crate) async fn budgets(
    State(service): State<Arc<Service>>,
    Asker(caller): Asker,
) -> Result<Json<Vec<BudgetOf>>, Problem> {
    let all = service
        .work(Whose::of(&caller), move |service| {
            let accounts = match &caller {
                Caller::Holder(holder) => service.books.accounts(holder)?,
                Caller::Owner | Caller::System(_) => service.books.spending()?.tenants()?,
            };
            let shown = |of: &(Account, Budget)| {
                let parts = spending::figures(service, of)?.into_iter();
                let parts = parts.map(|it| Spent {
                    dimension: it.part.to_owned(),
                    spent: it.spent,
                    reserved: it.reserved,
                    limit: it.limit,
                });
                Ok(BudgetOf { scope: of.0.to_string(), spent: parts.collect() })
            };
            accounts.iter().map(shown).collect::<Result<Vec<_>, Problem>>()
        })
        .await?;
    Ok(Json(all))
}
