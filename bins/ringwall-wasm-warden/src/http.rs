//! HTTP for tools: each request goes through a door of this ring to the gateway, which decides about it,
//! speaks TLS for it and adds secrets. Nothing is decided here.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use http_body_util::{BodyExt, Limited};
use hyper::body::Incoming;
use hyper::client::conn::http1::{self, SendRequest};
use hyper::{Method, Request, Response};
use hyper_util::rt::TokioIo;
use tokio::task::JoinSet;
use wasmtime::component::ResourceTable;
use wasmtime_wasi_http::{
    Error, RequestOptions, WasiBody, WasiHttpCtx, WasiHttpCtxView, WasiHttpHooks,
};

use crate::doors::Doors;
use crate::output::Output;

/// The header by which the gateway says that an answer is its own, and of which kind. It lets none of a
/// server's through.
const OWN_ANSWER: &str = "x-ringwall";
/// Longest reason of the gateway's that is passed on.
const MAX_REASON_BYTES: usize = 1024;
/// For a tool that asks for none; the time limit of its call counts anyway.
const USUAL_PATIENCE: Duration = Duration::from_secs(600);

/// What one call has of HTTP.
pub(crate) struct Http {
    context: WasiHttpCtx,
    requests: Requests,
}

/// How requests are sent. All that is under way ends with it.
struct Requests {
    doors: Doors,
    /// From the first request on: most calls make none.
    shared: Option<Arc<Mutex<Shared>>>,
    /// The tool's, which is told why a request was refused.
    log: Output,
}

#[derive(Default)]
struct Shared {
    /// A connection that may be ready for another request.
    kept: Option<SendRequest<WasiBody>>,
    connections: JoinSet<()>,
}

impl Http {
    pub(crate) fn new(doors: &Doors, log: &Output) -> Http {
        let requests = Requests { doors: doors.clone(), shared: None, log: log.clone() };
        Http { context: WasiHttpCtx::new(), requests }
    }

    pub(crate) fn view<'a>(&'a mut self, table: &'a mut ResourceTable) -> WasiHttpCtxView<'a> {
        WasiHttpCtxView { hooks: &mut self.requests, table, ctx: &mut self.context }
    }
}

type Done = Box<dyn Future<Output = Result<(), Error>> + Send>;

impl WasiHttpHooks for Requests {
    fn send_request(
        &mut self,
        request: Request<WasiBody>,
        options: Option<RequestOptions>,
        _done: Done,
    ) -> Box<dyn Future<Output = Result<(Response<WasiBody>, Done), Error>> + Send> {
        let shared = Arc::clone(self.shared.get_or_insert_default());
        let (doors, log) = (self.doors.clone(), self.log.clone());
        Box::new(async move {
            let patience = options.and_then(|options| options.first_byte_timeout);
            let sending = send(&doors, &shared, request);
            let sent = tokio::time::timeout(patience.unwrap_or(USUAL_PATIENCE), sending).await;
            let response = sent.map_err(|_| Error::ConnectionReadTimeout)??;
            let response = passed_on(response, &log).await?;
            let nothing_more: Done = Box::new(async { Ok(()) });
            Ok((response, nothing_more))
        })
    }
}

/// In absolute form, as a proxy is asked.
async fn send(
    doors: &Doors,
    shared: &Mutex<Shared>,
    request: Request<WasiBody>,
) -> Result<Response<Incoming>, Error> {
    if request.method() == Method::CONNECT {
        return Err(Error::HttpRequestMethodInvalid);
    }
    let kept = lock(shared).kept.take().filter(SendRequest::is_ready);
    let mut sender = match kept {
        Some(sender) => sender,
        None => {
            let end = doors.connect().ok_or(Error::ConnectionLimitReached)?;
            let (sender, connection) = http1::handshake(TokioIo::new(end)).await?;
            let mut shared = lock(shared);
            while shared.connections.try_join_next().is_some() {}
            shared.connections.spawn(async {
                // Whoever waits for an answer is told what went wrong.
                let _ = connection.await;
            });
            sender
        }
    };
    let response = sender.send_request(request).await?;
    lock(shared).kept = Some(sender);
    Ok(response)
}

/// The answer of the server; what the gateway itself says becomes an error, and its reason a line of the
/// tool's log.
async fn passed_on(
    response: Response<Incoming>,
    log: &Output,
) -> Result<Response<WasiBody>, Error> {
    let Some(kind) = response.headers().get(OWN_ANSWER) else {
        return Ok(response.map(|body| body.map_err(Error::from).boxed_unsync()));
    };
    let error = match (kind.as_bytes(), response.status().as_u16()) {
        (b"refused", 429) => Error::ConnectionLimitReached,
        (b"refused", _) => Error::HttpRequestDenied,
        (_, 504) => Error::HttpResponseTimeout,
        _ => Error::DestinationUnavailable,
    };
    if let Ok(reason) = Limited::new(response.into_body(), MAX_REASON_BYTES).collect().await {
        // A log that is full stays as it is.
        let _ = log.push(&[&reason.to_bytes()]);
    }
    Err(error)
}

fn lock(shared: &Mutex<Shared>) -> std::sync::MutexGuard<'_, Shared> {
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}
