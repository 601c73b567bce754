//! Puts an image together: configuration and layers from some source, several layers at a time.

use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::blobs::{BlobError, BlobWriter, CommitError};
use super::layers::{AddLayerError, LayerError, MissingLayer, UnpackedLayer};
use super::record::{ImageRecord, LayerRecord};
use super::{Image, Store, StoreError};
use crate::budget::Budget;
use crate::config::{ParsedConfig, parse_config};
use crate::digest::Digest;
use crate::manifest::{Descriptor, Manifest, ManifestError};
use crate::progress::{Piece, Progress, Work};

/// Layers that are fetched and unpacked at the same time.
const WORKERS: usize = 3;

/// Where an image's content comes from: a registry, a directory, an archive.
pub(crate) trait BlobSource: Sync {
    type Error: From<StoreError> + From<BlobError> + From<LayerError> + From<ManifestError> + Send;

    /// Writes the content that `blob` names. It is checked afterwards: a source may lie.
    fn fetch(
        &self,
        blob: &Descriptor,
        into: &mut BlobWriter,
        piece: &Piece<'_>,
    ) -> Result<(), Self::Error>;
}

/// An image that a source offers.
pub(crate) struct Candidate<'a> {
    pub(crate) name: String,
    /// The manifest exactly as its digest covers it.
    pub(crate) manifest_bytes: &'a [u8],
    pub(crate) manifest: &'a Manifest,
    /// What may be unpacked for it.
    pub(crate) budget: &'a Budget,
    pub(crate) naming: Naming,
}

/// What becomes of an image that has the name already.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Naming {
    /// It keeps its name, and the new image is refused.
    KeepOthers,
    Replace,
}

impl Store {
    /// Brings everything that the image needs into the store and gives it its name. Content that
    /// is there already, from another image or from an attempt that failed, is not fetched again.
    pub(crate) fn assemble<S: BlobSource>(
        &self,
        source: &S,
        candidate: &Candidate<'_>,
        progress: &dyn Progress,
    ) -> Result<Image, S::Error> {
        let manifest = candidate.manifest;
        manifest.check(&self.limits)?;
        let digest = Digest::of(candidate.manifest_bytes);
        self.check_name(&candidate.name, &digest, candidate.naming)?;
        let document_bytes = candidate.manifest_bytes.len() as u64 + manifest.config.size;
        candidate.budget.count_document(document_bytes)?;
        let _adding = self.lock_for_adding()?;
        let work = Work::new(progress);
        self.ensure_blob(source, &manifest.config, &work)?;
        let config =
            parse_config(&self.read_blob(&manifest.config)?).map_err(ManifestError::from)?;
        manifest.check_config(&config)?;
        self.ensure_layers(source, candidate, &config, &work)?;

        let layers = manifest.layers.iter().zip(&config.diff_ids);
        let record = ImageRecord {
            digest: self.put_bytes(candidate.manifest_bytes)?,
            config_digest: manifest.config.digest.clone(),
            layers: layers
                .map(|(blob, diff_id)| LayerRecord {
                    diff_id: diff_id.clone(),
                    blob: blob.digest.clone(),
                    bytes: blob.size,
                })
                .collect(),
            stack: self.stack_of(&config.diff_ids),
            created: config.created,
            config: config.image,
        };
        self.write_image(&candidate.name, &record)?;
        Ok(self.image(candidate.name.clone(), &record))
    }

    fn ensure_layers<S: BlobSource>(
        &self,
        source: &S,
        candidate: &Candidate<'_>,
        config: &ParsedConfig,
        work: &Work<'_>,
    ) -> Result<(), S::Error> {
        let mut missing: Vec<MissingLayer<'_>> = Vec::new();
        for (blob, diff_id) in candidate.manifest.layers.iter().zip(&config.diff_ids) {
            if !missing.iter().any(|known| known.diff_id == diff_id) && !self.has_layer(diff_id) {
                missing.push(MissingLayer { blob, diff_id });
            }
        }
        let next = AtomicUsize::new(0);
        let unpacked = Mutex::new(Vec::new());
        let first_error = Mutex::new(None);
        let run_worker = || {
            while let Some(layer) = missing.get(next.fetch_add(1, Ordering::Relaxed)) {
                if work.stopped() {
                    return;
                }
                match self.unpack_missing(source, layer, candidate.budget, work) {
                    Ok(layer) => {
                        if let Ok(mut unpacked) = unpacked.lock() {
                            unpacked.push(layer);
                        }
                    }
                    Err(error) => {
                        // The others fail as well once they are told to stop; the first one is the
                        // reason.
                        if let Ok(mut slot) = first_error.lock() {
                            slot.get_or_insert(error);
                        }
                        work.stop();
                        return;
                    }
                }
            }
        };
        std::thread::scope(|scope| {
            for _ in 0..missing.len().min(WORKERS) {
                scope.spawn(run_worker);
            }
        });
        if let Ok(Some(error)) = first_error.into_inner() {
            return Err(error);
        }
        for layer in unpacked.into_inner().unwrap_or_default() {
            self.keep_layer(layer)?;
        }
        Ok(())
    }

    fn unpack_missing<S: BlobSource>(
        &self,
        source: &S,
        layer: &MissingLayer<'_>,
        budget: &Budget,
        work: &Work<'_>,
    ) -> Result<UnpackedLayer, S::Error> {
        self.ensure_blob(source, layer.blob, work)?;
        self.unpack_blob(layer, budget, work).map_err(|error| match error {
            AddLayerError::Layer(error) => error.into(),
            AddLayerError::Store(error) => error.into(),
        })
    }

    fn ensure_blob<S: BlobSource>(
        &self,
        source: &S,
        blob: &Descriptor,
        work: &Work<'_>,
    ) -> Result<(), S::Error> {
        if self.has_blob(blob) {
            return Ok(());
        }
        let mut writer = self.write_blob(blob)?;
        {
            let piece = work.begin(format!("fetching {}", blob.digest.short()), Some(blob.size));
            source.fetch(blob, &mut writer, &piece)?;
        }
        self.commit_blob(writer).map_err(|error| match error {
            CommitError::Blob(error) => error.into(),
            CommitError::Store(error) => error.into(),
        })
    }
}
