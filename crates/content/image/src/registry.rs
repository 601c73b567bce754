//! The registry's side of a pull: OCI distribution API over HTTPS.
//!
//! Invariant: credentials and tokens go to the host that they are for and to nobody else, and
//! appear in no error text.

mod auth;
mod credentials;
mod http;
mod transfer;

use std::io::Read;
use std::path::PathBuf;
use std::sync::Mutex;
use std::time::Duration;

use ureq::Body;
use ureq::http::Response;

pub use self::http::HttpError;
use self::http::{Endpoint, HttpClient, Request};
use crate::digest::Digest;
use crate::manifest::{
    DOCKER_INDEX, DOCKER_MANIFEST, ManifestError, OCI_INDEX, OCI_MANIFEST, check_size,
};
use crate::pull::PullOptions;
use crate::reference::Reference;
use crate::store::BlobError;

const ATTEMPTS: u32 = 4;
const FIRST_PAUSE: Duration = Duration::from_millis(200);

/// Why a registry did not give us what we asked for.
#[derive(Debug, thiserror::Error)]
pub enum RegistryError {
    #[error(transparent)]
    Http(#[from] HttpError),
    #[error("the registry {host} has no image {name}; check the name and the tag")]
    NotFound { host: String, name: String },
    #[error(
        "the registry {host} does not let us read {repository}; if it is private, log in with `docker login {host}` so that there are credentials in docker's config.json"
    )]
    Denied { host: String, repository: String },
    #[error("{host} answered with status {status}")]
    Status { host: String, status: u16 },
    #[error("the registry {host} asks for a kind of login that is not supported")]
    UnsupportedLogin { host: String },
    #[error("the token server {host} sent something that is not a token")]
    BadToken { host: String },
    #[error("the credentials file {} cannot be used", path.display())]
    Credentials { path: PathBuf, source: std::io::Error },
    #[error("the registry {host} says the manifest is {claimed}, but it is {found}")]
    ManifestHeader { host: String, claimed: String, found: Digest },
    #[error("{expected} was asked for, but the registry {host} sent {found}")]
    WrongManifest { host: String, expected: Digest, found: Digest },
    #[error("the connection to {host} broke after {bytes} bytes")]
    Interrupted { host: String, bytes: u64, source: std::io::Error },
    #[error("the download was given up because another one failed")]
    GivenUp,
    #[error(transparent)]
    Manifest(#[from] ManifestError),
    #[error(transparent)]
    Blob(#[from] BlobError),
}

impl RegistryError {
    /// Whether trying again may help.
    fn is_passing(&self) -> bool {
        match self {
            RegistryError::Http(error) => error.is_passing(),
            RegistryError::Status { status, .. } => *status == 429 || *status >= 500,
            RegistryError::Interrupted { .. } => true,
            _ => false,
        }
    }
}

/// A manifest or index, with what the registry calls it.
pub(crate) struct FetchedDocument {
    pub(crate) bytes: Vec<u8>,
    pub(crate) media_type: Option<String>,
}

/// One repository of one registry.
pub(crate) struct RegistryClient {
    http: HttpClient,
    endpoint: Endpoint,
    repository: String,
    /// `Basic ...`, ready to be sent; only ever to the registry or the token server it names.
    basic: Option<String>,
    /// The authorization that worked last.
    authorization: Mutex<Option<String>>,
}

impl RegistryClient {
    pub(crate) fn new(
        reference: &Reference,
        options: &PullOptions,
    ) -> Result<RegistryClient, RegistryError> {
        // A mirror is not docker.io: it gets its own credentials, not those.
        let mirror = options.mirror.as_deref().filter(|_| reference.is_of_default_registry());
        let host = mirror.or(reference.host()).unwrap_or_default();
        Ok(RegistryClient {
            http: HttpClient::new(options.ca_certificates.as_deref())?,
            endpoint: Endpoint::of_registry(mirror.unwrap_or(reference.api_host())),
            repository: reference.repository().to_owned(),
            basic: credentials::find(options.docker_config.as_deref(), host)?,
            authorization: Mutex::new(None),
        })
    }

    /// Fetches a manifest or an index by tag or digest and checks its digest.
    pub(crate) fn fetch_document(
        &self,
        version: &str,
        expected: Option<&Digest>,
        max_bytes: u64,
    ) -> Result<FetchedDocument, RegistryError> {
        let path = format!("/v2/{}/manifests/{version}", self.repository);
        let accept = [OCI_INDEX, OCI_MANIFEST, DOCKER_INDEX, DOCKER_MANIFEST].join(", ");
        with_retries(|| {
            let mut response = self.get(&path, &[("accept", &accept)])?;
            match response.status().as_u16() {
                200 => {}
                404 => return Err(self.not_found(version)),
                status => return Err(self.unexpected(status)),
            }
            let header = |name: &str| {
                response.headers().get(name).and_then(|v| v.to_str().ok()).map(str::to_owned)
            };
            let media_type = header("content-type")
                .map(|text| text.split(';').next().unwrap_or_default().trim().to_owned());
            let claimed = header("docker-content-digest");
            let bytes = self.read_document(response.body_mut(), max_bytes)?;
            self.check_document(&bytes, expected, claimed)?;
            Ok(FetchedDocument { bytes, media_type })
        })
    }

    fn read_document(&self, body: &mut Body, max_bytes: u64) -> Result<Vec<u8>, RegistryError> {
        let mut bytes = Vec::new();
        let read = body.as_reader().take(max_bytes + 1).read_to_end(&mut bytes);
        read.map_err(|source| RegistryError::Interrupted {
            host: self.endpoint.to_string(),
            bytes: bytes.len() as u64,
            source,
        })?;
        check_size("manifest", bytes.len() as u64, max_bytes)?;
        Ok(bytes)
    }

    fn check_document(
        &self,
        bytes: &[u8],
        expected: Option<&Digest>,
        claimed: Option<String>,
    ) -> Result<(), RegistryError> {
        let found = Digest::of(bytes);
        let host = self.endpoint.to_string();
        if let Some(expected) = expected
            && found != *expected
        {
            return Err(RegistryError::WrongManifest { host, expected: expected.clone(), found });
        }
        // A tag pins nothing, but a registry that contradicts itself is broken or tampered with.
        match claimed {
            Some(claimed) if claimed.starts_with("sha256:") && claimed != found.to_string() => {
                Err(RegistryError::ManifestHeader { host, claimed, found })
            }
            _ => Ok(()),
        }
    }

    /// One GET, logging in when the registry asks for it.
    fn get(&self, path: &str, headers: &[(&str, &str)]) -> Result<Response<Body>, RegistryError> {
        let known = self.authorization.lock().ok().and_then(|slot| slot.clone());
        let send = |authorization: Option<&str>| {
            self.http.get(&Request { endpoint: &self.endpoint, path, headers, authorization })
        };
        let response = send(known.as_deref())?;
        if response.status().as_u16() != 401 {
            return Ok(response);
        }
        // Either we have not logged in yet or the token has expired.
        let authorization = self.log_in(response.headers())?;
        let response = send(Some(&authorization))?;
        if let Ok(mut slot) = self.authorization.lock() {
            *slot = Some(authorization);
        }
        Ok(response)
    }

    fn not_found(&self, version: &str) -> RegistryError {
        let separator = if version.starts_with("sha256:") { '@' } else { ':' };
        RegistryError::NotFound {
            host: self.endpoint.to_string(),
            name: format!("{}{separator}{version}", self.repository),
        }
    }

    fn unexpected(&self, status: u16) -> RegistryError {
        let host = self.endpoint.to_string();
        match status {
            401 | 403 => RegistryError::Denied { host, repository: self.repository.clone() },
            _ => RegistryError::Status { host, status },
        }
    }
}

/// Repeats what failed for a passing reason, a few times, with growing pauses.
fn with_retries<T>(
    mut attempt: impl FnMut() -> Result<T, RegistryError>,
) -> Result<T, RegistryError> {
    let mut pause = FIRST_PAUSE;
    for _ in 1..ATTEMPTS {
        match attempt() {
            Err(error) if error.is_passing() => {
                std::thread::sleep(pause);
                pause *= 3;
            }
            other => return other,
        }
    }
    attempt()
}
