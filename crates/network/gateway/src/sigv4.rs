//! AWS Signature Version 4: a request that was signed with a placeholder is signed with the real key.

use std::collections::BTreeMap;

use hyper::header::{AUTHORIZATION, HeaderValue};
use hyper::http::request::Parts;
use ring::{digest, hmac};
use ringwall_egress::SigV4;
use ringwall_rules::Ask;
use thiserror::Error;
use time::OffsetDateTime;

use crate::needles::hexadecimal;
use crate::secret::Secret;

const ALGORITHM: &str = "AWS4-HMAC-SHA256";
const DATE: &str = "x-amz-date";
const DIGEST: &str = "x-amz-content-sha256";
const TOKEN: &str = "x-amz-security-token";

#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub(crate) enum BadSignature {
    #[error("its Authorization header is not one of Signature Version 4")]
    Form,
    #[error("it is signed for another region or service")]
    Scope,
    #[error("it signs its body in pieces; use UNSIGNED-PAYLOAD or a whole digest")]
    Chunked,
    #[error("the digest that it names is not its body's")]
    Digest,
    #[error("a header that it signs is missing or no text")]
    Header,
}

pub(crate) struct Signer {
    config: SigV4,
    key: Secret,
    session: Option<Secret>,
}

impl Signer {
    pub(crate) fn new(config: SigV4, key: Secret, session: Option<Secret>) -> Self {
        Self { config, key, session }
    }

    pub(crate) fn is_asked_for(&self, head: &Parts, placeholder: &str) -> bool {
        credential_of(head).is_some_and(|(key_id, _)| key_id == placeholder)
    }

    /// What is still needed of the body: `None` if the request itself names a digest that stands
    /// for it.
    pub(crate) fn sign(
        &self,
        head: &mut Parts,
        ask: &Ask,
        body_digest: &str,
        now: OffsetDateTime,
    ) -> Result<(), BadSignature> {
        let (_, scope) = credential_of(head).ok_or(BadSignature::Form)?;
        let (_, rest) = scope.split_once('/').ok_or(BadSignature::Form)?;
        let wanted = format!("{}/{}/aws4_request", self.config.region, self.config.service);
        if rest != wanted {
            return Err(BadSignature::Scope);
        }
        let payload = payload_of(head, body_digest)?;
        let moment = format!(
            "{:04}{:02}{:02}T{:02}{:02}{:02}Z",
            now.year(),
            u8::from(now.month()),
            now.day(),
            now.hour(),
            now.minute(),
            now.second()
        );
        let scope = format!("{}/{wanted}", &moment[..8]);
        set(head, DATE, &moment)?;
        head.headers.remove(TOKEN);
        if let Some(session) = &self.session {
            set(head, TOKEN, session.text())?;
            if let Some(value) = head.headers.get_mut(TOKEN) {
                value.set_sensitive(true);
            }
        }
        let (names, headers) = signed_headers(head, ask)?;
        let canonical = format!(
            "{}\n{}\n{}\n{headers}\n{names}\n{payload}",
            head.method,
            canonical_path(head.uri.path(), &self.config.service),
            canonical_query(head.uri.query().unwrap_or_default()),
        );
        let text = format!("{ALGORITHM}\n{moment}\n{scope}\n{}", sha256(canonical.as_bytes()));
        let signature = hmac_hex(&self.signing_key(&moment[..8]), &text);
        let value = format!(
            "{ALGORITHM} Credential={}/{scope}, SignedHeaders={names}, Signature={signature}",
            self.config.key_id
        );
        head.headers.remove(AUTHORIZATION);
        set(head, "authorization", &value)
    }

    fn signing_key(&self, day: &str) -> Vec<u8> {
        let first = zeroize::Zeroizing::new([b"AWS4", self.key.bytes()].concat());
        let mut key = zeroize::Zeroizing::new(hmac_of(&first, day.as_bytes()));
        for part in [self.config.region.as_str(), &self.config.service, "aws4_request"] {
            key = zeroize::Zeroizing::new(hmac_of(&key, part.as_bytes()));
        }
        key.to_vec()
    }
}

/// Whether the body must be read before the request can be signed.
pub(crate) fn needs_body(head: &Parts) -> bool {
    !head.headers.contains_key(DIGEST)
}

pub(crate) fn sha256(bytes: &[u8]) -> String {
    let digest = digest::digest(&digest::SHA256, bytes);
    String::from_utf8_lossy(&hexadecimal(digest.as_ref())).into_owned()
}

/// Access key id and scope of `Credential=id/day/region/service/aws4_request`.
fn credential_of(head: &Parts) -> Option<(String, String)> {
    let value = head.headers.get(AUTHORIZATION)?.to_str().ok()?;
    let fields = value.strip_prefix(ALGORITHM)?;
    let credential =
        fields.split(',').find_map(|field| field.trim().strip_prefix("Credential="))?;
    let (key_id, scope) = credential.split_once('/')?;
    Some((key_id.to_owned(), scope.to_owned()))
}

fn payload_of(head: &Parts, body_digest: &str) -> Result<String, BadSignature> {
    let Some(named) = head.headers.get(DIGEST) else {
        return Ok(body_digest.to_owned());
    };
    let named = named.to_str().map_err(|_| BadSignature::Header)?;
    let digest = named.len() == 64 && named.bytes().all(|byte| byte.is_ascii_hexdigit());
    if digest || named == "UNSIGNED-PAYLOAD" {
        return Ok(named.to_owned());
    }
    Err(if named.starts_with("STREAMING-") { BadSignature::Chunked } else { BadSignature::Digest })
}

fn set(head: &mut Parts, name: &'static str, value: &str) -> Result<(), BadSignature> {
    let value = HeaderValue::from_str(value).map_err(|_| BadSignature::Header)?;
    head.headers.insert(name, value);
    Ok(())
}

/// `host` and every `x-amz-` header and the content type are signed, whatever the client chose.
fn signed_headers(head: &Parts, ask: &Ask) -> Result<(String, String), BadSignature> {
    let mut signed = BTreeMap::new();
    signed.insert("host".to_owned(), ask.host.authority(ask.port, 443));
    for (name, value) in &head.headers {
        if name.as_str().starts_with("x-amz-") || name == hyper::header::CONTENT_TYPE {
            let value = value.to_str().map_err(|_| BadSignature::Header)?;
            let tidy = value.split_whitespace().collect::<Vec<_>>().join(" ");
            signed
                .entry(name.to_string())
                .and_modify(|known: &mut String| known.push_str(&format!(",{tidy}")))
                .or_insert(tidy);
        }
    }
    let names = signed.keys().cloned().collect::<Vec<_>>().join(";");
    let lines = signed.iter().map(|(name, value)| format!("{name}:{value}\n")).collect();
    Ok((names, lines))
}

/// S3 takes the path as it was sent; all others encode it once more.
fn canonical_path(path: &str, service: &str) -> String {
    if service == "s3" { path.to_owned() } else { encoded(path.as_bytes(), true) }
}

fn canonical_query(query: &str) -> String {
    let mut pairs: Vec<(String, String)> = query
        .split('&')
        .filter(|pair| !pair.is_empty())
        .map(|pair| {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            let again =
                |text: &str| encoded(&crate::needles::percent_decoded(text.as_bytes()), false);
            (again(name), again(value))
        })
        .collect();
    pairs.sort();
    pairs.iter().map(|(name, value)| format!("{name}={value}")).collect::<Vec<_>>().join("&")
}

fn encoded(bytes: &[u8], keep_slash: bool) -> String {
    let mut text = String::with_capacity(bytes.len());
    for byte in bytes {
        let plain = byte.is_ascii_alphanumeric() || b"-._~".contains(byte);
        if plain || (keep_slash && *byte == b'/') {
            text.push(char::from(*byte));
        } else {
            text.push_str(&format!("%{byte:02X}"));
        }
    }
    text
}

fn hmac_of(key: &[u8], message: &[u8]) -> Vec<u8> {
    hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, key), message).as_ref().to_vec()
}

fn hmac_hex(key: &[u8], message: &str) -> String {
    String::from_utf8_lossy(&hexadecimal(&hmac_of(key, message.as_bytes()))).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use hyper::Request;
    use ringwall_spec::{Host, Scheme};
    use zeroize::Zeroizing;

    fn signed(service: &str, request: Request<()>) -> Result<Parts, BadSignature> {
        // Key, date and expected values of Amazon's own published examples.
        let key = b"wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY".to_vec();
        let config = SigV4 {
            key_id: "AKIDEXAMPLE".into(),
            region: "us-east-1".into(),
            service: service.into(),
            session_token: None,
        };
        let signer = Signer::new(config, Secret::new(Zeroizing::new(key)).ok().unwrap(), None);
        let (mut head, ()) = request.into_parts();
        let ask = Ask {
            host: Host::parse("example.amazonaws.com").unwrap(),
            port: 443,
            scheme: Scheme::Https,
            request: None,
        };
        let now = time::OffsetDateTime::from_unix_timestamp(1_440_938_160).unwrap();
        signer.sign(&mut head, &ask, &sha256(b""), now)?;
        Ok(head)
    }

    fn request(uri: &str, scope: &str) -> hyper::http::request::Builder {
        let value = format!(
            "{ALGORITHM} Credential=PLACEHOLDER/20150830/{scope}, SignedHeaders=host, Signature=0"
        );
        Request::get(uri).header(AUTHORIZATION, value)
    }

    #[test]
    fn signatures_are_those_of_the_published_examples() {
        let scope = "us-east-1/service/aws4_request";
        for (uri, signature) in [
            ("/", "5fa00fa31553b73ebf1942676e86291e8372ff2a2260956d9b8aae1d763fbf31"),
            (
                "/?Param2=value2&Param1=value1",
                "b97d918cfa904a5beff61c982a1b6f458b799221646efd99d3219ec94cdf2500",
            ),
        ] {
            let head = signed("service", request(uri, scope).body(()).unwrap()).unwrap();
            let value = head.headers[AUTHORIZATION].to_str().unwrap();
            assert!(
                value.contains("Credential=AKIDEXAMPLE/20150830/us-east-1/service/aws4_request")
            );
            assert!(value.contains("SignedHeaders=host;x-amz-date"));
            assert!(value.ends_with(&format!("Signature={signature}")), "{uri}: {value}");
        }
    }

    #[test]
    fn only_the_bound_scope_is_signed() {
        for scope in ["eu-west-1/service/aws4_request", "us-east-1/iam/aws4_request", "x"] {
            assert!(signed("service", request("/", scope).body(()).unwrap()).is_err(), "{scope}");
        }
        let pieces = request("/", "us-east-1/s3/aws4_request")
            .header(DIGEST, "STREAMING-AWS4-HMAC-SHA256-PAYLOAD");
        assert_eq!(signed("s3", pieces.body(()).unwrap()).err(), Some(BadSignature::Chunked));
    }
}
