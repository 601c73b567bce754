//! Files inside a sandbox, as streams.

use std::io::{self, Read, Write};
use std::sync::Arc;

use axum::Json;
use axum::body::{Body, BodyDataStream};
use axum::extract::{Path, Request, State};
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use futures_util::StreamExt;
use ringwall_wire::{FileKind, RemoveWhat, WriteHow};
use serde::{Deserialize, Serialize};
use tokio::sync::mpsc;
use utoipa::{IntoParams, ToSchema};

use crate::caller::Asker;
use crate::fields::Params;
use crate::problem::{Code, Problem, ProblemBody};
use crate::service::Service;

/// The largest file that is read or written in one request.
const MOST_BYTES: u64 = 1 << 30;
/// Pieces on their way between a sandbox and a client.
const PIECES: usize = 8;
/// The most entries of a directory in one answer.
const MOST_ENTRIES: usize = 10_000;

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
    let (living, size) = service
        .work({
            let path = path.clone();
            move |service| {
                let living = service.files(&caller, &id)?;
                let stat = living.attached.files().stat(&path)?;
                if stat.kind != FileKind::File {
                    return Err(Problem::new(Code::Refused, "that is no file"));
                }
                if stat.size > MOST_BYTES {
                    let why = format!("the file has {} bytes, the most is {MOST_BYTES}", stat.size);
                    return Err(Problem::new(Code::TooLarge, why));
                }
                Ok((living, stat.size))
            }
        })
        .await?;
    let (pieces, stream) = mpsc::channel::<io::Result<Bytes>>(PIECES);
    tokio::task::spawn_blocking(move || {
        let mut sink = ToClient { pieces: pieces.clone() };
        // The file may have changed since it was looked at; the client sees a broken stream.
        if let Err(error) = living.attached.files().read_file(&path, &mut sink, size) {
            let _ = pieces.blocking_send(Err(io::Error::other(error)));
        }
    });
    let stream = futures_util::stream::unfold(stream, |mut stream| async move {
        stream.recv().await.map(|piece| (piece, stream))
    });
    let kind = [(header::CONTENT_TYPE, "application/octet-stream")];
    Ok((kind, Body::from_stream(stream)).into_response())
}

struct ToClient {
    pieces: mpsc::Sender<io::Result<Bytes>>,
}

impl Write for ToClient {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let piece = Ok(Bytes::copy_from_slice(bytes));
        self.pieces.blocking_send(piece).map_err(|_| io::ErrorKind::BrokenPipe)?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
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
    let living = service.work(move |service| service.files(&caller, &id)).await?;
    let (pieces, received) = mpsc::channel(PIECES);
    let writing = tokio::task::spawn_blocking(move || {
        let mut source = FromClient { pieces: received, rest: Bytes::new() };
        let files = living.attached.files();
        files.write_file(&path, mode, WriteHow::Replace, &mut source).map(drop)
    });
    pass_on(request.into_body().into_data_stream(), pieces).await;
    match writing.await {
        Ok(written) => Ok(written.map(|()| StatusCode::NO_CONTENT)?),
        Err(_) => Err(Problem::new(Code::Ending, "the request was broken off")),
    }
}

async fn pass_on(mut body: BodyDataStream, pieces: mpsc::Sender<io::Result<Bytes>>) {
    let mut total = 0u64;
    while let Some(piece) = body.next().await {
        let piece = piece.map_err(io::Error::other).and_then(|piece| {
            total += piece.len() as u64;
            let too_large = || io::Error::other(format!("a file has at most {MOST_BYTES} bytes"));
            if total > MOST_BYTES { Err(too_large()) } else { Ok(piece) }
        });
        let failed = piece.is_err();
        // The sandbox has said no; its answer says why.
        if pieces.send(piece).await.is_err() || failed {
            return;
        }
    }
}

struct FromClient {
    pieces: mpsc::Receiver<io::Result<Bytes>>,
    rest: Bytes,
}

impl Read for FromClient {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        while self.rest.is_empty() {
            match self.pieces.blocking_recv() {
                Some(piece) => self.rest = piece?,
                None => return Ok(0),
            }
        }
        let count = self.rest.len().min(buffer.len());
        let piece = self.rest.split_to(count);
        if let Some(place) = buffer.get_mut(..count) {
            place.copy_from_slice(&piece);
        }
        Ok(count)
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
        .work(move |service| {
            service.files(&caller, &id)?.attached.files().remove(&path, what)?;
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
        .work(move |service| Ok(service.files(&caller, &id)?.attached.files().list(&path)?))
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
