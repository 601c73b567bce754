//! The API as this crate sees it: requests in, JSON, bytes or events out. Every right is checked there,
//! by the token that each request carries, and never here.

use std::fmt;
use std::path::PathBuf;
use std::pin::Pin;
use std::sync::Arc;

use axum::Router;
use axum::body::{Body, BodyDataStream};
use axum::http::{Method, Request, Response, StatusCode, header};
use bytes::Bytes;
use futures_util::StreamExt;
use hyper::service::Service as _;
use hyper_util::rt::TokioIo;
use hyper_util::service::TowerToHyperService;
use serde_json::Value;
use tokio::net::UnixStream;

/// The longest answer that is taken as one piece of JSON.
const MOST_JSON: usize = 32 << 20;
/// The longest event of a stream.
const MOST_EVENT: usize = 4 << 20;

/// Why nothing came of a request.
#[derive(Debug, Clone, thiserror::Error)]
pub(crate) enum Failure {
    /// The API said no, in its own words.
    #[error("{detail} ({code})")]
    Refused {
        status: u16,
        code: String,
        detail: String,
        elevation: Option<String>,
        question: Option<Box<Question>>,
    },
    #[error("the daemon cannot be reached: {0}")]
    Unreachable(String),
    #[error("the daemon sent an invalid answer")]
    Nonsense,
    #[error("there is more than {0} bytes of it")]
    TooLarge(usize),
}

/// A person was asked to allow what was refused.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Question {
    pub(crate) approval: String,
    /// Where that person decides; nothing where the daemon has no page for people.
    pub(crate) page: Option<String>,
}

type Answer = Pin<Box<dyn Future<Output = Result<Response<Body>, Failure>> + Send>>;

/// How requests get there.
#[derive(Clone)]
pub(crate) enum Way {
    /// In the daemon itself.
    Router(Router),
    /// Over the daemon's socket, which `ensure` brings to life if nobody answers.
    Socket { path: PathBuf, ensure: Arc<dyn Fn() -> Result<(), String> + Send + Sync> },
}

/// The API, for one session.
#[derive(Clone)]
pub(crate) struct Api {
    way: Way,
    /// Without one, the owner of the socket asks.
    token: Option<Arc<str>>,
}

impl fmt::Debug for Api {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // A token is worth what it allows.
        f.debug_struct("Api").field("token", &self.token.is_some()).finish_non_exhaustive()
    }
}

impl Api {
    pub(crate) fn new(way: Way, token: Option<Arc<str>>) -> Api {
        Api { way, token }
    }

    /// Whether the owner asks, to whom the API refuses nothing.
    pub(crate) fn is_owner(&self) -> bool {
        self.token.is_none()
    }

    pub(crate) async fn get(&self, path: &str) -> Result<Value, Failure> {
        self.json(Method::GET, path, None).await
    }

    pub(crate) async fn post(&self, path: &str, body: &Value) -> Result<Value, Failure> {
        self.json(Method::POST, path, Some(body)).await
    }

    pub(crate) async fn delete(&self, path: &str) -> Result<(), Failure> {
        self.open(Method::DELETE, path, Bytes::new()).await.map(drop)
    }

    async fn json(
        &self,
        method: Method,
        path: &str,
        body: Option<&Value>,
    ) -> Result<Value, Failure> {
        let body = body.map(|body| Bytes::from(body.to_string())).unwrap_or_default();
        let response = self.open(method, path, body).await?;
        let bytes = read(response, MOST_JSON).await?;
        serde_json::from_slice(&bytes).map_err(|_| Failure::Nonsense)
    }

    /// What is at `path`, if it is not longer than `most`.
    pub(crate) async fn bytes(&self, path: &str, most: usize) -> Result<Vec<u8>, Failure> {
        read(self.open(Method::GET, path, Bytes::new()).await?, most).await
    }

    /// A part of what is at `path`, and whether there is more behind it.
    pub(crate) async fn part(
        &self,
        path: &str,
        (from, most): (u64, usize),
    ) -> Result<(Vec<u8>, bool), Failure> {
        let response = self.open(Method::GET, path, Bytes::new()).await?;
        let mut stream = response.into_body().into_data_stream();
        let (mut skip, mut taken) = (from, Vec::new());
        while let Some(piece) = stream.next().await {
            let mut piece = piece.map_err(|error| Failure::Unreachable(error.to_string()))?;
            let before = usize::try_from(skip).unwrap_or(usize::MAX).min(piece.len());
            skip -= before as u64;
            let _ = piece.split_to(before);
            let room = most.saturating_sub(taken.len());
            taken.extend_from_slice(piece.get(..room.min(piece.len())).unwrap_or_default());
            if piece.len() > room {
                return Ok((taken, true));
            }
        }
        Ok((taken, false))
    }

    pub(crate) async fn put(&self, path: &str, body: Vec<u8>) -> Result<(), Failure> {
        self.open(Method::PUT, path, Bytes::from(body)).await.map(drop)
    }

    pub(crate) async fn events(&self, path: &str) -> Result<Events, Failure> {
        let response = self.open(Method::GET, path, Bytes::new()).await?;
        Ok(Events { stream: response.into_body().into_data_stream(), rest: Vec::new() })
    }

    /// An answer that is no refusal.
    async fn open(
        &self,
        method: Method,
        path: &str,
        body: Bytes,
    ) -> Result<Response<Body>, Failure> {
        let mut request = Request::builder()
            .method(method)
            .uri(path)
            .header(header::HOST, "localhost")
            .header(header::CONTENT_TYPE, "application/json");
        if let Some(token) = &self.token {
            request = request.header(header::AUTHORIZATION, format!("Bearer {token}"));
        }
        let request = request.body(Body::from(body)).map_err(|_| Failure::Nonsense)?;
        let response = self.send(request).await?;
        if response.status().is_success() {
            return Ok(response);
        }
        let status = response.status();
        let body = read(response, MOST_JSON).await?;
        Err(refusal(status, &serde_json::from_slice(&body).unwrap_or_default()))
    }

    fn send(&self, request: Request<Body>) -> Answer {
        match &self.way {
            Way::Router(router) => {
                let answer = TowerToHyperService::new(router.clone()).call(request);
                Box::pin(async move {
                    answer.await.map_err(|error| Failure::Unreachable(error.to_string()))
                })
            }
            Way::Socket { path, ensure } => {
                let (path, ensure) = (path.clone(), Arc::clone(ensure));
                Box::pin(async move {
                    let stream = match UnixStream::connect(&path).await {
                        Ok(stream) => stream,
                        Err(_) => {
                            let started = tokio::task::spawn_blocking(move || ensure()).await;
                            let broken = |_| Err("it cannot be started".to_owned());
                            started.unwrap_or_else(broken).map_err(Failure::Unreachable)?;
                            UnixStream::connect(&path).await.map_err(unreachable)?
                        }
                    };
                    over(stream, request).await
                })
            }
        }
    }
}

fn unreachable(error: impl fmt::Display) -> Failure {
    Failure::Unreachable(error.to_string())
}

/// One request on a connection of its own: whoever drops the answer ends what was asked for.
async fn over(stream: UnixStream, request: Request<Body>) -> Result<Response<Body>, Failure> {
    let handshake = hyper::client::conn::http1::handshake(TokioIo::new(stream));
    let (mut sender, connection) = handshake.await.map_err(unreachable)?;
    let connection = tokio::spawn(connection);
    let ends = AbortOnDrop(connection.abort_handle());
    let response = sender.send_request(request).await.map_err(unreachable)?;
    let (parts, body) = response.into_parts();
    // The connection lives as long as the body is read, and no longer.
    let body = Body::from_stream(Body::new(body).into_data_stream().map(move |piece| {
        let _held = (&ends, &sender);
        piece
    }));
    Ok(Response::from_parts(parts, body))
}

struct AbortOnDrop(tokio::task::AbortHandle);

impl Drop for AbortOnDrop {
    fn drop(&mut self) {
        self.0.abort();
    }
}

fn refusal(status: StatusCode, problem: &Value) -> Failure {
    let text = |name: &str| problem.get(name).and_then(Value::as_str).map(str::to_owned);
    Failure::Refused {
        status: status.as_u16(),
        code: text("code").unwrap_or_else(|| status.as_u16().to_string()),
        detail: text("detail").unwrap_or_else(|| "the daemon gave no reason".to_owned()),
        elevation: text("elevation_hint"),
        question: text("approval")
            .map(|approval| Box::new(Question { approval, page: text("approval_url") })),
    }
}

async fn read(response: Response<Body>, most: usize) -> Result<Vec<u8>, Failure> {
    let mut stream = response.into_body().into_data_stream();
    let mut all = Vec::new();
    while let Some(piece) = stream.next().await {
        let piece = piece.map_err(unreachable)?;
        if all.len() + piece.len() > most {
            return Err(Failure::TooLarge(most));
        }
        all.extend_from_slice(&piece);
    }
    Ok(all)
}

/// Server-sent events, one after the other.
#[derive(Debug)]
pub(crate) struct Events {
    stream: BodyDataStream,
    rest: Vec<u8>,
}

#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Event {
    pub(crate) kind: String,
    pub(crate) data: String,
}

impl Events {
    /// The next event; nothing when the stream is over.
    pub(crate) async fn next(&mut self) -> Result<Option<Event>, Failure> {
        loop {
            if let Some(end) = self.rest.windows(2).position(|pair| pair == b"\n\n") {
                let block: Vec<u8> = self.rest.drain(..end + 2).collect();
                if let Some(event) = parse(&String::from_utf8_lossy(&block)) {
                    return Ok(Some(event));
                }
                continue;
            }
            match self.stream.next().await {
                None => return Ok(None),
                Some(piece) => self.rest.extend_from_slice(&piece.map_err(unreachable)?),
            }
            if self.rest.len() > MOST_EVENT {
                return Err(Failure::TooLarge(MOST_EVENT));
            }
        }
    }
}

/// A block without a kind is a sign of life.
fn parse(block: &str) -> Option<Event> {
    let field = |name: &str| {
        let line = block.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))?;
        Some(line.strip_prefix(' ').unwrap_or(line).to_owned())
    };
    Some(Event { kind: field("event")?, data: field("data").unwrap_or_default() })
}

/// A piece of a path or of a query.
pub(crate) fn encoded(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for byte in text.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'_' | b'.' | b'~' => {
                out.push(char::from(byte));
            }
            _ => out.push_str(&format!("%{byte:02X}")),
        }
    }
    // A path of dots would mean another one.
    if out == "." || out == ".." { out.replace('.', "%2E") } else { out }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_text_changes_the_path_that_it_stands_in() {
        assert_eq!(encoded("a/../b?c=d#e"), "a%2F..%2Fb%3Fc%3Dd%23e");
        assert_eq!(encoded(".."), "%2E%2E");
        assert_eq!(encoded("web-1_x.y~"), "web-1_x.y~");
    }

    #[test]
    fn events_are_told_from_signs_of_life() {
        assert_eq!(parse(":\n\n"), None);
        let event = parse("id: 3\nevent: stdout\ndata: {\"base64\":\"aGk=\"}\n\n").unwrap();
        assert_eq!((&event.kind[..], &event.data[..]), ("stdout", "{\"base64\":\"aGk=\"}"));
    }

    #[tokio::test]
    async fn events_come_whole_however_they_are_cut() {
        let pieces = ["event: a\nda", "ta: 1\n", "\n:\n\nevent: b\ndata: 2\n\n"];
        let stream = futures_util::stream::iter(pieces.map(Ok::<_, std::io::Error>));
        let mut events =
            Events { stream: Body::from_stream(stream).into_data_stream(), rest: Vec::new() };
        assert_eq!(events.next().await.unwrap().unwrap().data, "1");
        assert_eq!(events.next().await.unwrap().unwrap().data, "2");
        assert_eq!(events.next().await.unwrap(), None);
    }

    #[tokio::test]
    async fn a_part_of_a_file_is_taken_and_the_rest_is_told_of() {
        let router =
            Router::new().route("/f", axum::routing::get(|| async { "0123456789" })).fallback(
                || async { (StatusCode::FORBIDDEN, r#"{"code":"not-granted","detail":"no"}"#) },
            );
        let api = Api::new(Way::Router(router), None);
        assert_eq!(api.part("/f", (2, 3)).await.unwrap(), (b"234".to_vec(), true));
        assert_eq!(api.part("/f", (8, 30)).await.unwrap(), (b"89".to_vec(), false));
        assert!(matches!(api.bytes("/f", 9).await, Err(Failure::TooLarge(9))));
        let refused = api.get("/else").await.unwrap_err();
        assert_eq!(refused.to_string(), "no (not-granted)");
    }
}
