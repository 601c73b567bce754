//! Files inside a sandbox, as streams.

use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::Json;
use axum::body::Body;
use axum::extract::{Path, Request, State};
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use ringwall_wire::{Client, FileKind, RemoveWhat, WriteHow};
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use super::transfer::{self, Until};
use crate::caller::Asker;
use crate::fields::Params;
use crate::lanes::Whose;
use crate::problem::{Code, Problem, ProblemBody};
use crate::service::{Living, Service};

/// The largest file that is read or written in one request.
const MOST_BYTES: u64 = 1 << 30;
/// How long a sandbox may take to look at a file, to list a directory or to remove it.
const FILE_TIMEOUT: Duration = Duration::from_secs(120);
/// The most entries of a directory in one answer.
const MOST_ENTRIES: usize = 10_000;

/// The files of a sandbox that answers in time.
fn soon(living: &Arc<Living>) -> Client {
    living.attached.files().until(Instant::now() + FILE_TIMEOUT)
}

/// Which file
#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub(crate) struct At {
    /// An absolute path inside the sandbox
    path: String,
}

impl At {
    fn bytes(&self) -> Result<Vec<u8>, Problem> {
        if !self.path.starts_with('/') || self.path.contains('\0') {
            return Err(Problem::new(
                Code::BadRequest,
                "path must be absolute, inside the sandbox",
            ));
        }
        Ok(self.path.as_bytes().to_vec())
    }
}

/// Read a file
#[utoipa::path(get, path = "/v1/sandboxes/{id}/files", tag = "files",
    params(("id" = String, Path), At), responses(
    (status = 200, body = Vec<u8>, content_type = "application/octet-stream"),
    (status = "default", body = ProblemBody, content_type = "application/problem+json"),
))]
pub(crate) async fn read(
    State(service): State<Arc<Service>>,
    Asker(caller): Asker,
    Path(id): Path<String>,
    Params(at): Params<At>,
) -> Result<Response, Problem> {
    let path = at.bytes()?;
    let lane = service.transfers.take_soon(&Whose::of(&caller)).await?;
    let (asking, wanted) = (caller.clone(), path.clone());
    let look = move |service: &Arc<Service>| {
        let living = service.files(&asking, &id)?;
        let stat = soon(&living).stat(&wanted)?;
        if stat.kind != FileKind::File {
            return Err(Problem::new(Code::Refused, "that is no file"));
        }
        if stat.size > MOST_BYTES {
            let why = format!("the file has {} bytes, the most is {MOST_BYTES}", stat.size);
            return Err(Problem::new(Code::TooLarge, why));
        }
        Ok((living, stat.size))
    };
    let (living, size) = service.work(Whose::of(&caller), look).await?;
    let until =
        Until::of(&service.books, &caller, format!("reading a file of {}", living.record.id));
    let files = living.attached.files().until(transfer::deadline(&caller));
    let (mut sink, stream) = transfer::to_client(until);
    tokio::task::spawn_blocking(move || {
        let _lane = lane;
        // The file may have changed since it was looked at; the client sees a broken stream.
        if files.read_file(&path, &mut sink, size).is_ok() {
            sink.end();
        }
    });
    let kind = [(header::CONTENT_TYPE, "application/octet-stream")];
    Ok((kind, Body::from_stream(stream)).into_response())
}

/// How to write
#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub(crate) struct Mode {
    /// Permission bits, as a decimal number
    #[serde(default = "usual_mode")]
    #[param(default = 420, maximum = 511)]
    mode: u32,
}

fn usual_mode() -> u32 {
    0o644
}

/// Write a file, or replace it
#[utoipa::path(put, path = "/v1/sandboxes/{id}/files", tag = "files",
    params(("id" = String, Path), At, Mode),
    request_body(content = Vec<u8>, content_type = "application/octet-stream"),
    responses(
        (status = 204, description = "It was written"),
        (status = "default", body = ProblemBody, content_type = "application/problem+json"),
    ))]
pub(crate) async fn write(
    State(service): State<Arc<Service>>,
    Asker(caller): Asker,
    Path(id): Path<String>,
    Params(at): Params<At>,
    Params(Mode { mode }): Params<Mode>,
    request: Request,
) -> Result<StatusCode, Problem> {
    let path = at.bytes()?;
    if mode > 0o777 {
        return Err(Problem::new(Code::BadRequest, "mode has at most nine bits"));
    }
    let lane = service.transfers.take_soon(&Whose::of(&caller)).await?;
    let asking = caller.clone();
    let look = move |service: &Arc<Service>| service.files(&asking, &id);
    let living = service.work(Whose::of(&caller), look).await?;
    let until =
        Until::of(&service.books, &caller, format!("writing a file of {}", living.record.id));
    let files = living.attached.files().until(transfer::deadline(&caller));
    let (pieces, mut source) = transfer::from_client();
    let writing = tokio::task::spawn_blocking(move || {
        let _lane = lane;
        files.write_file(&path, mode, WriteHow::Replace, &mut source).map(drop)
    });
    transfer::pass_on(request.into_body(), (pieces, until), MOST_BYTES).await?;
    match writing.await {
        Ok(written) => Ok(written.map(|()| StatusCode::NO_CONTENT)?),
        Err(_) => Err(Problem::new(Code::Ending, "the request was broken off")),
    }
}

/// What to remove
#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub(crate) struct Deep {
    /// A directory with all that is in it
    #[serde(default)]
    recursive: bool,
}

/// Remove a file or directory
#[utoipa::path(delete, path = "/v1/sandboxes/{id}/files", tag = "files",
    params(("id" = String, Path), At, Deep), responses(
    (status = 204, description = "It was removed"),
    (status = "default", body = ProblemBody, content_type = "application/problem+json"),
))]
pub(crate) async fn remove(
    State(service): State<Arc<Service>>,
    Asker(caller): Asker,
    Path(id): Path<String>,
    Params(at): Params<At>,
    Params(deep): Params<Deep>,
) -> Result<StatusCode, Problem> {
    let path = at.bytes()?;
    let what = if deep.recursive { RemoveWhat::WholeTree } else { RemoveWhat::Single };
    service
        .work(Whose::of(&caller), move |service| {
            soon(&service.files(&caller, &id)?).remove(&path, what)?;
            Ok(StatusCode::NO_CONTENT)
        })
        .await
}

/// One entry of a directory
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Entry {
    /// Bytes that are no text are replaced
    name: String,
    /// `file`, `directory`, `symlink` or `other`
    kind: String,
    size: u64,
    mode: u32,
    modified_unix: i64,
}

/// List a directory
#[utoipa::path(get, path = "/v1/sandboxes/{id}/directory", tag = "files",
    params(("id" = String, Path), At), responses(
    (status = 200, body = Vec<Entry>),
    (status = "default", body = ProblemBody, content_type = "application/problem+json"),
))]
pub(crate) async fn list(
    State(service): State<Arc<Service>>,
    Asker(caller): Asker,
    Path(id): Path<String>,
    Params(at): Params<At>,
) -> Result<Json<Vec<Entry>>, Problem> {
    let path = at.bytes()?;
    let entries = service
        .work(Whose::of(&caller), move |service| {
            Ok(soon(&service.files(&caller, &id)?).list(&path)?)
        })
        .await?;
    if entries.len() > MOST_ENTRIES {
        let why = format!("the directory has more than {MOST_ENTRIES} entries");
        return Err(Problem::new(Code::TooLarge, why));
    }
    let entries = entries.into_iter().map(|entry| Entry {
        name: String::from_utf8_lossy(&entry.name).into_owned(),
        kind: match entry.stat.kind {
            FileKind::File => "file",
            FileKind::Directory => "directory",
            FileKind::Symlink => "symlink",
            FileKind::Other => "other",
        }
        .to_owned(),
        size: entry.stat.size,
        mode: entry.stat.mode,
        modified_unix: entry.stat.modified_seconds,
    });
    Ok(Json(entries.collect()))
}
