//! The inference endpoint: models for agents that hold no key, with every token counted.

use std::sync::Arc;

use bytes::Bytes;
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::Incoming;
use hyper::header::{self, HeaderMap, HeaderName, HeaderValue};
use hyper::{Method, Request, Response, StatusCode, Uri};
use ringwall_egress::{InferenceSpec, Shape};
use serde_json::Value;
use thiserror::Error;

use crate::authorize::{Ask, Permit, survivors};
use crate::body::{Body, Download, Progress, Record};
use crate::event::Door;
use crate::exchange::{Visit, forward, tidy_answer};
use crate::head;
use crate::host::Host;
use crate::lane::Lane;
use crate::meter::{Exhausted, Meter};
use crate::needles::Needles;
use crate::problem::Problem;
use crate::rules::Scheme;
use crate::secret::{NoSecret, Secret, Sources};
use crate::task::Stream;

pub const HOST: &str = "inference.ringwall";
const LONGEST_CALL: usize = 16 * 1024 * 1024;
/// Of an answer in one piece, and of one line of a stream.
const LONGEST_READ: usize = 8 * 1024 * 1024;
/// Where a provider reports no usage, tokens are taken to have this many bytes.
const BYTES_PER_TOKEN: u64 = 4;

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
    #[error("the call is no JSON object, or too long")]
    Body,
    #[error("model {0:?} is not allowed")]
    Model(String),
}

impl BadCall {
    pub(crate) fn status(&self) -> StatusCode {
        match self {
            Self::Absent | Self::Path(_) => StatusCode::NOT_FOUND,
            Self::Body => StatusCode::BAD_REQUEST,
            Self::Model(_) => StatusCode::FORBIDDEN,
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
    let server = inference.server_for(&head.method, path)?;
    task.meter.has_tokens()?;
    task.meter.request(head::size(&head))?;
    let body = Limited::new(incoming, LONGEST_CALL).collect().await;
    let body = body.map_err(|_| BadCall::Body)?.to_bytes();
    let body = if head.method == Method::POST { checked_call(server, path, &body)? } else { body };
    if body.len() as u64 > task.meter.limits.request_body {
        return Err(Exhausted::RequestBody.into());
    }
    task.meter.up(body.len() as u64)?;
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
    let mut pinned = survivors(&server.ask.host, &answers, &Permit::default(), exempt)?;
    if server.ask.scheme == Scheme::Http {
        // A key in the clear goes to machines that were named for it, and no further.
        pinned.retain(|address| exempt.iter().any(|range| range.contains(*address)));
    }
    let lane = Lane::new(&task.shared, server.ask.clone(), pinned, true);
    let body: Body = Full::new(body).map_err(|never| match never {}).boxed_unsync();
    let progress = Progress::default();
    let response = forward(task, &lane, parts, body, &progress, stream).await?;
    let (mut head, incoming) = response.into_parts();
    if head.headers.contains_key(header::CONTENT_ENCODING) {
        return Err(Problem::Compressed);
    }
    let blotted = tidy_answer(&mut head.headers, &inference.needles);
    head.extensions.clear();
    head.version = hyper::Version::default();
    let usage = UsageReader::new(&task.meter, &head.headers, asked, head.status.is_success());
    let record =
        Record { stream: stream.clone(), progress, down: 0, fault: None, held: None, blotted };
    let needles = inference.needles.clone();
    let body = Download::new(incoming, &task.meter, needles, Some(usage), record);
    Ok(Response::from_parts(head, body.boxed_unsync()))
}

/// Checks the model, and asks for usage where a stream would not tell it by itself.
fn checked_call(server: &Server, path: &str, body: &[u8]) -> Result<Bytes, BadCall> {
    let mut call: Value = serde_json::from_slice(body).map_err(|_| BadCall::Body)?;
    let fields = call.as_object_mut().ok_or(BadCall::Body)?;
    let model = fields.get("model").and_then(Value::as_str).unwrap_or_default();
    if !server.models.is_empty() && !server.models.iter().any(|allowed| allowed == model) {
        return Err(BadCall::Model(crate::event::bounded(model)));
    }
    let streams = fields.get("stream").and_then(Value::as_bool).unwrap_or_default();
    if path == "/v1/chat/completions" && streams {
        let options =
            fields.entry("stream_options").or_insert_with(|| Value::Object(Default::default()));
        let options = options.as_object_mut().ok_or(BadCall::Body)?;
        options.insert("include_usage".into(), Value::Bool(true));
    }
    serde_json::to_vec(&call).map(Bytes::from).map_err(|_| BadCall::Body)
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

/// Reads the usage out of an answer that goes by, and counts it when the answer ends or is left.
pub(crate) struct UsageReader {
    meter: Arc<Meter>,
    streams: bool,
    waiting: Vec<u8>,
    asked: u64,
    answered: u64,
    found: Option<(u64, u64)>,
    counts: bool,
}

impl UsageReader {
    fn new(meter: &Arc<Meter>, headers: &HeaderMap, asked: u64, counts: bool) -> Self {
        let streams = headers
            .get(header::CONTENT_TYPE)
            .is_some_and(|kind| kind.as_bytes().starts_with(b"text/event-stream"));
        let meter = Arc::clone(meter);
        Self { meter, streams, waiting: Vec::new(), asked, answered: 0, found: None, counts }
    }

    pub(crate) fn read(&mut self, piece: &[u8]) {
        self.answered += piece.len() as u64;
        if self.waiting.len() + piece.len() > LONGEST_READ {
            // Too long to be understood: it is counted by its size.
            self.waiting.clear();
            return;
        }
        self.waiting.extend_from_slice(piece);
        if !self.streams {
            return;
        }
        while let Some(end) = memchr::memchr(b'\n', &self.waiting) {
            let line: Vec<u8> = self.waiting.drain(..=end).collect();
            if let Some(data) = line.strip_prefix(b"data:") {
                self.look_at(data);
            }
        }
    }

    fn look_at(&mut self, json: &[u8]) {
        let Ok(value) = serde_json::from_slice::<Value>(json) else {
            return;
        };
        let places = [Some(&value), value.get("response"), value.get("message")];
        for usage in places.into_iter().flatten().filter_map(|place| place.get("usage")) {
            let read = |names: &[&str]| {
                names.iter().filter_map(|name| usage.get(*name)).filter_map(Value::as_u64).sum()
            };
            let input: u64 = read(&[
                "prompt_tokens",
                "input_tokens",
                "cache_creation_input_tokens",
                "cache_read_input_tokens",
            ]);
            let output: u64 = read(&["completion_tokens", "output_tokens"]);
            // Streams report more than once, each time the sum so far.
            let (known_input, known_output) = self.found.unwrap_or_default();
            self.found = Some((known_input.max(input), known_output.max(output)));
        }
    }
}

impl Drop for UsageReader {
    fn drop(&mut self) {
        if !self.streams {
            let whole = std::mem::take(&mut self.waiting);
            self.look_at(&whole);
        }
        let guessed = (self.asked / BYTES_PER_TOKEN, self.answered / BYTES_PER_TOKEN);
        let (input, output) = self.found.unwrap_or(guessed);
        if self.counts {
            self.meter.tokens(input, output);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::meter::Limits;

    fn counted(kind: &'static str, pieces: &[&str]) -> (u64, u64) {
        let meter = Arc::new(Meter::new(Limits::default()));
        let mut headers = HeaderMap::new();
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(kind));
        let mut reader = UsageReader::new(&meter, &headers, 400, true);
        for piece in pieces {
            reader.read(piece.as_bytes());
        }
        drop(reader);
        let usage = meter.usage();
        (usage.input_tokens, usage.output_tokens)
    }

    #[test]
    fn tokens_are_read_in_every_shape() {
        let json = "application/json";
        let sse = "text/event-stream; charset=utf-8";
        assert_eq!(
            counted(json, &[r#"{"usage":{"prompt_tokens":7,"comple"#, r#"tion_tokens":5}}"#]),
            (7, 5)
        );
        assert_eq!(counted(json, &[r#"{"usage":{"input_tokens":7,"output_tokens":5}}"#]), (7, 5));
        assert_eq!(
            counted(
                sse,
                &[
                    "data: {\"choices\":[],\"usage\":null}\n\n",
                    "data: {\"usage\":{\"prompt_tokens\":3,\"completion_tokens\":9}}\n\ndata: [DONE]\n\n"
                ]
            ),
            (3, 9)
        );
        assert_eq!(
            counted(
                sse,
                &[
                    "event: response.completed\nda",
                    "ta: {\"response\":{\"usage\":{\"input_tokens\":3,\"output_tokens\":9}}}\n\n"
                ]
            ),
            (3, 9)
        );
        assert_eq!(
            counted(
                sse,
                &[
                    "data: {\"type\":\"message_start\",\"message\":{\"usage\":{\"input_tokens\":10,\"cache_read_input_tokens\":5,\"output_tokens\":1}}}\n\n",
                    "data: {\"type\":\"message_delta\",\"usage\":{\"output_tokens\":20}}\n\n",
                ]
            ),
            (15, 20)
        );
    }

    #[test]
    fn an_answer_that_tells_no_usage_is_counted_by_its_size() {
        assert_eq!(counted("text/event-stream", &["data: {\"x\":1}\n\n"]), (100, 3));
        assert_eq!(counted("application/json", &["not json"]), (100, 2));
    }
}
