//! HTTP that cannot be talked into leaving the path: TLS everywhere but on loopback, redirects
//! followed by hand so that credentials stay where they belong.

use std::fmt;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use ureq::http::{Response, Uri};
use ureq::tls::{Certificate, PemItem, RootCerts, TlsConfig, parse_pem};
use ureq::{Agent, Body};

use crate::reference::{is_loopback, split_port};

const MAX_REDIRECTS: usize = 5;
const CONNECT_TIMEOUT: Duration = Duration::from_secs(15);
const ANSWER_TIMEOUT: Duration = Duration::from_secs(60);
/// A connection that is silent for this long is given up; the download resumes on another.
const SILENCE_TIMEOUT: Duration = Duration::from_secs(30);

/// Where distributions keep the certificates that this machine trusts.
const SYSTEM_CERTIFICATES: [&str; 3] =
    ["/etc/ssl/certs/ca-certificates.crt", "/etc/pki/tls/certs/ca-bundle.crt", "/etc/ssl/cert.pem"];

/// Why an HTTP exchange failed.
#[derive(Debug, thiserror::Error)]
pub enum HttpError {
    #[error("cannot reach {host}")]
    Transport { host: String, source: Box<ureq::Error> },
    #[error("{host} redirects to {target}, which is refused: {why}")]
    RedirectRefused { host: String, target: String, why: &'static str },
    #[error("{host} redirects more than {MAX_REDIRECTS} times")]
    TooManyRedirects { host: String },
    #[error("{0:?} is not an address that can be used")]
    BadUrl(String),
    #[error("cannot read certificates from {}", path.display())]
    Certificates { path: PathBuf, source: io::Error },
}

impl HttpError {
    pub(super) fn is_passing(&self) -> bool {
        match self {
            HttpError::Transport { source, .. } => match source.as_ref() {
                ureq::Error::Timeout(_) | ureq::Error::ConnectionFailed => true,
                // Nobody there, or a peer that cannot prove who it is: not a matter of a second.
                ureq::Error::Io(error) => !matches!(
                    error.kind(),
                    io::ErrorKind::ConnectionRefused | io::ErrorKind::InvalidData
                ),
                _ => false,
            },
            _ => false,
        }
    }
}

/// One scheme, host and port.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Endpoint {
    /// Only ever true for a loopback address.
    plain: bool,
    authority: String,
}

/// One GET request; `path` begins with a slash.
pub(super) struct Request<'a> {
    pub(super) endpoint: &'a Endpoint,
    pub(super) path: &'a str,
    pub(super) headers: &'a [(&'a str, &'a str)],
    pub(super) authorization: Option<&'a str>,
}

/// Two agents, so that loopback traffic can never go through a proxy.
pub(super) struct HttpClient {
    loopback: Agent,
    remote: Agent,
}

impl Endpoint {
    pub(super) fn of_registry(host: &str) -> Endpoint {
        if is_loopback(host) {
            Endpoint { plain: true, authority: without_name_lookup(host) }
        } else {
            Endpoint { plain: false, authority: host.to_ascii_lowercase() }
        }
    }

    /// Splits a URL that some server sent, as seen from `from`, into where and what.
    pub(super) fn parse(url: &str, from: &Endpoint) -> Result<(Endpoint, String), HttpError> {
        let bad = || HttpError::BadUrl(url.chars().take(200).collect());
        if url.starts_with('/') && !url.starts_with("//") {
            return Ok((from.clone(), url.to_owned()));
        }
        let uri: Uri = url.parse().map_err(|_| bad())?;
        let authority = uri.authority().ok_or_else(bad)?.as_str();
        if authority.contains('@') {
            return Err(bad());
        }
        let path = uri.path_and_query().map_or("/", |path| path.as_str());
        let path = if path.starts_with('/') { path.to_owned() } else { format!("/{path}") };
        let endpoint = match uri.scheme_str() {
            Some("https") => Endpoint { plain: false, authority: authority.to_ascii_lowercase() },
            Some("http") => Endpoint { plain: true, authority: without_name_lookup(authority) },
            _ => return Err(bad()),
        };
        Ok((endpoint, path))
    }

    /// Whether this endpoint may send us on to `next`; else the reason why not.
    pub(super) fn may_refer_to(&self, next: &Endpoint) -> Result<(), &'static str> {
        if next.plain && !is_loopback(&next.authority) {
            return Err("plain HTTP is only spoken with this machine itself");
        }
        if is_loopback(&next.authority) && !is_loopback(&self.authority) {
            return Err("a remote server must not send us to this machine's own services");
        }
        Ok(())
    }

    fn url(&self, path: &str) -> String {
        format!("{}://{}{path}", if self.plain { "http" } else { "https" }, self.authority)
    }
}

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.authority)
    }
}

/// `localhost` is whatever a resolver says; 127.0.0.1 is this machine.
fn without_name_lookup(authority: &str) -> String {
    match split_port(authority) {
        ("localhost", Some(port)) => format!("127.0.0.1:{port}"),
        ("localhost", None) => "127.0.0.1".to_owned(),
        _ => authority.to_ascii_lowercase(),
    }
}

impl HttpClient {
    pub(super) fn new(certificates: Option<&Path>) -> Result<HttpClient, HttpError> {
        let shared = || {
            Agent::config_builder()
                .http_status_as_error(false)
                .max_redirects(0)
                .timeout_connect(Some(CONNECT_TIMEOUT))
                .timeout_recv_response(Some(ANSWER_TIMEOUT))
                .timeout_per_read(Some(SILENCE_TIMEOUT))
                .user_agent(concat!("ringwall/", env!("CARGO_PKG_VERSION")))
        };
        let tls = TlsConfig::builder().root_certs(trusted_roots(certificates)?).build();
        Ok(HttpClient {
            loopback: shared().proxy(None).build().into(),
            remote: shared().https_only(true).tls_config(tls).build().into(),
        })
    }

    /// Sends a GET and follows redirects. Whatever the status, an answer is not an error.
    pub(super) fn get(&self, request: &Request<'_>) -> Result<Response<Body>, HttpError> {
        let mut endpoint = request.endpoint.clone();
        let mut path = request.path.to_owned();
        for _ in 0..=MAX_REDIRECTS {
            let response = self.get_once(request, &endpoint, &path)?;
            let location = response.headers().get("location").and_then(|v| v.to_str().ok());
            let (true, Some(location)) = (response.status().is_redirection(), location) else {
                return Ok(response);
            };
            let (next, next_path) = Endpoint::parse(location, &endpoint)?;
            if let Err(why) = endpoint.may_refer_to(&next) {
                let (host, target) = (endpoint.to_string(), next.to_string());
                return Err(HttpError::RedirectRefused { host, target, why });
            }
            (endpoint, path) = (next, next_path);
        }
        Err(HttpError::TooManyRedirects { host: request.endpoint.to_string() })
    }

    fn get_once(
        &self,
        request: &Request<'_>,
        endpoint: &Endpoint,
        path: &str,
    ) -> Result<Response<Body>, HttpError> {
        let local = is_loopback(&endpoint.authority);
        let agent = if local { &self.loopback } else { &self.remote };
        let mut builder = agent.get(endpoint.url(path));
        for (name, value) in request.headers {
            builder = builder.header(*name, *value);
        }
        // Storage servers that a registry redirects to get their rights from the URL.
        if let Some(authorization) = request.authorization
            && endpoint == request.endpoint
        {
            builder = builder.header("authorization", authorization);
        }
        builder.call().map_err(|error| HttpError::Transport {
            host: endpoint.to_string(),
            source: Box::new(error),
        })
    }
}

/// The named file's certificates; else the system's; else the ones that we were built with.
fn trusted_roots(file: Option<&Path>) -> Result<RootCerts, HttpError> {
    if let Some(path) = file {
        return read_roots(path)
            .map_err(|source| HttpError::Certificates { path: path.to_owned(), source });
    }
    let system = SYSTEM_CERTIFICATES.iter().find_map(|path| read_roots(Path::new(path)).ok());
    Ok(system.unwrap_or(RootCerts::WebPki))
}

fn read_roots(path: &Path) -> io::Result<RootCerts> {
    let pem = fs::read(path)?;
    let certificates: Vec<Certificate<'static>> = parse_pem(&pem)
        .filter_map(|item| match item {
            Ok(PemItem::Certificate(certificate)) => Some(certificate),
            _ => None,
        })
        .collect();
    if certificates.is_empty() {
        return Err(io::Error::other("the file has no certificates in PEM form"));
    }
    Ok(RootCerts::new_with_certs(&certificates))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(url: &str) -> (Endpoint, String) {
        Endpoint::parse(url, &Endpoint::of_registry("registry.test")).unwrap()
    }

    #[test]
    fn only_loopback_hosts_are_spoken_to_in_plain_text() {
        assert_eq!(Endpoint::of_registry("registry.test").url("/v2/"), "https://registry.test/v2/");
        assert_eq!(Endpoint::of_registry("10.0.0.1:5000").url("/"), "https://10.0.0.1:5000/");
        assert_eq!(Endpoint::of_registry("[::1]:5000").url("/"), "http://[::1]:5000/");
        assert_eq!(Endpoint::of_registry("localhost:5000").url("/"), "http://127.0.0.1:5000/");
    }

    #[test]
    fn a_remote_server_can_send_us_neither_to_plain_http_nor_to_ourselves() {
        let remote = Endpoint::of_registry("registry.test");
        let local = Endpoint::of_registry("127.0.0.1:5000");
        for refused in [
            "http://storage.test/x",
            "http://127.0.0.1/x",
            "https://localhost/x",
            "https://[::1]/x",
        ] {
            assert!(remote.may_refer_to(&parse(refused).0).is_err(), "{refused}");
        }
        assert!(remote.may_refer_to(&parse("https://storage.test/x").0).is_ok());
        assert!(local.may_refer_to(&parse("http://127.0.0.1:6000/x").0).is_ok());
        assert!(local.may_refer_to(&parse("https://storage.test/x").0).is_ok());
        assert!(local.may_refer_to(&parse("http://storage.test/x").0).is_err());
    }

    #[test]
    fn relative_redirects_stay_on_the_host_and_odd_urls_are_refused() {
        let from = Endpoint::of_registry("registry.test");
        let (endpoint, path) = Endpoint::parse("/blob?x=1", &from).unwrap();
        assert_eq!((endpoint, path.as_str()), (from.clone(), "/blob?x=1"));
        for bad in ["//other.test/x", "ftp://x.test/", "https://u:p@x.test/", "blob", ""] {
            assert!(Endpoint::parse(bad, &from).is_err(), "{bad:?}");
        }
    }
}
