//! The body and the query of a request, read within bounds.

use std::sync::Arc;

use axum::Json;
use axum::extract::{FromRequest, FromRequestParts, Query, Request};
use axum::http::header;
use axum::http::request::Parts;
use bytes::Bytes;
use serde::de::DeserializeOwned;

use crate::problem::{Code, Problem};
use crate::service::Service;

/// JSON, with our own words for what is wrong with it.
#[derive(Debug)]
pub(crate) struct Body<T>(pub(crate) T);

impl<T: DeserializeOwned> FromRequest<Arc<Service>> for Body<T> {
    type Rejection = Problem;

    async fn from_request(request: Request, service: &Arc<Service>) -> Result<Self, Problem> {
        let kind = request.headers().get(header::CONTENT_TYPE);
        let kind = kind.and_then(|kind| kind.to_str().ok()).unwrap_or_default();
        let essence = kind.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
        if essence != "application/json" {
            let why = "the body must be JSON; send `Content-Type: application/json`";
            return Err(Problem::new(Code::BadRequest, why));
        }
        let bytes = Bytes::from_request(request, service).await?;
        if !has_few_values(&bytes) {
            let why =
                format!("the body has more than {MAX_JSON_VALUES} values; send less at a time");
            return Err(Problem::new(Code::TooLarge, why));
        }
        let Json(body) = Json::from_bytes(&bytes)?;
        Ok(Body(body))
    }
}

/// Values in one body, of whatever size. A list of numbers takes many times the memory of its text.
const MAX_JSON_VALUES: usize = 100_000;

/// Counted without making anything of it: each value but the first comes after one of these.
fn has_few_values(json: &[u8]) -> bool {
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
    count <= MAX_JSON_VALUES
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
}
