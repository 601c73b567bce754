//! `fetch`: one HTTP request to a host that policy allows.

#[cfg(target_family = "wasm")]
mod request;
mod url;

use std::collections::BTreeMap;

use ringwall_tool_sdk::Failure;
use serde::{Deserialize, Serialize};

use url::Url;

ringwall_tool_sdk::tool! { manifest: "tool.json", call: call }

/// The variable that stands for a secret.
const TOKEN: &str = "FETCH_TOKEN";

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Input {
    url: String,
    #[serde(default = "get")]
    method: String,
    #[serde(default)]
    headers: BTreeMap<String, String>,
    body: Option<String>,
    /// Send the token that was granted.
    #[serde(default)]
    token: bool,
    #[serde(default = "most_redirects")]
    redirects: u32,
    #[serde(default = "most_bytes")]
    max_bytes: u64,
}

#[derive(Debug, Serialize)]
pub struct Output {
    url: String,
    status: u16,
    headers: BTreeMap<String, String>,
    body: String,
    truncated: bool,
}

/// What came back of one request.
#[cfg_attr(not(target_family = "wasm"), expect(dead_code, reason = "only tools make requests"))]
struct Answer {
    status: u16,
    headers: BTreeMap<String, String>,
    body: Vec<u8>,
    truncated: bool,
}

fn get() -> String {
    "GET".to_owned()
}

fn most_redirects() -> u32 {
    5
}

fn most_bytes() -> u64 {
    512 << 10
}

pub fn call(mut input: Input) -> Result<Output, Failure> {
    let mut url = Url::parse(&input.url)?;
    if input.token {
        let token = std::env::var(TOKEN).map_err(|_| {
            let why =
                "no token was granted; bind a secret with --variable FETCH_TOKEN and give --secret";
            Failure::new("no-token", why)
        })?;
        input.headers.insert("authorization".to_owned(), format!("Bearer {token}"));
    }
    let mut left = input.redirects;
    loop {
        let Answer { status, headers, body, truncated } = send(&input, &url)?;
        let next =
            headers.get("location").filter(|_| matches!(status, 301 | 302 | 303 | 307 | 308));
        let Some(next) = next.filter(|_| left > 0) else {
            let body = String::from_utf8_lossy(&body).into_owned();
            return Ok(Output { url: url.to_string(), status, headers, body, truncated });
        };
        left -= 1;
        let next = url.join(next)?;
        if (&next.scheme, &next.authority) != (&url.scheme, &url.authority) {
            // What was for one host is not for another.
            input.headers.retain(|name, _| !is_private(name));
        }
        if !matches!(status, 307 | 308) && input.method != "HEAD" {
            (input.method, input.body) = (get(), None);
        }
        url = next;
    }
}

fn is_private(name: &str) -> bool {
    ["authorization", "cookie"].iter().any(|private| name.eq_ignore_ascii_case(private))
}

#[cfg(target_family = "wasm")]
fn send(input: &Input, url: &Url) -> Result<Answer, Failure> {
    request::send(input, url)
}

/// Outside of a host for tools there is nobody to ask.
#[cfg(not(target_family = "wasm"))]
fn send(_input: &Input, _url: &Url) -> Result<Answer, Failure> {
    Err(Failure::new("unreachable", "only a host for tools makes requests"))
}
