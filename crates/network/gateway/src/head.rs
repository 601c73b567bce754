//! Heads of requests and responses: what must agree, and what goes no further than one hop.

use hyper::header::{self, HeaderMap, HeaderName, HeaderValue};
use hyper::http::request::Parts;
use hyper::{Method, Response, StatusCode, Version};
use ringwall_rules::{Ask, GoesBy};
use ringwall_spec::{Host, Scheme};
use thiserror::Error;

use crate::needles::{Needles, percent_decoded};

#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub(crate) enum BadHead {
    #[error("the request names {0:?}, but the connection was made to another host")]
    Misdirected(String),
    #[error("the request names no host, or more than one")]
    NoHost,
    #[error("the request's target has a form that does not belong here")]
    Target,
    #[error("only WebSocket may take over a connection")]
    Upgrade,
    #[error("{0:?} could change the method or path that rules for this host go by; leave it out")]
    Override(String),
    #[error("HTTP/1.0 and older are not spoken")]
    Version,
}

/// Headers that servers take for the real method, or queries with such a name.
const OTHER_METHODS: [&str; 7] = [
    "x-http-method-override",
    "x-http-method",
    "x-method-override",
    "x-original-method",
    "x-rewrite-method",
    "_method",
    "$httpmethod",
];
/// Headers that servers take for the real path, or for another one that is worked on.
const OTHER_PATHS: [&str; 12] = [
    "x-original-url",
    "x-original-uri",
    "x-rewrite-url",
    "x-rewrite-uri",
    "x-override-url",
    "x-forwarded-uri",
    "x-forwarded-path",
    "x-forwarded-prefix",
    "x-envoy-original-path",
    "x-http-destinationurl",
    "x-script-name",
    "destination",
];

/// The request within a connection to `ask` must be meant for it, in every place that names a host.
pub(crate) fn check(head: &Parts, ask: &Ask) -> Result<(), BadHead> {
    if head.version < Version::HTTP_11 {
        return Err(BadHead::Version);
    }
    if head.method == Method::CONNECT {
        return Err(BadHead::Target);
    }
    let named: Vec<&str> = head
        .headers
        .get_all(header::HOST)
        .iter()
        .map(|value| value.to_str().unwrap_or_default())
        .chain(head.uri.authority().map(|authority| authority.as_str()))
        .collect();
    let hosts = head.headers.get_all(header::HOST).iter().count();
    let needed = if head.version == Version::HTTP_2 { 0 } else { 1 };
    if named.is_empty() || hosts > 1 || hosts < needed {
        return Err(BadHead::NoHost);
    }
    for name in named {
        let parsed = Host::parse_authority(name, Some(ask.scheme.default_port()));
        if parsed != Ok((ask.host.clone(), ask.port)) {
            return Err(BadHead::Misdirected(crate::event::bounded(name)));
        }
    }
    let scheme = match ask.scheme {
        Scheme::Https => "https",
        Scheme::Http => "http",
    };
    if head.uri.scheme_str().is_some_and(|named| named != scheme) {
        return Err(BadHead::Target);
    }
    // `*` is OPTIONS of the whole server, which no path rule can judge.
    if !head.uri.path().starts_with('/') {
        return Err(BadHead::Target);
    }
    Ok(())
}

/// Whether the request wants to become a WebSocket; any other change of protocol is refused.
pub(crate) fn wants_websocket(head: &Parts) -> Result<bool, BadHead> {
    let mut upgrades = head.headers.get_all(header::UPGRADE).iter();
    let Some(first) = upgrades.next() else {
        return Ok(false);
    };
    let websocket = first.as_bytes().eq_ignore_ascii_case(b"websocket");
    let fits = head.version == Version::HTTP_11 && head.method == Method::GET;
    if websocket && fits && upgrades.next().is_none() { Ok(true) } else { Err(BadHead::Upgrade) }
}

/// Behind the head of a request that wanted another protocol, bytes are not read strictly any more. So
/// the connection ends with its answer, unless it is another protocol's now.
pub(crate) fn end_unless_switched<B>(response: &mut Response<B>) {
    if response.status() != StatusCode::SWITCHING_PROTOCOLS {
        response.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
    }
}

/// Where rules go by method or path, nothing in the request must say another one.
pub(crate) fn check_override(head: &Parts, goes_by: GoesBy) -> Result<(), BadHead> {
    if goes_by == GoesBy::default() {
        return Ok(());
    }
    let other = |name: &str| {
        (goes_by.methods && OTHER_METHODS.contains(&name))
            || (goes_by.paths && OTHER_PATHS.contains(&name))
    };
    // Behind CGI, every other byte becomes the same as a hyphen.
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-';
    let header = head.headers.keys().map(HeaderName::as_str);
    if let Some(name) = header.into_iter().find(|name| other(name) || !name.bytes().all(plain)) {
        return Err(BadHead::Override(crate::event::bounded(name)));
    }
    let pairs = head.uri.query().unwrap_or_default().split(['&', ';']);
    let mut names = pairs.map(|pair| {
        let name = pair.split('=').next().unwrap_or_default();
        String::from_utf8_lossy(&percent_decoded(name.as_bytes())).to_ascii_lowercase()
    });
    match names.find(|name| other(name)) {
        Some(name) => Err(BadHead::Override(crate::event::bounded(&name))),
        None => Ok(()),
    }
}

/// Removes what concerns one connection only, and what the connection's headers name.
pub(crate) fn strip_hop_by_hop(headers: &mut HeaderMap) {
    let named: Vec<HeaderName> = headers
        .get_all(header::CONNECTION)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(','))
        .filter_map(|name| name.trim().parse().ok())
        .collect();
    // A client must not have the framing or the host removed by naming them.
    let kept = [header::HOST, header::CONTENT_LENGTH, header::AUTHORIZATION];
    for name in named.iter().filter(|name| !kept.contains(name)) {
        headers.remove(name);
    }
    for name in [
        "connection",
        "expect",
        "keep-alive",
        "proxy-authenticate",
        "proxy-authorization",
        "proxy-connection",
        "te",
        "trailer",
        "transfer-encoding",
        "upgrade",
        "http2-settings",
    ] {
        headers.remove(name);
    }
}

/// How many bytes a client has put into the head.
pub(crate) fn size(head: &Parts) -> u64 {
    let line = head.method.as_str().len() + head.uri.to_string().len() + 12;
    let headers: usize =
        head.headers.iter().map(|(name, value)| name.as_str().len() + value.len() + 4).sum();
    (line + headers) as u64
}

/// Replaces values that hold a secret.
pub(crate) fn blot_out(headers: &mut HeaderMap, needles: &Needles) -> usize {
    let mut found = 0;
    if needles.is_empty() {
        return found;
    }
    for value in headers.values_mut() {
        if needles.found_in(value.as_bytes()) {
            *value = HeaderValue::from_static("***");
            found += 1;
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use hyper::Request;

    fn ask() -> Ask {
        Ask {
            host: Host::parse("a.example.com").unwrap(),
            port: 443,
            scheme: Scheme::Https,
            request: None,
        }
    }

    fn verdict(request: hyper::http::request::Builder) -> Result<(), BadHead> {
        check(&request.body(()).unwrap().into_parts().0, &ask())
    }

    #[test]
    fn every_host_in_the_request_is_the_connections() {
        let get = |uri: &str| Request::get(uri);
        assert_eq!(verdict(get("/").header("host", "a.example.com")), Ok(()));
        assert_eq!(verdict(get("/").header("host", "A.Example.com.:443")), Ok(()));
        let h2 = |uri: &str| get(uri).version(Version::HTTP_2);
        assert_eq!(verdict(h2("https://a.example.com/")), Ok(()));
        assert_eq!(verdict(h2("https://a.example.com/").header("host", "a.example.com")), Ok(()));
        for bad in [
            get("/"),
            get("/").header("host", "b.example.com"),
            get("/").header("host", "a.example.com:8443"),
            get("/").header("host", "a.example.com@b.example.com"),
            get("/").header("host", "a.example.com").header("host", "a.example.com"),
            get("https://b.example.com/").header("host", "a.example.com"),
            get("http://a.example.com:443/").header("host", "a.example.com"),
            get("/").header("host", "a.example.com").version(Version::HTTP_10),
            h2("https://b.example.com/"),
            h2("https://a.example.com/").header("host", "b.example.com"),
            Request::connect("a.example.com:443").header("host", "a.example.com"),
            Request::options("*").header("host", "a.example.com"),
        ] {
            assert!(verdict(bad).is_err());
        }
    }

    #[test]
    fn nothing_says_another_method_or_path() {
        let (methods, paths) =
            (GoesBy { methods: true, paths: false }, GoesBy { methods: false, paths: true });
        let verdict = |uri: &str, name: &str, goes_by| {
            let request = Request::get(uri).header(name, "DELETE").body(()).unwrap();
            check_override(&request.into_parts().0, goes_by)
        };
        for (uri, name) in [
            ("/", "X-HTTP-Method-Override"),
            ("/", "X_HTTP_METHOD_OVERRIDE"),
            ("/", "x-http.method-override"),
            ("/?a=b&_method=DELETE", "accept"),
            ("/?%5fmeTHod=DELETE", "accept"),
            ("/?x-http-method-override=DELETE", "accept"),
        ] {
            assert!(verdict(uri, name, methods).is_err(), "{uri} {name}");
            assert_eq!(verdict(uri, name, GoesBy::default()), Ok(()), "{uri} {name}");
        }
        for name in ["X-Original-URL", "x-rewrite-url", "X_Original_URL", "destination"] {
            assert!(verdict("/", name, paths).is_err(), "{name}");
        }
        assert_eq!(verdict("/?a=_method", "x-request-id", methods.or(paths)), Ok(()));
    }

    #[test]
    fn hop_by_hop_headers_stay_here() {
        let mut headers = HeaderMap::new();
        for (name, value) in [
            ("connection", "keep-alive, x-hop, host"),
            ("x-hop", "1"),
            ("host", "a"),
            ("proxy-authorization", "Basic x"),
            ("te", "trailers"),
            ("accept", "*/*"),
        ] {
            headers.insert(name, HeaderValue::from_static(value));
        }
        strip_hop_by_hop(&mut headers);
        let mut left: Vec<&str> = headers.keys().map(HeaderName::as_str).collect();
        left.sort_unstable();
        assert_eq!(left, ["accept", "host"]);
    }
}
