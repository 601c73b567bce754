//! What `docker save` wrote before it learned to write OCI layouts, and what other tools still do.
//!
//! There is no manifest in there, only a list of file names: one is made up, so that the store
//! knows every image in the same way.

use std::collections::HashMap;
use std::collections::hash_map::Entry;

use serde::Deserialize;

use super::files::{ContentId, Files};
use super::{Import, ImportError, Offer, copy_blob};
use crate::digest::{Digest, digest_of_reader};
use crate::limits::MAX_IMPORTED_NAMES;
use crate::manifest::{
    Descriptor, Manifest, ManifestError, OCI_CONFIG, OCI_LAYER_TAR, OCI_MANIFEST,
};
use crate::progress::Piece;
use crate::reference::{Reference, ReferenceError};
use crate::store::{BlobError, BlobSource, BlobWriter, Image};

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
        if saved.is_empty() || saved.len() > MAX_IMPORTED_NAMES {
            return Err(ImportError::NoImage(self.source.path.clone()));
        }
        if self.name.is_some() && saved.len() > 1 {
            let names = saved.iter().filter_map(|image| image.repo_tags.as_ref()?.first());
            let names: Vec<&str> = names.map(String::as_str).take(20).collect();
            return Err(ImportError::SeveralImages(names.join(", ")));
        }
        let mut known = HashMap::new();
        let mut offers = Vec::new();
        for image in &saved {
            let names = self.names_of(image)?;
            let (manifest, blobs) = self.made_up_manifest(files, image, &mut known)?;
            let manifest_bytes = serde_json::to_vec(&manifest).map_err(malformed)?;
            offers.push(Offer { names, manifest_bytes, manifest, blobs });
        }
        self.take(&offers)
    }

    fn names_of(&self, saved: &SavedImage) -> Result<Vec<Reference>, ReferenceError> {
        if let Some(name) = &self.name {
            return Ok(vec![name.clone()]);
        }
        match saved.repo_tags.as_deref() {
            None | Some([]) => Ok(vec![self.source.default_repository().parse()?]),
            Some(names) => {
                names.iter().take(MAX_IMPORTED_NAMES + 1).map(|name| name.parse()).collect()
            }
        }
    }

    fn made_up_manifest<'f>(
        &self,
        files: &'f Files,
        saved: &SavedImage,
        known: &mut HashMap<ContentId, Content>,
    ) -> Result<(Manifest, SavedBlobs<'f>), ImportError> {
        let limits = self.store.limits();
        if saved.layers.len() > limits.max_layers {
            let count = saved.layers.len();
            return Err(ManifestError::TooManyLayers { count, max: limits.max_layers }.into());
        }
        let mut names = HashMap::new();
        let mut describe = |name: &str, media_type: &str| -> Result<Descriptor, ImportError> {
            let failed = |source| ImportError::Read { name: name.to_owned(), source };
            let file = files.open_file(name)?;
            // However often it is mentioned, and by however many names: it is hashed once.
            let Content { digest, size } = match known.entry(file.content) {
                Entry::Occupied(entry) => entry.get().clone(),
                Entry::Vacant(entry) => {
                    let (digest, size) = digest_of_reader(file.reader).map_err(failed)?;
                    entry.insert(Content { digest, size }).clone()
                }
            };
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

/// What a file of the archive holds.
#[derive(Clone)]
struct Content {
    digest: Digest,
    size: u64,
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
