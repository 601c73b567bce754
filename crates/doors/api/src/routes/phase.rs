//! The phase that a sandbox is in.

use std::sync::Arc;

use axum::Json;
use axum::extract::{Path, State};
use ringwall_desk::Action;
use ringwall_engine::RecordState;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::caller::Asker;
use crate::fields::Body;
use crate::lanes::Whose;
use crate::problem::{Code, Problem, ProblemBody};
use crate::service::Service;

/// The phase to come to
#[derive(Debug, Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct PhaseFields {
    to: String,
}

/// The phase that a sandbox is in
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Phase {
    /// Nothing where its task has no phases
    phase: Option<String>,
}

/// The phase that a sandbox is in
#[utoipa::path(get, path = "/v1/sandboxes/{id}/phase", tag = "sandboxes", params(("id" = String, Path)), responses(
    (status = 200, body = Phase),
    (status = "default", body = ProblemBody, content_type = "application/problem+json"),
))]
pub(crate) async fn get(
    State(service): State<Arc<Service>>,
    Asker(caller): Asker,
    Path(id): Path<String>,
) -> Result<Json<Phase>, Problem> {
    service
        .work(Whose::of(&caller), move |service| {
            let record = service.record(&caller, &id)?;
            Ok(Json(Phase { phase: service.engine.phase(&record) }))
        })
        .await
}

/// Move a sandbox to another phase of its task: from now on its jobs may write what that one allows
#[utoipa::path(post, path = "/v1/sandboxes/{id}/phase", tag = "sandboxes", request_body = PhaseFields,
    params(("id" = String, Path)), responses(
    (status = 200, body = Phase),
    (status = "default", body = ProblemBody, content_type = "application/problem+json"),
))]
pub(crate) async fn change(
    State(service): State<Arc<Service>>,
    Asker(caller): Asker,
    Path(id): Path<String>,
    Body(fields, _held): Body<PhaseFields>,
) -> Result<Json<Phase>, Problem> {
    service
        .work(Whose::of(&caller), move |service| {
            let record = service.record(&caller, &id)?;
            if record.state != RecordState::Running {
                let why = format!("the sandbox {id} has ended");
                return Err(Problem::new(Code::NotRunning, why));
            }
            service.enter(&caller, &record, Action::Phase(&fields.to))?;
            Ok(Json(Phase { phase: service.engine.phase(&record) }))
        })
        .await
}
