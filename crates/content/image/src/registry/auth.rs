//! Logging in: what a registry asks for, and getting it.

use std::io::Read;

use serde::Deserialize;
use ureq::http::HeaderMap;

use super::http::{Endpoint, Request};
use super::{RegistryClient, RegistryError};

const MAX_TOKEN_ANSWER_BYTES: u64 = 256 * 1024;

/// What a `WWW-Authenticate` header asks for.
#[derive(Debug, PartialEq, Eq)]
enum Challenge {
    Basic,
    Bearer { realm: String, service: Option<String>, scope: Option<String> },
}

impl RegistryClient {
    /// Answers the challenge in a 401 reply; returns the value of the `Authorization` header.
    pub(super) fn log_in(&self, headers: &HeaderMap) -> Result<String, RegistryError> {
        let challenges: Vec<Challenge> = headers
            .get_all("www-authenticate")
            .iter()
            .filter_map(|value| parse_challenge(value.to_str().ok()?))
            .collect();
        // A token is worth less than a password if it leaks, so it is preferred.
        for challenge in &challenges {
            if let Challenge::Bearer { realm, service, scope } = challenge {
                return self.fetch_token(realm, service.as_deref(), scope.as_deref());
            }
        }
        match (challenges.as_slice(), &self.basic) {
            ([Challenge::Basic, ..], Some(basic)) => Ok(basic.clone()),
            ([Challenge::Basic, ..], None) => Err(self.unexpected(401)),
            _ => Err(RegistryError::UnsupportedLogin { host: self.endpoint.to_string() }),
        }
    }

    fn fetch_token(
        &self,
        realm: &str,
        service: Option<&str>,
        scope: Option<&str>,
    ) -> Result<String, RegistryError> {
        let (server, mut path) = Endpoint::parse(realm, &self.endpoint)?;
        if let Err(why) = self.endpoint.may_refer_to(&server) {
            let (host, target) = (self.endpoint.to_string(), server.to_string());
            return Err(super::HttpError::RedirectRefused { host, target, why }.into());
        }
        // Never more than reading: a registry may ask us to fetch a token for pushing, too.
        let own_scope = format!("repository:{}:pull", self.repository);
        let scope = scope.filter(|scope| scope.ends_with(":pull")).unwrap_or(&own_scope);
        let mut separator = if path.contains('?') { '&' } else { '?' };
        for (key, value) in [("service", service), ("scope", Some(scope))] {
            if let Some(value) = value {
                path.push_str(&format!("{separator}{key}={}", percent_encoded(value)));
                separator = '&';
            }
        }
        let mut response = self.http.get(&Request {
            endpoint: &server,
            path: &path,
            headers: &[("accept", "application/json")],
            authorization: self.basic.as_deref(),
        })?;
        match response.status().as_u16() {
            200 => {}
            401 | 403 => return Err(self.unexpected(401)),
            status => {
                return Err(RegistryError::Status { host: server.to_string(), status });
            }
        }
        let mut bytes = Vec::new();
        let bad_token = || RegistryError::BadToken { host: server.to_string() };
        let body = response.body_mut().as_reader().take(MAX_TOKEN_ANSWER_BYTES);
        { body }.read_to_end(&mut bytes).map_err(|_| bad_token())?;
        parse_token(&bytes).map(|token| format!("Bearer {token}")).ok_or_else(bad_token)
    }
}

fn parse_token(bytes: &[u8]) -> Option<String> {
    #[derive(Deserialize)]
    struct Answer {
        #[serde(default)]
        token: Option<String>,
        #[serde(default)]
        access_token: Option<String>,
    }
    let answer: Answer = serde_json::from_slice(bytes).ok()?;
    let token = answer.token.or(answer.access_token)?;
    let printable = !token.is_empty() && token.bytes().all(|b| b.is_ascii_graphic());
    printable.then_some(token)
}

/// Parses `Scheme key="value",key=value`; `None` for schemes that we do not know.
fn parse_challenge(header: &str) -> Option<Challenge> {
    let (scheme, parameters) = header.trim().split_once(' ').unwrap_or((header.trim(), ""));
    if scheme.eq_ignore_ascii_case("basic") {
        return Some(Challenge::Basic);
    }
    if !scheme.eq_ignore_ascii_case("bearer") {
        return None;
    }
    let (mut realm, mut service, mut scope) = (None, None, None);
    let mut rest = parameters.trim_start();
    while !rest.is_empty() {
        let (key, after) = rest.split_once('=')?;
        let (value, after) = parse_value(after)?;
        match key.trim().to_ascii_lowercase().as_str() {
            "realm" => realm = Some(value),
            "service" => service = Some(value),
            "scope" => scope = Some(value),
            _ => {}
        }
        rest = after.trim_start().strip_prefix(',').unwrap_or("").trim_start();
    }
    Some(Challenge::Bearer { realm: realm?, service, scope })
}

/// Reads a token or a quoted string; returns it and what follows.
fn parse_value(text: &str) -> Option<(String, &str)> {
    let Some(quoted) = text.strip_prefix('"') else {
        let end = text.find(',').unwrap_or(text.len());
        return Some((text[..end].trim().to_owned(), &text[end..]));
    };
    let mut value = String::new();
    let mut characters = quoted.char_indices();
    while let Some((at, character)) = characters.next() {
        match character {
            '"' => return Some((value, &quoted[at + 1..])),
            '\\' => value.push(characters.next()?.1),
            other => value.push(other),
        }
    }
    None
}

fn percent_encoded(text: &str) -> String {
    text.bytes()
        .map(|byte| match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => {
                char::from(byte).to_string()
            }
            other => format!("%{other:02X}"),
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn bearer_challenges_are_read_with_commas_inside_quotes() {
        let header = r#"Bearer realm="https://auth.test/token",service="a \"b\"",scope="repository:x:pull,push""#;
        assert_eq!(
            parse_challenge(header),
            Some(Challenge::Bearer {
                realm: "https://auth.test/token".into(),
                service: Some(r#"a "b""#.into()),
                scope: Some("repository:x:pull,push".into()),
            })
        );
        let unquoted = "bearer realm=https://auth.test/token , service=x";
        assert!(matches!(
            parse_challenge(unquoted),
            Some(Challenge::Bearer { service: Some(service), scope: None, .. }) if service == "x"
        ));
    }

    #[test]
    fn other_challenges_are_told_apart() {
        assert_eq!(parse_challenge(r#"Basic realm="Registry""#), Some(Challenge::Basic));
        assert_eq!(parse_challenge("Negotiate"), None);
        assert_eq!(parse_challenge("Bearer service=x"), None);
        assert_eq!(parse_challenge(r#"Bearer realm="unterminated"#), None);
    }

    #[test]
    fn tokens_that_could_break_out_of_a_header_are_refused() {
        assert_eq!(parse_token(br#"{"token":"abc.def"}"#).as_deref(), Some("abc.def"));
        assert_eq!(parse_token(br#"{"access_token":"abc"}"#).as_deref(), Some("abc"));
        for bad in [&br#"{"token":"a\r\nX: y"}"#[..], br#"{"token":""}"#, b"{}", b"<html>"] {
            assert_eq!(parse_token(bad), None);
        }
    }

    proptest! {
        #[test]
        fn no_header_makes_the_parser_fail_to_return(header in "\\PC{0,200}") {
            let _ = parse_challenge(&header);
        }
    }
}
