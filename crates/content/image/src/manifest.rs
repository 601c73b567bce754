//! Image manifests and indexes, OCI's and Docker's (schema 2), parsed from hostile bytes.

use serde::{Deserialize, Serialize};

use crate::config::{ConfigError, ParsedConfig};
use crate::digest::Digest;
use crate::limits::ImageLimits;

pub(crate) const OCI_INDEX: &str = "application/vnd.oci.image.index.v1+json";
pub(crate) const OCI_MANIFEST: &str = "application/vnd.oci.image.manifest.v1+json";
pub(crate) const OCI_CONFIG: &str = "application/vnd.oci.image.config.v1+json";
pub(crate) const OCI_LAYER_TAR: &str = "application/vnd.oci.image.layer.v1.tar";
pub(crate) const DOCKER_INDEX: &str = "application/vnd.docker.distribution.manifest.list.v2+json";
pub(crate) const DOCKER_MANIFEST: &str = "application/vnd.docker.distribution.manifest.v2+json";
const DOCKER_CONFIG: &str = "application/vnd.docker.container.image.v1+json";
const LAYER_TYPES: [&str; 5] = [
    OCI_LAYER_TAR,
    "application/vnd.oci.image.layer.v1.tar+gzip",
    "application/vnd.oci.image.layer.v1.tar+zstd",
    "application/vnd.docker.image.rootfs.diff.tar",
    "application/vnd.docker.image.rootfs.diff.tar.gzip",
];

/// The architecture that images must have, in OCI's words.
pub(crate) const ARCHITECTURE: &str = if cfg!(target_arch = "aarch64") { "arm64" } else { "amd64" };
pub(crate) const OS: &str = "linux";

/// Why a manifest, an index or a configuration is not an image that can be run here.
#[derive(Debug, thiserror::Error)]
pub enum ManifestError {
    #[error("the {what} is not valid JSON of the expected shape")]
    Malformed { what: &'static str, source: serde_json::Error },
    #[error("the {what} has {bytes} bytes; at most {max} are accepted")]
    TooLarge { what: &'static str, bytes: u64, max: u64 },
    #[error(
        "{0:?} is not a supported media type; the image must be an OCI or Docker schema 2 image"
    )]
    UnsupportedMediaType(String),
    #[error("the image has no variant for {OS}/{ARCHITECTURE}; it offers: {offered}")]
    NoPlatform { offered: String },
    #[error("the image is built for {os}/{architecture}, not for {OS}/{ARCHITECTURE}")]
    WrongPlatform { os: String, architecture: String },
    #[error("the image has no layers, so there is nothing to run")]
    NoLayers,
    #[error("the image has {count} layers; at most {max} are supported")]
    TooManyLayers { count: usize, max: usize },
    #[error("the manifest lists {layers} layers but the configuration lists {diff_ids}")]
    LayerCountMismatch { layers: usize, diff_ids: usize },
    #[error("this is no {expected}, but {found:?}")]
    OtherKind { expected: &'static str, found: String },
    #[error("the index names {0} variants; name the one that is wanted by its digest")]
    SeveralVariants(usize),
    #[error("indexes are nested too deeply")]
    NestedIndex,
    #[error(transparent)]
    Config(#[from] ConfigError),
}

/// Names a piece of content by digest, with its size.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Descriptor {
    pub(crate) media_type: String,
    pub(crate) digest: Digest,
    pub(crate) size: u64,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Manifest {
    pub(crate) schema_version: u32,
    #[serde(default)]
    pub(crate) media_type: Option<String>,
    pub(crate) config: Descriptor,
    #[serde(default, deserialize_with = "null_is_empty")]
    pub(crate) layers: Vec<Descriptor>,
}

#[derive(Debug, Deserialize)]
pub(crate) struct Index {
    pub(crate) manifests: Vec<IndexEntry>,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct IndexEntry {
    #[serde(flatten)]
    pub(crate) descriptor: Descriptor,
    #[serde(default)]
    platform: Option<Platform>,
    #[serde(default)]
    pub(crate) annotations: Annotations,
}

/// The annotations that name an image inside a layout or an archive.
#[derive(Debug, Clone, Default, Deserialize)]
pub(crate) struct Annotations {
    #[serde(rename = "org.opencontainers.image.ref.name", default)]
    pub(crate) ref_name: Option<String>,
    #[serde(rename = "io.containerd.image.name", default)]
    pub(crate) full_name: Option<String>,
}

#[derive(Debug, Clone, Deserialize)]
struct Platform {
    #[serde(default)]
    os: String,
    #[serde(default)]
    architecture: String,
}

/// Takes one of the entries of an index.
pub(crate) type Choose = fn(&Index) -> Result<&IndexEntry, ManifestError>;

/// What a document fetched from `/manifests/` or named by an index turned out to be.
pub(crate) enum Document {
    Manifest(Manifest),
    Index(Index),
}

/// Parses a manifest or an index. `media_type` is what the source calls it and may be absent or
/// wrong; a `mediaType` inside the document, covered by its digest, is believed first.
pub(crate) fn parse_document(
    bytes: &[u8],
    media_type: Option<&str>,
) -> Result<Document, ManifestError> {
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Kind {
        #[serde(default)]
        media_type: Option<String>,
        #[serde(default)]
        manifests: Option<serde::de::IgnoredAny>,
    }
    let malformed = |source| ManifestError::Malformed { what: "manifest", source };
    let kind: Kind = serde_json::from_slice(bytes).map_err(malformed)?;
    let claimed = kind.media_type.as_deref().or(media_type);
    match claimed {
        Some(OCI_INDEX | DOCKER_INDEX) => parse_index(bytes).map(Document::Index),
        Some(OCI_MANIFEST | DOCKER_MANIFEST) => {
            serde_json::from_slice(bytes).map(Document::Manifest).map_err(malformed)
        }
        None if kind.manifests.is_some() => parse_index(bytes).map(Document::Index),
        None => serde_json::from_slice(bytes).map(Document::Manifest).map_err(malformed),
        Some(other) => Err(ManifestError::UnsupportedMediaType(shown(other))),
    }
}

pub(crate) fn parse_index(bytes: &[u8]) -> Result<Index, ManifestError> {
    serde_json::from_slice(bytes)
        .map_err(|source| ManifestError::Malformed { what: "index", source })
}

impl Index {
    /// The first entry for this machine. An entry without a platform counts only if it is alone.
    pub(crate) fn for_this_platform(&self) -> Result<&IndexEntry, ManifestError> {
        if let [only] = self.manifests.as_slice()
            && only.platform.is_none()
        {
            return Ok(only);
        }
        self.manifests.iter().find(|entry| entry.fits_this_platform()).ok_or_else(|| {
            let offered: Vec<String> = self
                .manifests
                .iter()
                .filter_map(|entry| entry.platform.as_ref())
                .take(20)
                .map(|p| format!("{}/{}", shown(&p.os), shown(&p.architecture)))
                .collect();
            let offered = if offered.is_empty() { "none".to_owned() } else { offered.join(", ") };
            ManifestError::NoPlatform { offered }
        })
    }
}

impl Index {
    /// The only entry, whatever platform it is for.
    pub(crate) fn only(&self) -> Result<&IndexEntry, ManifestError> {
        match self.manifests.as_slice() {
            [only] => Ok(only),
            several => Err(ManifestError::SeveralVariants(several.len())),
        }
    }
}

impl IndexEntry {
    fn fits_this_platform(&self) -> bool {
        self.platform.as_ref().is_some_and(|p| p.os == OS && p.architecture == ARCHITECTURE)
    }

    /// Whether the entry is made for some other machine. Build tools also list attestations,
    /// as images of the platform `unknown/unknown`.
    pub(crate) fn is_for_another_platform(&self) -> bool {
        self.platform.is_some() && !self.fits_this_platform()
    }
}

impl Manifest {
    /// Checks what can be checked before anything is downloaded.
    pub(crate) fn check(&self, limits: &ImageLimits) -> Result<(), ManifestError> {
        let config_type = self.config.media_type.as_str();
        if !matches!(config_type, OCI_CONFIG | DOCKER_CONFIG) {
            return Err(ManifestError::UnsupportedMediaType(shown(config_type)));
        }
        if self.layers.is_empty() {
            return Err(ManifestError::NoLayers);
        }
        if self.layers.len() > limits.max_layers {
            let count = self.layers.len();
            return Err(ManifestError::TooManyLayers { count, max: limits.max_layers });
        }
        check_size("configuration", self.config.size, limits.max_document_bytes)?;
        let mut total: u64 = 0;
        for layer in &self.layers {
            if !LAYER_TYPES.contains(&layer.media_type.as_str()) {
                return Err(ManifestError::UnsupportedMediaType(shown(&layer.media_type)));
            }
            check_size("layer", layer.size, limits.max_blob_bytes)?;
            total = total.saturating_add(layer.size);
        }
        check_size("image", total, limits.max_image_bytes)
    }

    /// Checks that the configuration belongs to this manifest and to this machine.
    pub(crate) fn check_config(&self, config: &ParsedConfig) -> Result<(), ManifestError> {
        let wrong = |found: &str, wanted: &str| !found.is_empty() && found != wanted;
        if wrong(&config.os, OS) || wrong(&config.architecture, ARCHITECTURE) {
            return Err(ManifestError::WrongPlatform {
                os: shown(&config.os),
                architecture: shown(&config.architecture),
            });
        }
        if config.diff_ids.len() != self.layers.len() {
            return Err(ManifestError::LayerCountMismatch {
                layers: self.layers.len(),
                diff_ids: config.diff_ids.len(),
            });
        }
        Ok(())
    }
}

pub(crate) fn check_size(what: &'static str, bytes: u64, max: u64) -> Result<(), ManifestError> {
    if bytes > max { Err(ManifestError::TooLarge { what, bytes, max }) } else { Ok(()) }
}

/// Tools written in Go write `null` for an empty list.
fn null_is_empty<'de, D: serde::Deserializer<'de>>(from: D) -> Result<Vec<Descriptor>, D::Error> {
    Ok(Option::deserialize(from)?.unwrap_or_default())
}

/// Hostile text cut to what an error message can bear.
pub(crate) fn shown(text: &str) -> String {
    text.chars().take(100).filter(|c| !c.is_control()).collect()
}

#[cfg(test)]
mod tests;
