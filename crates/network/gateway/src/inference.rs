//! The inference endpoint: models for agents that hold no key, with every token counted.

use std::sync::Arc;

use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::body::{Body as _, Incoming};
use hyper::header::{self, HeaderMap, HeaderName, HeaderValue};
use hyper::{Method, Request, Response, StatusCode, Uri, Version};
use ringwall_egress::{InferenceSpec, Shape};
use ringwall_rules::{Ask, Permit};
use ringwall_spec::{Host, Scheme};
use thiserror::Error;

use crate::address::survivors;
use crate::body::{Body, Download, Progress, Record};
use crate::call;
use crate::event::Door;
use crate::exchange::{Visit, forward, tidy_answer};
use crate::head::{self, BadHead};
use crate::held::{self, Reading};
use crate::lane::Lane;
use crate::meter::Reserved;
use crate::needles::Needles;
use crate::problem::Problem;
use crate::secret::{NoSecret, Secret, Sources};
use crate::task::{Stream, Task};
use crate::usage::UsageReader;

pub const HOST: &str = "inference.ringwall";
const LONGEST_CALL: usize = 16 * 1024 * 1024;

#[derive(Debug, Error)]
pub enum BadInference {
    #[error("{0:?} is no http or https URL of a model provider")]
    Url(String),
    #[error("the key of {url}: {reason}")]
    Key { url: String, reason: NoSecret },
}

#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub(crate) enum BadCall {
    #[error("this task has no inference endpoint")]
    Absent,
    #[error("no provider serves {0}")]
    Path(String),
    #[error(
        "the call is not a JSON object as the provider's API has it, has too many values, or names a field twice"
    )]
    Body,
    #[error(
        "the field {0:?} is not passed on to a model: by it, the provider could reach others or keep something; leave it out"
    )]
    Field(String),
    #[error(
        "content of the kind {0:?} is not passed on to a model unless all of it is in the call"
    )]
    Content(String),
    #[error(
        "tools of the kind {0:?} are run by the provider, and could reach others; use tools of your own"
    )]
    Tool(String),
    #[error("model {0:?} is not allowed")]
    Model(String),
}

impl BadCall {
    pub(crate) fn status(&self) -> StatusCode {
        match self {
            Self::Absent | Self::Path(_) => StatusCode::NOT_FOUND,
            Self::Body => StatusCode::BAD_REQUEST,
            Self::Model(_) | Self::Field(_) | Self::Content(_) | Self::Tool(_) => {
                StatusCode::FORBIDDEN
            }
        }
    }
}

struct Server {
    shape: Shape,
    ask: Ask,
    prefix: String,
    key: Option<Secret>,
    models: Vec<String>,
}

pub(crate) struct Inference {
    servers: Vec<Server>,
    needles: Needles,
}

pub(crate) fn is_inference(host: &Host, port: u16) -> bool {
    host.name() == Some(HOST) && port == 80
}

impl Inference {
    /// Loads the keys; may block.
    pub(crate) fn load(spec: &InferenceSpec, sources: &mut Sources) -> Result<Self, BadInference> {
        let mut needles = Needles::default();
        let mut servers = Vec::new();
        for provider in &spec.providers {
            let url = || BadInference::Url(provider.base_url.clone());
            let uri: Uri = provider.base_url.parse().map_err(|_| url())?;
            let scheme = match uri.scheme_str() {
                Some("https") => Scheme::Https,
                Some("http") => Scheme::Http,
                _ => return Err(url()),
            };
            let authority = uri.authority().ok_or_else(url)?;
            let (host, port) =
                Host::parse_authority(authority.as_str(), Some(scheme.default_port()))
                    .map_err(|_| url())?;
            let key =
                provider.key.as_ref().map(|key| sources.load(key)).transpose().map_err(
                    |reason| BadInference::Key { url: provider.base_url.clone(), reason },
                )?;
            if let Some(key) = &key {
                needles.add(key.bytes());
            }
            servers.push(Server {
                shape: provider.shape,
                ask: Ask { host, port, scheme, request: None },
                prefix: uri.path().trim_end_matches('/').to_owned(),
                key,
                models: provider.models.clone(),
            });
        }
        Ok(Self { servers, needles })
    }

    fn server_for(&self, method: &Method, path: &str) -> Result<&Server, BadCall> {
        let shape = match (method.as_str(), path) {
            ("POST", "/v1/messages" | "/v1/messages/count_tokens") => Some(Shape::Anthropic),
            ("POST", "/v1/chat/completions" | "/v1/responses" | "/v1/embeddings") => {
                Some(Shape::OpenAi)
            }
            ("GET", "/v1/models") => None,
            _ => return Err(BadCall::Path(crate::event::bounded(path))),
        };
        self.servers
            .iter()
            .find(|server| shape.is_none_or(|shape| server.shape == shape))
            .ok_or_else(|| BadCall::Path(path.to_owned()))
    }
}

pub(crate) async fn exchange(visit: &Arc<Visit>, request: Request<Incoming>) -> Response<Body> {
    let version = request.version();
    let path = request.uri().path().to_owned();
    let mut stream = visit.task.stream(Door::Inference).asking(request.method(), &path);
    stream.event.host = HOST.into();
    match call(visit, request, &path, &mut stream).await {
        Ok(response) => response,
        Err(problem) => {
            stream.note(problem.verdict(), &problem);
            problem.into_response(version)
        }
    }
}

async fn call(
    visit: &Arc<Visit>,
    request: Request<Incoming>,
    path: &str,
    stream: &mut Stream,
) -> Result<Response<Body>, Problem> {
    let task = &visit.task;
    let inference = task.inference.as_ref().ok_or(BadCall::Absent)?;
    let (head, incoming) = request.into_parts();
    if head.version < Version::HTTP_11 {
        return Err(BadHead::Version.into());
    }
    if head.headers.contains_key(header::UPGRADE) {
        return Err(BadHead::Upgrade.into());
    }
    let server = inference.server_for(&head.method, path)?;
    task.meter.request(head::size(&head))?;
    let checked = checked(task, server, path, (&head.method, incoming)).await?;
    let Call { body, reserved } = checked;
    stream.event.bytes_up = body.len() as u64;
    stream.event.rule = Some(format!("inference {}", server.ask.host));
    stream.event.secret = server.key.as_ref().map(|_| "inference".to_owned());
    let asked = Bytes::len(&body) as u64;
    let mut outgoing = Request::new(());
    *outgoing.method_mut() = head.method.clone();
    let target = format!("{}{path}", server.prefix);
    *outgoing.uri_mut() = target.parse().map_err(|_| BadCall::Path(path.to_owned()))?;
    *outgoing.headers_mut() = headers_for(server, &head.headers, body.len());
    let (parts, ()) = outgoing.into_parts();
    let answers = task.shared.resolver.addresses(&server.ask.host).await?;
    let exempt = &task.shared.exempt;
    let to = server.ask.destination();
    let mut pinned = survivors(to, &answers, &Permit::default(), exempt)?;
    if server.ask.scheme == Scheme::Http {
        // A key in the clear goes to machines that were named for it, and no further.
        pinned.retain(|address| exempt.iter().any(|exempt| exempt.opens(to, *address)));
    }
    let lane = Lane::new(&task.shared, server.ask.clone(), pinned, true);
    let body: Body = Full::new(body).map_err(|never| match never {}).boxed_unsync();
    let progress = Progress::default();
    let response = match forward(task, &lane, parts, body, &progress, stream).await {
        Ok(response) => response,
        Err(problem) => {
            if problem.before_anything_was_sent() {
                reserved.settle(0, 0);
            }
            return Err(problem);
        }
    };
    let (mut head, incoming) = response.into_parts();
    if head.headers.contains_key(header::CONTENT_ENCODING) {
        return Err(Problem::Compressed);
    }
    let blotted = tidy_answer(&mut head.headers, &inference.needles);
    head.extensions.clear();
    head.version = hyper::Version::default();
    let usage = if head.status.is_success() {
        Some(UsageReader::new(reserved, &task.shared.room, &head.headers, asked))
    } else {
        // Nobody is paid for an error.
        reserved.settle(0, 0);
        None
    };
    let record =
        Record { stream: stream.clone(), progress, down: 0, fault: None, held: None, blotted };
    let needles = inference.needles.clone();
    let body = Download::new(incoming, &task.meter, needles, usage, record);
    Ok(Response::from_parts(head, body.boxed_unsync()))
}

/// What goes to the provider, paid for in advance.
struct Call {
    body: Bytes,
    reserved: Reserved,
}

/// Reads and checks a call.
async fn checked(
    task: &Arc<Task>,
    server: &Server,
    path: &str,
    (method, mut incoming): (&Method, Incoming),
) -> Result<Call, Problem> {
    if *method == Method::GET {
        if !incoming.is_end_stream() {
            return Err(BadCall::Body.into());
        }
        return Ok(Call { body: Bytes::new(), reserved: task.meter.reserve_tokens(0, 0)? });
    }
    // Before anything is read for a task that has none left.
    task.meter.reserve_tokens(0, 0)?.settle(0, 0);
    let mut reading = Reading::new(task, LONGEST_CALL);
    reading.read_to_end(&mut incoming).await?;
    let read = reading.into_bytes();
    // One call at a time is taken apart, and not where connections are served.
    let turn = Arc::clone(&task.shared.judging).acquire_owned().await;
    let (path, models) = (path.to_owned(), server.models.clone());
    let judged = tokio::task::spawn_blocking(move || {
        let _turn = turn;
        call::check(&path, &models, &read)
    });
    let checked = judged.await.map_err(|_| Problem::Broken)??;
    let reserved = task.meter.reserve_tokens(checked.input_tokens, checked.output_tokens)?;
    match held::kept(&task.shared.room, checked.body) {
        Ok(body) => Ok(Call { body, reserved }),
        Err(full) => {
            reserved.settle(0, 0);
            Err(full.into())
        }
    }
}

/// Few headers of the client go on, and none that could name another key or account.
fn headers_for(server: &Server, from: &HeaderMap, length: usize) -> HeaderMap {
    let mut headers = HeaderMap::new();
    for name in ["accept", "content-type", "anthropic-version", "anthropic-beta", "openai-beta"] {
        if let Some(value) = from.get(name) {
            headers.insert(HeaderName::from_static(name), value.clone());
        }
    }
    headers.insert(header::ACCEPT_ENCODING, HeaderValue::from_static("identity"));
    headers.insert(header::CONTENT_LENGTH, HeaderValue::from(length));
    if let Some(key) = &server.key {
        let (name, value) = match server.shape {
            Shape::Anthropic => (HeaderName::from_static("x-api-key"), key.text().to_owned()),
            Shape::OpenAi => (header::AUTHORIZATION, format!("Bearer {}", key.text())),
        };
        let value = zeroize::Zeroizing::new(value);
        // A secret holds only bytes that can stand in a header.
        if let Ok(mut value) = HeaderValue::from_str(&value) {
            value.set_sensitive(true);
            headers.insert(name, value);
        }
    }
    headers
}
