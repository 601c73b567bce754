//! Pulling an image from a registry into the store.

use std::path::PathBuf;

use crate::budget::Budget;
use crate::digest::Digest;
use crate::manifest::{Choose, Document, Index, Manifest, ManifestError, parse_document};
use crate::progress::{Piece, Progress};
use crate::reference::{Reference, ReferenceError, Version};
use crate::registry::{RegistryClient, RegistryError};
use crate::store::{
    BlobError, BlobSource, BlobWriter, Candidate, Image, LayerError, Naming, Store, StoreError,
};

/// An index may name an index, once; nobody needs more.
const MAX_INDEX_DEPTH: usize = 2;

/// What a pull may use from its surroundings.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PullOptions {
    /// Docker's `config.json`, for credentials; it need not exist.
    pub docker_config: Option<PathBuf>,
    /// Certificates to trust instead of the system's, as PEM.
    pub ca_certificates: Option<PathBuf>,
    /// A registry that serves the images of docker.io, `HOST[:PORT]`.
    pub mirror: Option<String>,
}

/// Why an image was not pulled.
#[derive(Debug, thiserror::Error)]
pub enum PullError {
    #[error(transparent)]
    BadName(#[from] ReferenceError),
    #[error(transparent)]
    Registry(#[from] RegistryError),
    #[error(transparent)]
    Manifest(#[from] ManifestError),
    #[error(transparent)]
    Blob(#[from] BlobError),
    #[error(transparent)]
    Layer(#[from] LayerError),
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl PullOptions {
    /// What Docker and OpenSSL would use: `DOCKER_CONFIG` or `~/.docker`, and `SSL_CERT_FILE`; and the
    /// mirror in `RINGWALL_MIRROR`.
    pub fn from_environment() -> PullOptions {
        let directory = |name| std::env::var_os(name).filter(|v| !v.is_empty()).map(PathBuf::from);
        let docker =
            directory("DOCKER_CONFIG").or_else(|| Some(directory("HOME")?.join(".docker")));
        PullOptions {
            docker_config: docker.map(|docker| docker.join("config.json")),
            ca_certificates: directory("SSL_CERT_FILE"),
            mirror: std::env::var("RINGWALL_MIRROR").ok().filter(|mirror| !mirror.is_empty()),
        }
    }
}

impl Store {
    /// Pulls an image and stores it under its full name, with the default registry for a name
    /// without a host. Layers that the store has already are not downloaded.
    pub fn pull(&self, reference: &str, progress: &dyn Progress) -> Result<Image, PullError> {
        self.pull_with(reference, &PullOptions::from_environment(), progress)
    }

    pub fn pull_with(
        &self,
        reference: &str,
        options: &PullOptions,
        progress: &dyn Progress,
    ) -> Result<Image, PullError> {
        let reference = reference.parse::<Reference>()?.with_default_registry();
        let client = RegistryClient::new(&reference, options)?;
        let (manifest_bytes, manifest) =
            self.fetch_manifest(&client, &reference, Index::for_this_platform)?;
        let candidate = Candidate {
            name: reference.to_string(),
            manifest_bytes: &manifest_bytes,
            manifest: &manifest,
            budget: &Budget::new(self.limits().unpack),
            naming: Naming::Replace,
        };
        self.assemble(&client, &candidate, progress)
    }

    /// Follows an index to the manifest that `choose` takes.
    pub(crate) fn fetch_manifest(
        &self,
        client: &RegistryClient,
        reference: &Reference,
        choose: Choose,
    ) -> Result<(Vec<u8>, Manifest), PullError> {
        let mut version = reference.version_text();
        let mut expected: Option<Digest> = match reference.version() {
            Version::Digest(digest) => Some(digest.clone()),
            Version::Tag(_) => None,
        };
        let max_bytes = self.limits().max_document_bytes;
        for _ in 0..=MAX_INDEX_DEPTH {
            let fetched = client.fetch_document(&version, expected.as_ref(), max_bytes)?;
            match parse_document(&fetched.bytes, fetched.media_type.as_deref())? {
                Document::Manifest(manifest) => return Ok((fetched.bytes, manifest)),
                Document::Index(index) => {
                    let digest = choose(&index)?.descriptor.digest.clone();
                    version = digest.to_string();
                    expected = Some(digest);
                }
            }
        }
        Err(ManifestError::NestedIndex.into())
    }
}

impl BlobSource for RegistryClient {
    type Error = PullError;

    fn fetch(
        &self,
        blob: &crate::manifest::Descriptor,
        into: &mut BlobWriter,
        piece: &Piece<'_>,
    ) -> Result<(), PullError> {
        Ok(self.download(blob, into, piece)?)
    }
}
