//! What `docker save` wrote before it learned to write OCI layouts, and what other tools still do.
//!
//! There is no manifest in there, only a list of file names: one is made up, so that the store
//! knows every image in the same way.

use std::collections::HashMap;

use serde::Deserialize;

use super::files::Files;
use super::{Import, ImportError, copy_blob};
use crate::digest::{Digest, digest_of_reader};
use crate::manifest::{
    Descriptor, Manifest, ManifestError, OCI_CONFIG, OCI_LAYER_TAR, OCI_MANIFEST,
};
use crate::progress::Piece;
use crate::reference::{Reference, ReferenceError};
use crate::store::{BlobError, BlobSource, BlobWriter, Candidate, Image};

const MAX_IMAGES: usize = 256;
const MAX_NAMES: usize = 256;

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct SavedImage {
    config: String,
    #[serde(default)]
    repo_tags: Option<Vec<String>>,
    layers: Vec<String>,
}

impl Import<'_> {
    pub(super) fn docker_archive(&self, files: &Files) -> Result<Vec<Image>, ImportError> {
        let max_bytes = self.store.limits().max_document_bytes;
        let list = files.read("manifest.json", "list of images", max_bytes)?;
        let malformed =
            |source| ImportError::Malformed { name: "manifest.json".to_owned(), source };
        let saved: Vec<SavedImage> = serde_json::from_slice(&list).map_err(malformed)?;
        if saved.is_empty() || saved.len() > MAX_IMAGES {
            return Err(ImportError::NoImage(self.source.path.clone()));
        }
        if self.name.is_some() && saved.len() > 1 {
            let names = saved.iter().filter_map(|image| image.repo_tags.as_ref()?.first());
            let names: Vec<&str> = names.map(String::as_str).take(20).collect();
            return Err(ImportError::SeveralImages(names.join(", ")));
        }
        let mut images = Vec::new();
        for image in &saved {
            images.extend(self.saved_image(files, image)?);
        }
        Ok(images)
    }

    fn saved_image(&self, files: &Files, saved: &SavedImage) -> Result<Vec<Image>, ImportError> {
        let (manifest, blobs) = self.made_up_manifest(files, saved)?;
        let malformed =
            |source| ImportError::Malformed { name: "manifest.json".to_owned(), source };
        let manifest_bytes = serde_json::to_vec(&manifest).map_err(malformed)?;
        let mut images = Vec::new();
        for name in self.names_of(saved)? {
            let candidate = Candidate {
                name: name.to_string(),
                manifest_bytes: &manifest_bytes,
                manifest: &manifest,
            };
            images.push(self.store.assemble(&blobs, &candidate, self.progress)?);
        }
        Ok(images)
    }

    fn names_of(&self, saved: &SavedImage) -> Result<Vec<Reference>, ReferenceError> {
        if let Some(name) = &self.name {
            return Ok(vec![name.clone()]);
        }
        match saved.repo_tags.as_deref() {
            None | Some([]) => Ok(vec![self.source.default_repository().parse()?]),
            Some(names) => names.iter().take(MAX_NAMES).map(|name| name.parse()).collect(),
        }
    }

    fn made_up_manifest<'f>(
        &self,
        files: &'f Files,
        saved: &SavedImage,
    ) -> Result<(Manifest, SavedBlobs<'f>), ImportError> {
        let limits = self.store.limits();
        if saved.layers.len() > limits.max_layers {
            let count = saved.layers.len();
            return Err(ManifestError::TooManyLayers { count, max: limits.max_layers }.into());
        }
        let mut names = HashMap::new();
        let mut describe = |name: &str, media_type: &str| -> Result<Descriptor, ImportError> {
            let failed = |source| ImportError::Read { name: name.to_owned(), source };
            let reader = files.open_file(name)?.reader;
            let (digest, size) = digest_of_reader(reader).map_err(failed)?;
            names.insert(digest.clone(), name.to_owned());
            Ok(Descriptor { media_type: media_type.to_owned(), digest, size })
        };
        let config = describe(&saved.config, OCI_CONFIG)?;
        check_named_digest(&saved.config, &config.digest)?;
        let layers = saved
            .layers
            .iter()
            .map(|name| describe(name, OCI_LAYER_TAR))
            .collect::<Result<Vec<Descriptor>, ImportError>>()?;
        let manifest =
            Manifest { schema_version: 2, media_type: Some(OCI_MANIFEST.into()), config, layers };
        Ok((manifest, SavedBlobs { files, names }))
    }
}

/// Docker names a configuration after its digest: `HEX.json`, or `blobs/sha256/HEX`. (Layers are
/// named after all kinds of things; they are checked against the configuration.)
fn check_named_digest(name: &str, found: &Digest) -> Result<(), BlobError> {
    let file_name = name.rsplit('/').next().unwrap_or_default();
    match Digest::from_hex(file_name.strip_suffix(".json").unwrap_or(file_name)) {
        Some(expected) if expected != *found => {
            Err(BlobError::WrongDigest { expected, found: found.clone() })
        }
        _ => Ok(()),
    }
}

struct SavedBlobs<'f> {
    files: &'f Files,
    /// Which file has which content.
    names: HashMap<Digest, String>,
}

impl BlobSource for SavedBlobs<'_> {
    type Error = ImportError;

    fn fetch(
        &self,
        blob: &Descriptor,
        into: &mut BlobWriter,
        piece: &Piece<'_>,
    ) -> Result<(), ImportError> {
        match self.names.get(&blob.digest) {
            Some(name) => copy_blob(self.files, name, into, piece),
            None => Err(ImportError::NotAFile { name: blob.digest.to_string() }),
        }
    }
}
