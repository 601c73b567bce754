//! The body and the query of a request, read within bounds.

use std::sync::Arc;
use std::time::Duration;

use axum::Json;
use axum::body::{Body as Stream, BodyDataStream};
use axum::extract::{FromRequest, FromRequestParts, Query, Request, State};
use axum::http::request::Parts;
use axum::http::{HeaderMap, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use bytes::{Bytes, BytesMut};
use futures_util::StreamExt;
use serde::de::DeserializeOwned;

use crate::caller::Asker;
use crate::held::Held;
use crate::lanes::Whose;
use crate::problem::{Code, Problem};
use crate::service::Service;

/// The longest body of most requests.
const MAX_BODY_BYTES: usize = 1 << 20;
/// The longest input of a tool or of a command, and the rest of its request.
pub(crate) const MAX_LARGE_BODY_BYTES: usize = (16 << 20) + (64 << 10);
/// How long the next piece of a body may take.
const BODY_PIECE_TIMEOUT: Duration = Duration::from_secs(30);

/// JSON, with our own words for its faults, and the memory that it takes.
#[derive(Debug)]
pub(crate) struct Body<T, const BYTES: usize = MAX_BODY_BYTES>(pub(crate) T, pub(crate) Held);

/// A body that may have a long input in it.
pub(crate) type LargeBody<T> = Body<T, MAX_LARGE_BODY_BYTES>;

impl<T: DeserializeOwned, const BYTES: usize> FromRequest<Arc<Service>> for Body<T, BYTES> {
    type Rejection = Problem;

    async fn from_request(request: Request, service: &Arc<Service>) -> Result<Self, Problem> {
        let kind = request.headers().get(header::CONTENT_TYPE);
        let kind = kind.and_then(|kind| kind.to_str().ok()).unwrap_or_default();
        let essence = kind.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
        if essence != "application/json" {
            let why = "the body must be JSON; send `Content-Type: application/json`";
            return Err(Problem::new(Code::BadRequest, why));
        }
        // The caller is known by now. If not, the request has the room of those without a token.
        let whose = request.extensions().get::<Whose>().cloned();
        let mut held = service.rooms.of(&whose.unwrap_or_else(|| Whose::Holder(String::new())));
        let (parts, body) = request.into_parts();
        let bytes = read_whole((&parts.headers, body), BYTES, &mut held).await?;
        let body = parse(&bytes, &mut held)?;
        Ok(Body(body, held))
    }
}

/// Reads a body of at most so many bytes.
async fn read_whole(
    (headers, body): (&HeaderMap, Stream),
    most: usize,
    held: &mut Held,
) -> Result<Bytes, Problem> {
    let too_large = || {
        let why = format!("the body has more than {most} bytes; send less at a time");
        Problem::new(Code::TooLarge, why)
    };
    if announced(headers).is_some_and(|length| length > most) {
        return Err(too_large());
    }
    let mut body = body.into_data_stream();
    let mut bytes = BytesMut::new();
    while let Some(piece) = next_piece(&mut body, BODY_PIECE_TIMEOUT).await? {
        if bytes.len() + piece.len() > most {
            return Err(too_large());
        }
        held.grow(piece.len())?;
        bytes.extend_from_slice(&piece);
    }
    Ok(bytes.freeze())
}

fn announced(headers: &HeaderMap) -> Option<usize> {
    headers.get(header::CONTENT_LENGTH)?.to_str().ok()?.parse().ok()
}

/// True if the headers announce a body that is no larger than that of most requests.
pub(crate) fn is_short(headers: &HeaderMap) -> bool {
    announced(headers).is_some_and(|length| length <= MAX_BODY_BYTES)
}

/// The next piece of a body, from a client that sends one in time.
pub(crate) async fn next_piece(
    body: &mut BodyDataStream,
    patience: Duration,
) -> Result<Option<Bytes>, Problem> {
    let broken = |why: String| Problem::new(Code::BadRequest, why);
    match tokio::time::timeout(patience, body.next()).await {
        Ok(piece) => piece.transpose().map_err(|error| broken(error.to_string())),
        Err(_) => {
            let seconds = patience.as_secs();
            Err(broken(format!("nothing of the body came for {seconds} seconds; send it again")))
        }
    }
}

/// Values in one body, of whatever size. A list of numbers takes many times the memory of its text.
const MAX_JSON_VALUES: usize = 100_000;
/// The memory of a value beyond its text. A small object in a map takes the most.
const BYTES_OF_VALUE: usize = 256;

/// Makes something of JSON, whose text is counted already.
pub(crate) fn parse<T: DeserializeOwned>(json: &[u8], held: &mut Held) -> Result<T, Problem> {
    hold_values(json, held)?;
    let Json(body) = Json::from_bytes(json)?;
    Ok(body)
}

fn hold_values(json: &[u8], held: &mut Held) -> Result<(), Problem> {
    let count = count_values(json);
    if count > MAX_JSON_VALUES {
        let why = format!("the body has more than {MAX_JSON_VALUES} values; send less at a time");
        return Err(Problem::new(Code::TooLarge, why));
    }
    held.grow(count * BYTES_OF_VALUE)
}

/// Counts without building anything: each value but the first comes after one of these.
fn count_values(json: &[u8]) -> usize {
    let (mut in_text, mut escaped, mut count) = (false, false, 0);
    for byte in json {
        match (in_text, escaped, byte) {
            (true, true, _) => escaped = false,
            (true, false, b'\\') => escaped = true,
            (_, _, b'"') => in_text = !in_text,
            (false, _, b',' | b'[' | b'{' | b':') => count += 1,
            _ => {}
        }
    }
    count
}

/// Reads what agents send to `/mcp` within the same bounds, before the library that serves it parses it.
pub(crate) async fn bounded(
    State(service): State<Arc<Service>>,
    request: Request,
    next: Next,
) -> Response {
    if !request.headers().contains_key(header::AUTHORIZATION) {
        // It is turned away without a look at its body.
        return next.run(request).await;
    }
    match hold_whole(&service, request).await {
        Ok((request, held)) => {
            let response = next.run(request).await;
            // The request is under way for as long as its answer is.
            response.map(|body| {
                Stream::from_stream(body.into_data_stream().map(move |piece| {
                    let _held = &held;
                    piece
                }))
            })
        }
        Err(problem) => problem.into_response(),
    }
}

async fn hold_whole(service: &Arc<Service>, request: Request) -> Result<(Request, Held), Problem> {
    let (mut parts, body) = request.into_parts();
    let Asker(caller) = Asker::from_request_parts(&mut parts, service).await?;
    let mut held = service.rooms.of(&Whose::of(&caller));
    let most = ringwall_mcp::MAX_BODY_BYTES;
    let bytes = read_whole((&parts.headers, body), most, &mut held).await?;
    hold_values(&bytes, &mut held)?;
    Ok((Request::from_parts(parts, Stream::from(bytes)), held))
}

#[derive(Debug)]
pub(crate) struct Params<T>(pub(crate) T);

impl<T: DeserializeOwned> FromRequestParts<Arc<Service>> for Params<T> {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &Arc<Service>) -> Result<Self, Problem> {
        let Query(params) = Query::from_request_parts(parts, state).await?;
        Ok(Params(params))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::held::Rooms;

    fn has_few_values(json: &[u8]) -> bool {
        count_values(json) <= MAX_JSON_VALUES
    }

    #[test]
    fn values_are_counted_and_not_what_stands_in_texts() {
        let list = |count: usize| format!("[{}0]", "0,".repeat(count));
        assert!(has_few_values(list(MAX_JSON_VALUES - 1).as_bytes()));
        assert!(!has_few_values(list(MAX_JSON_VALUES).as_bytes()));
        assert!(!has_few_values("[".repeat(MAX_JSON_VALUES + 1).as_bytes()));
        let text = format!("{{\"input\":\"\\\"{}\"}}", ",[{".repeat(MAX_JSON_VALUES));
        assert!(has_few_values(text.as_bytes()), "one text, however long");
        // A quote that is escaped does not end a text, and one that is not does.
        let hidden = format!("[\"\\\\\",{}0]", "0,".repeat(MAX_JSON_VALUES));
        assert!(!has_few_values(hidden.as_bytes()));
    }

    #[test]
    fn many_small_values_take_room_beyond_their_text() {
        let rooms = Rooms::default();
        let whose = Whose::Holder("a".to_owned());
        let list = format!("[{}0]", "0,".repeat(MAX_JSON_VALUES - 1));
        let mut all = Vec::new();
        let refused = loop {
            let mut held = rooms.of(&whose);
            match parse::<serde_json::Value>(list.as_bytes(), &mut held) {
                Ok(_) => all.push(held),
                Err(problem) => break problem,
            }
        };
        assert_eq!(refused.status(), 429);
        assert!(all.len() < 4, "{} of them", all.len());
    }

    #[tokio::test]
    async fn a_body_is_refused_when_it_is_too_long_however_that_is_said() {
        let rooms = Rooms::default();
        let read = async |length: Option<&str>, text: &'static str| {
            let mut headers = HeaderMap::new();
            if let Some(length) = length {
                headers.insert(header::CONTENT_LENGTH, length.parse().unwrap());
            }
            let body = (&headers, Stream::from(text));
            read_whole(body, 4, &mut rooms.of(&Whose::Owner)).await.map_err(|it| it.status())
        };
        assert_eq!(read(None, "four").await.unwrap(), "four");
        assert_eq!(read(None, "fives").await.unwrap_err(), 413);
        assert_eq!(read(Some("5"), "").await.unwrap_err(), 413);
    }

    #[tokio::test]
    async fn a_client_that_sends_nothing_is_not_waited_for() {
        let silent = Stream::from_stream(futures_util::stream::pending::<std::io::Result<Bytes>>());
        let mut stream = silent.into_data_stream();
        let problem = next_piece(&mut stream, Duration::from_millis(1)).await.unwrap_err();
        assert_eq!(problem.status(), 400);
    }
}
