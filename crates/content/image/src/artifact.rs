//! OCI artefacts that hold one file, such as a WebAssembly module.

use crate::digest::Digest;
use crate::manifest::{Index, Manifest, ManifestError, check_size, shown};
use crate::progress::{Progress, Work};
use crate::pull::{PullError, PullOptions};
use crate::reference::Reference;
use crate::registry::RegistryClient;
use crate::store::{BlobSource, Store};

/// What an artefact must be to be accepted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ArtifactKind {
    /// In words, for errors.
    pub name: &'static str,
    /// Media types of the configuration and of the only layer.
    pub config: &'static str,
    pub layer: &'static str,
    pub max_bytes: u64,
}

/// The file, with the digest of the manifest that named it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Artifact {
    pub manifest: Digest,
    pub content: Vec<u8>,
}

impl Store {
    /// Fetches an artefact from a registry. Nothing of it stays in the store.
    pub fn pull_artifact(
        &self,
        reference: &str,
        options: &PullOptions,
        kind: &ArtifactKind,
        progress: &dyn Progress,
    ) -> Result<Artifact, PullError> {
        let reference = reference.parse::<Reference>()?.with_default_registry();
        let client = RegistryClient::new(&reference, options)?;
        let (manifest_bytes, manifest) = self.fetch_manifest(&client, &reference, Index::only)?;
        let content = self.fetch_content(&client, &manifest, kind, progress)?;
        Ok(Artifact { manifest: Digest::of(&manifest_bytes), content })
    }

    /// Fetches the only layer of a manifest that is of the right kind.
    pub(crate) fn fetch_content<S: BlobSource>(
        &self,
        source: &S,
        manifest: &Manifest,
        kind: &ArtifactKind,
        progress: &dyn Progress,
    ) -> Result<Vec<u8>, S::Error> {
        let other =
            |found: &str| ManifestError::OtherKind { expected: kind.name, found: shown(found) };
        if manifest.config.media_type != kind.config {
            return Err(other(&manifest.config.media_type).into());
        }
        let [layer] = manifest.layers.as_slice() else {
            return Err(other(&format!("{} files", manifest.layers.len())).into());
        };
        if layer.media_type != kind.layer {
            return Err(other(&layer.media_type).into());
        }
        check_size(kind.name, layer.size, kind.max_bytes)?;
        let work = Work::new(progress);
        let piece = work.begin(layer.digest.short().to_owned(), Some(layer.size));
        self.make_layout()?;
        let mut writer = self.write_blob(layer)?;
        source.fetch(layer, &mut writer, &piece)?;
        Ok(writer.into_bytes()?)
    }
}
