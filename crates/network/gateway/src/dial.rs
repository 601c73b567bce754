//! Connections to the outside, only to addresses that survived, and under the name that was decided.

use std::io;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use ringwall_spec::Host;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use thiserror::Error;
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

const PATIENCE: Duration = Duration::from_secs(10);
const MOST_TRIES: usize = 4;

#[derive(Debug, Error)]
pub(crate) enum DialError {
    #[error("{host} cannot be reached: {reason}")]
    Connect { host: String, reason: io::Error },
    #[error("{host} did not prove to be itself: {reason}")]
    Tls { host: String, reason: io::Error },
    #[error("{0} cannot stand in a certificate")]
    Name(String),
}

#[derive(Debug, Error)]
pub enum TrustError {
    #[error("a certificate among the further roots is broken: {0}")]
    Broken(String),
    #[error("TLS cannot be set up: {0}")]
    Tls(#[from] rustls::Error),
}

/// Whom the gateway trusts, with and without HTTP/2.
#[derive(Debug)]
pub(crate) struct Trust {
    any: Arc<ClientConfig>,
    http1: Arc<ClientConfig>,
}

/// What may be spoken on a new connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Speak {
    Any,
    Http1,
}

impl Trust {
    /// The public roots, and those in `further_roots` (PEM).
    pub(crate) fn new(further_roots: &[String]) -> Result<Self, TrustError> {
        let mut roots = RootCertStore { roots: webpki_roots::TLS_SERVER_ROOTS.to_vec() };
        for pem in further_roots {
            for certificate in CertificateDer::pem_slice_iter(pem.as_bytes()) {
                let broken = |error: &dyn std::fmt::Display| TrustError::Broken(error.to_string());
                let certificate = certificate.map_err(|error| broken(&error))?;
                roots.add(certificate).map_err(|error| broken(&error))?;
            }
        }
        let roots = Arc::new(roots);
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = |protocols: &[&[u8]]| -> Result<Arc<ClientConfig>, rustls::Error> {
            let mut config = ClientConfig::builder_with_provider(Arc::clone(&provider))
                .with_safe_default_protocol_versions()?
                .with_root_certificates(Arc::clone(&roots))
                .with_no_client_auth();
            config.alpn_protocols = protocols.iter().map(|name| name.to_vec()).collect();
            Ok(Arc::new(config))
        };
        Ok(Self { any: config(&[b"h2", b"http/1.1"])?, http1: config(&[b"http/1.1"])? })
    }

    pub(crate) async fn secure(
        &self,
        stream: TcpStream,
        host: &Host,
        speak: Speak,
    ) -> Result<TlsStream<TcpStream>, DialError> {
        let name = match host {
            Host::Address(address) => ServerName::IpAddress((*address).into()),
            Host::Name(name) => {
                ServerName::try_from(name.clone()).map_err(|_| DialError::Name(name.clone()))?
            }
        };
        let config = match speak {
            Speak::Any => &self.any,
            Speak::Http1 => &self.http1,
        };
        let handshake = TlsConnector::from(Arc::clone(config)).connect(name, stream);
        in_time(handshake).await.map_err(|reason| DialError::Tls { host: host.to_string(), reason })
    }
}

/// Tries the pinned addresses in turn.
pub(crate) async fn dial(
    host: &Host,
    pinned: &[IpAddr],
    port: u16,
) -> Result<(TcpStream, IpAddr), DialError> {
    let mut reason = io::Error::from(io::ErrorKind::AddrNotAvailable);
    for address in pinned.iter().take(MOST_TRIES) {
        match in_time(TcpStream::connect((*address, port))).await {
            Ok(stream) => {
                // Small messages go at once; without it only latency is lost.
                let _ = stream.set_nodelay(true);
                return Ok((stream, *address));
            }
            Err(error) => reason = error,
        }
    }
    Err(DialError::Connect { host: host.to_string(), reason })
}

async fn in_time<T>(work: impl Future<Output = io::Result<T>>) -> io::Result<T> {
    match tokio::time::timeout(PATIENCE, work).await {
        Ok(result) => result,
        Err(_) => Err(io::ErrorKind::TimedOut.into()),
    }
}
