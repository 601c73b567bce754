//! What a sandbox changed in its workspace: shown, and taken over.

use std::io::{self, Write};
use std::path::PathBuf;
use std::sync::Arc;

use axum::Json;
use axum::extract::{Path, State};
use axum::http::header;
use axum::response::IntoResponse;
use ringwall_desk::{Action, Apply, Caller};
use ringwall_engine::{Record, RecordState};
use ringwall_workspace::{
    ApplyError, ApplyOptions, Changes, Contents, DiffOptions, Wanted, apply as apply_changes,
};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::caller::Asker;
use crate::fields::Body;
use crate::lanes::Whose;
use crate::problem::{Code, Problem, ProblemBody};
use crate::service::Service;

/// A longer diff is for `ringwall diff`.
const MOST_DIFF: usize = 16 << 20;

/// What a sandbox that has ended changed in its workspace, as a patch
#[utoipa::path(get, path = "/v1/sandboxes/{id}/diff", tag = "files",
    params(("id" = String, Path)), responses(
    (status = 200, body = String, content_type = "text/x-patch"),
    (status = "default", body = ProblemBody, content_type = "application/problem+json"),
))]
pub(crate) async fn diff(
    State(service): State<Arc<Service>>,
    Asker(caller): Asker,
    Path(id): Path<String>,
) -> Result<impl IntoResponse, Problem> {
    let patch = service
        .work(Whose::of(&caller), move |service| {
            let record = service.record(&caller, &id)?;
            service.enter(&caller, &record, Action::Diff)?;
            let changes = changes(service, &record)?;
            let options = DiffOptions { contents: Contents::Plain, ..DiffOptions::default() };
            let mut patch = Bounded(Vec::new());
            let written = changes.write_diff(&changes.workspace(), &options, &mut patch);
            written.map_err(|_| {
                let why = format!("the diff has more than {MOST_DIFF} bytes; use `ringwall diff`");
                Problem::new(Code::TooLarge, why)
            })?;
            Ok(patch.0)
        })
        .await?;
    Ok(([(header::CONTENT_TYPE, "text/x-patch; charset=utf-8")], patch))
}

struct Bounded(Vec<u8>);

impl Write for Bounded {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.0.len() + bytes.len() > MOST_DIFF {
            return Err(io::ErrorKind::FileTooLarge.into());
        }
        self.0.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn changes(service: &Service, record: &Record) -> Result<Changes, Problem> {
    if record.state == RecordState::Running {
        let why = "the sandbox is still running and may change more; end it with ?keep=true first";
        return Err(Problem::new(Code::StillRunning, why));
    }
    service
        .engine
        .changes(record)
        .map_err(|error| Problem::new(Code::NotFound, crate::problem::with_causes(&error)))
}

/// What to take over
#[derive(Debug, Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct ApplyFields {
    /// Only these paths, and what is below them; everything if empty
    paths: Vec<String>,
    /// Not these
    except: Vec<String>,
    /// Also these protected paths (hooks, CI, editor or shell configuration); for the owner
    allow_protected: Vec<String>,
    /// Overwrite files that were changed on the host since
    force: bool,
}

/// What was taken over
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct AppliedPaths {
    applied: Vec<String>,
    /// The workspace had these already
    already: Vec<String>,
}

/// Write a sandbox's changes back to its workspace
#[utoipa::path(post, path = "/v1/sandboxes/{id}/apply", tag = "files", request_body = ApplyFields,
    params(("id" = String, Path)), responses(
    (status = 200, body = AppliedPaths),
    (status = "default", body = ProblemBody, content_type = "application/problem+json"),
))]
pub(crate) async fn apply(
    State(service): State<Arc<Service>>,
    Asker(caller): Asker,
    Path(id): Path<String>,
    Body(fields, _held): Body<ApplyFields>,
) -> Result<Json<AppliedPaths>, Problem> {
    let applied = service
        .work(Whose::of(&caller), move |service| apply_now(service, &caller, &id, &fields))
        .await?;
    Ok(Json(applied))
}

fn apply_now(
    service: &Service,
    caller: &Caller,
    id: &str,
    fields: &ApplyFields,
) -> Result<AppliedPaths, Problem> {
    let record = service.record(caller, id)?;
    service.desk().may_enter(caller, &record, "apply")?;
    let changes = changes(service, &record)?;
    let paths = |texts: &[String]| texts.iter().map(PathBuf::from).collect::<Vec<_>>();
    let refused =
        |error: ApplyError| Problem::new(Code::Refused, crate::problem::with_causes(&error));
    let wanted = Wanted { only: paths(&fields.paths), except: paths(&fields.except) };
    let selection = changes.select(&wanted).map_err(refused)?;
    let asked = Apply {
        selection: &selection,
        paths: &fields.paths,
        except: &fields.except,
        allow_protected: &fields.allow_protected,
        force: fields.force,
    };
    let _elevated = service.enter(caller, &record, Action::Apply(&asked))?;
    let options = ApplyOptions {
        allow_protected: paths(&fields.allow_protected),
        force: fields.force,
        strict: false,
    };
    let done = apply_changes(&selection, &options).map_err(refused)?;
    let told = (fields.allow_protected.clone(), fields.force);
    service.engine.record_applied(&record, selection.summary(), told)?;
    let shown = |paths: &[ringwall_workspace::RelPath]| {
        paths.iter().map(|path| path.as_path().display().to_string()).collect()
    };
    Ok(AppliedPaths { applied: shown(&done.applied), already: shown(&done.already) })
}
