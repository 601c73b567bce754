//! One request by `wasi:http`.

use std::collections::BTreeMap;

use ringwall_tool_sdk::Failure;
use wasip2::http::outgoing_handler;
use wasip2::http::types::{
    ErrorCode, Fields, IncomingResponse, Method, OutgoingBody, OutgoingRequest, Scheme,
};
use wasip2::io::streams::StreamError;

use crate::url::Url;
use crate::{Answer, Input};

/// As much as one write takes.
const CHUNK: usize = 4096;

pub(crate) fn send(input: &Input, url: &Url) -> Result<Answer, Failure> {
    let request = request(input, url)?;
    let body = request.body().map_err(|()| broken("the request takes no body"))?;
    let answer = outgoing_handler::handle(request, None).map_err(|error| refused(url, &error))?;
    // A server that refuses early does not read all of it; its answer says why.
    let _ = write(&body, input.body.as_deref().unwrap_or_default().as_bytes());
    let _ = OutgoingBody::finish(body, None);
    answer.subscribe().block();
    let answered = answer.get().and_then(Result::ok);
    let response = answered.ok_or_else(|| broken("no answer came"))?;
    receive(&response.map_err(|error| refused(url, &error))?, input.max_bytes)
}

fn request(input: &Input, url: &Url) -> Result<OutgoingRequest, Failure> {
    let headers = Fields::new();
    for (name, value) in &input.headers {
        let added = headers.append(name, value.as_bytes());
        added.map_err(|error| Failure::bad_input(format_args!("header {name}: {error:?}")))?;
    }
    if let Some(body) = &input.body {
        let length = body.len().to_string().into_bytes();
        let added = headers.set("content-length", &[length]);
        added.map_err(|error| broken(&format!("{error:?}")))?;
    }
    let request = OutgoingRequest::new(headers);
    let scheme = if url.scheme == "http" { Scheme::Http } else { Scheme::Https };
    let wrong = |()| Failure::bad_input(format_args!("{url} or its method cannot be asked for"));
    request.set_method(&method(&input.method)).map_err(wrong)?;
    request.set_scheme(Some(&scheme)).map_err(wrong)?;
    request.set_authority(Some(&url.authority)).map_err(wrong)?;
    request.set_path_with_query(Some(&url.path)).map_err(wrong)?;
    Ok(request)
}

fn method(name: &str) -> Method {
    match name {
        "GET" => Method::Get,
        "HEAD" => Method::Head,
        "POST" => Method::Post,
        "PUT" => Method::Put,
        "DELETE" => Method::Delete,
        "PATCH" => Method::Patch,
        "OPTIONS" => Method::Options,
        other => Method::Other(other.to_owned()),
    }
}

fn write(body: &OutgoingBody, bytes: &[u8]) -> Result<(), StreamError> {
    let Ok(stream) = body.write() else { return Err(StreamError::Closed) };
    bytes.chunks(CHUNK).try_for_each(|chunk| stream.blocking_write_and_flush(chunk))
}

fn receive(response: &IncomingResponse, most: u64) -> Result<Answer, Failure> {
    let mut headers = BTreeMap::new();
    for (name, value) in response.headers().entries() {
        let value = String::from_utf8_lossy(&value).into_owned();
        headers
            .entry(name.to_ascii_lowercase())
            .and_modify(|all: &mut String| all.push_str(&format!(", {value}")))
            .or_insert(value);
    }
    let incoming = response.consume().map_err(|()| broken("the answer has no body"))?;
    let stream = incoming.stream().map_err(|()| broken("the answer has no body"))?;
    let mut body = Vec::new();
    let mut truncated = false;
    while !truncated {
        match stream.blocking_read(64 << 10) {
            Ok(bytes) => body.extend_from_slice(&bytes),
            Err(StreamError::Closed) => break,
            Err(error) => return Err(broken(&format!("the answer broke off: {error:?}"))),
        }
        truncated = body.len() as u64 > most;
    }
    body.truncate(usize::try_from(most).unwrap_or(usize::MAX));
    Ok(Answer { status: response.status(), headers, body, truncated })
}

fn refused(url: &Url, error: &ErrorCode) -> Failure {
    match error {
        ErrorCode::HttpRequestDenied => Failure::new(
            "denied",
            format_args!("{}://{} may not be reached", url.scheme, url.authority),
        ),
        other => Failure::new("unreachable", format_args!("{url}: {other:?}")),
    }
}

fn broken(why: &str) -> Failure {
    Failure::new("unreachable", why)
}
