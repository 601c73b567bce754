//! One request and its answer, over a lane: checked, credentialed, forwarded, relayed, recorded.

use std::sync::Arc;

use bytes::Bytes;
use http_body_util::BodyExt;
use hyper::body::{Body as _, Incoming};
use hyper::header::{ACCEPT_ENCODING, CONTENT_ENCODING, CONTENT_LENGTH, COOKIE, HOST, HeaderValue};
use hyper::http::request::Parts;
use hyper::{Request, Response, Uri, Version};
use ringwall_rules::{Ask, AskedRequest, Permit};
use ringwall_spec::Scheme;

use crate::body::{Body, Download, Progress, Record, Upload};
use crate::credential::Applied;
use crate::dial::Speak;
use crate::event::{Door, Verdict};
use crate::git;
use crate::head;
use crate::held::Reading;
use crate::lane::{Lane, LaneError, Sender};
use crate::meter::{Exhausted, OpenConnection};
use crate::needles::Needles;
use crate::oauth::Fetch;
use crate::problem::{OWN_ANSWER, Problem};
use crate::sigv4;
use crate::task::{Held, Leash, Stream, Task};
use crate::websocket;

/// Bodies that must be known before a request can be signed.
const LONGEST_SIGNED: usize = 16 * 1024 * 1024;

/// A client's connection, for all the requests on it.
pub(crate) struct Visit {
    pub(crate) task: Arc<Task>,
    pub(crate) door: Door,
    pub(crate) leash: Arc<Leash>,
    /// Counts the connection for as long as any part of it lives.
    pub(crate) open: Arc<OpenConnection>,
}

/// Serves one request over `lane`; whatever goes wrong becomes an answer.
pub(crate) async fn exchange(
    visit: &Arc<Visit>,
    lane: &Arc<Lane>,
    request: Request<Incoming>,
) -> Response<Body> {
    let version = request.version();
    let mut stream = visit
        .task
        .stream(visit.door)
        .to(&lane.ask.host, lane.ask.port)
        .asking(request.method(), request.uri().path());
    match try_exchange(visit, lane, request, &mut stream).await {
        Ok(response) => response,
        Err(problem) => {
            stream.note(problem.verdict(), &problem);
            problem.into_response(version)
        }
    }
}

async fn try_exchange(
    visit: &Arc<Visit>,
    lane: &Arc<Lane>,
    mut request: Request<Incoming>,
    stream: &mut Stream,
) -> Result<Response<Body>, Problem> {
    let task = &visit.task;
    let client = hyper::upgrade::on(&mut request);
    let (mut head, incoming) = request.into_parts();
    let size = head::size(&head);
    task.meter.request(size)?;
    task.meter.up(size)?;
    stream.event.bytes_up = size;
    head::check(&head, &lane.ask)?;
    let to_websocket = head::wants_websocket(&head)?;
    let ask = Ask { request: Some(asked(&head)), ..lane.ask.clone() };
    let held = visit.leash.hold(ask.clone());
    let permit = task.authorize(&ask)?;
    stream.event.rule = Some(permit.rule.clone());
    head::check_override(&head, permit.goes_by.or(task.credentials.goes_by(&ask)))?;
    if length(&head).is_some_and(|length| length > task.meter.limits.request_body) {
        return Err(Exhausted::RequestBody.into());
    }
    let websocket = to_websocket.then(|| websocket::Opening::take(&mut head));
    head::strip_hop_by_hop(&mut head.headers);
    let (front, rest) = prepare(task, &ask, &permit, &mut head, incoming, stream).await?;
    let secretive = task.credentials.knows(&ask);
    if secretive {
        head.headers.insert(ACCEPT_ENCODING, HeaderValue::from_static("identity"));
        // Of a secret that comes back in parts, no part is recognised.
        for name in ["range", "if-range", "request-range"] {
            head.headers.remove(name);
        }
    }
    if let Some(opening) = websocket {
        let parts = websocket::Sides { head, opening, client, held };
        return websocket::exchange(visit, lane, parts, stream, secretive).await;
    }
    let (upload, progress) =
        Upload::new(front, rest, &task.meter, task.credentials.placeholder_needles());
    let answer = forward(task, lane, head, upload.boxed_unsync(), &progress, stream).await?;
    let needles = task.credentials.secret_needles();
    answer_to(task, answer, secretive, needles, progress, Some(held), stream.clone())
}

fn asked(head: &Parts) -> AskedRequest {
    AskedRequest { method: head.method.as_str().to_owned(), path: head.uri.path().to_owned() }
}

fn length(head: &Parts) -> Option<u64> {
    head.headers.get(CONTENT_LENGTH)?.to_str().ok()?.parse().ok()
}

/// Credentials and the git guard; gives back what was read of the body, and the rest.
async fn prepare(
    task: &Arc<Task>,
    ask: &Ask,
    permit: &Permit,
    head: &mut Parts,
    mut incoming: Incoming,
    stream: &mut Stream,
) -> Result<(Option<Bytes>, Option<Incoming>), Problem> {
    let front = match &permit.git {
        Some(rights) => git::guard(task, head, &mut incoming, rights).await?,
        None => None,
    };
    let fetch = Fetch { task };
    match task.credentials.apply(head, ask, permit, &fetch).await? {
        Applied::Nothing => {}
        Applied::Swapped(name) => stream.event.secret = Some(name),
        Applied::Sign(name) => {
            if sigv4::needs_body(head) {
                let mut reading = Reading::new(task, LONGEST_SIGNED);
                reading.read_to_end(&mut incoming).await?;
                let body = reading.into_bytes();
                task.credentials.sign(&name, head, ask, &sigv4::sha256(&body))?;
                stream.event.secret = Some(name);
                return Ok((Some(body), None));
            }
            task.credentials.sign(&name, head, ask, "")?;
            stream.event.secret = Some(name);
        }
    }
    Ok((front, Some(incoming)))
}

/// Sends the request. A kept connection that turns out to be closed is replaced once.
pub(crate) async fn forward(
    task: &Arc<Task>,
    lane: &Lane,
    head: Parts,
    upload: Body,
    progress: &Progress,
    stream: &mut Stream,
) -> Result<Response<Incoming>, Problem> {
    let (mut sender, address) = lane.sender().await?;
    stream.event.address = Some(address);
    // Nothing has been sent yet: what cannot be recorded is not done.
    stream.record(Verdict::Allowed, None)?;
    let request = addressed(head, upload, &lane.ask, &sender);
    let patience = task.meter.limits.idle();
    let sending = async {
        match sender.send(request).await {
            Err((_, Some(unsent))) => {
                let (head, upload) = unsent.into_parts();
                (sender, _) = lane.connect(Speak::Any).await?;
                let request = addressed(head, upload, &lane.ask, &sender);
                sender.send(request).await.map_err(|(error, _)| LaneError::Http(error))
            }
            Err((error, None)) => Err(LaneError::Http(error)),
            Ok(response) => Ok(response),
        }
    };
    let sent = tokio::time::timeout(patience, sending).await.unwrap_or(Err(LaneError::Slow));
    let response = sent.map_err(|error| match progress.fault() {
        Some(fault) => fault.into(),
        None => Problem::Lane(error),
    })?;
    lane.keep(sender, address);
    stream.event.status = Some(response.status().as_u16());
    Ok(response)
}

/// The request as the server is to see it, in the form of its protocol.
pub(crate) fn addressed(mut head: Parts, body: Body, ask: &Ask, sender: &Sender) -> Request<Body> {
    let authority = ask.host.authority(ask.port, ask.scheme.default_port());
    let path = head.uri.path_and_query().map_or("/", |path| path.as_str()).to_owned();
    head.extensions.clear();
    let uri = match sender {
        Sender::Http1(_) => {
            head.version = Version::HTTP_11;
            join_cookies(&mut head.headers);
            if let Ok(value) = HeaderValue::from_str(&authority) {
                head.headers.insert(HOST, value);
            }
            Uri::try_from(path)
        }
        Sender::Http2(_) => {
            head.version = Version::HTTP_2;
            head.headers.remove(HOST);
            let scheme = if ask.scheme == Scheme::Https { "https" } else { "http" };
            Uri::try_from(format!("{scheme}://{authority}{path}"))
        }
    };
    // Both parts were taken from a valid URI and a canonical host.
    head.uri = uri.unwrap_or_default();
    Request::from_parts(head, body)
}

/// HTTP/2 may cut the cookie header in pieces; HTTP/1 knows only one.
fn join_cookies(headers: &mut hyper::HeaderMap) {
    let cookies: Vec<&[u8]> = headers.get_all(COOKIE).iter().map(HeaderValue::as_bytes).collect();
    if cookies.len() > 1
        && let Ok(joined) = HeaderValue::from_bytes(&cookies.join(&b"; "[..]))
    {
        headers.insert(COOKIE, joined);
    }
}

/// Makes the client's answer of the server's.
pub(crate) fn answer_to(
    task: &Arc<Task>,
    response: Response<Incoming>,
    secretive: bool,
    needles: Needles,
    progress: Progress,
    held: Option<Held>,
    stream: Stream,
) -> Result<Response<Body>, Problem> {
    let (mut head, incoming) = response.into_parts();
    let compressed = head.headers.get(CONTENT_ENCODING).is_some_and(|value| value != "identity");
    if compressed && secretive && !incoming.is_end_stream() {
        return Err(Problem::Compressed);
    }
    let blotted = tidy_answer(&mut head.headers, &needles);
    let size: usize =
        head.headers.iter().map(|(name, value)| name.as_str().len() + value.len() + 4).sum();
    task.meter.down(size as u64)?;
    head.extensions.clear();
    let record = Record { stream, progress, down: size as u64, fault: None, held, blotted };
    let needles = if compressed { Needles::default() } else { needles };
    let body = Download::new(incoming, &task.meter, needles, None, record);
    head.version = Version::default();
    Ok(Response::from_parts(head, body.boxed_unsync()))
}

/// Drops what concerns the server's connection, and hints at other ways to the same host.
pub(crate) fn tidy_answer(headers: &mut hyper::HeaderMap, needles: &Needles) -> usize {
    head::strip_hop_by_hop(headers);
    headers.remove("alt-svc");
    // By which ours are known.
    headers.remove(OWN_ANSWER);
    head::blot_out(headers, needles)
}
