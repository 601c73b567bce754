//! Puts an image together: configuration and layers from some source, several layers at a time.

use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::blobs::{BlobError, BlobWriter, CommitError};
use super::layers::{AddLayerError, LayerError};
use super::record::{ImageRecord, LayerRecord};
use super::{Image, Store, StoreError};
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
        let _adding = self.lock_for_adding()?;
        let work = Work::new(progress);
        self.ensure_blob(source, &manifest.config, &work)?;
        let config =
            parse_config(&self.read_blob(&manifest.config)?).map_err(ManifestError::from)?;
        manifest.check_config(&config)?;
        self.ensure_layers(source, manifest, &config, &work)?;

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
        manifest: &Manifest,
        config: &ParsedConfig,
        work: &Work<'_>,
    ) -> Result<(), S::Error> {
        let mut missing: Vec<(&Descriptor, &Digest)> = Vec::new();
        for (blob, diff_id) in manifest.layers.iter().zip(&config.diff_ids) {
            if !missing.iter().any(|(_, known)| *known == diff_id) && !self.has_layer(diff_id) {
                missing.push((blob, diff_id));
            }
        }
        let next = AtomicUsize::new(0);
        let first_error = Mutex::new(None);
        let run_worker = || {
            while let Some((blob, diff_id)) = missing.get(next.fetch_add(1, Ordering::Relaxed)) {
                if work.stopped() {
                    return;
                }
                if let Err(error) = self.ensure_layer(source, blob, diff_id, work) {
                    // The others fail as well once they are told to stop; the first one is the reason.
                    if let Ok(mut slot) = first_error.lock() {
                        slot.get_or_insert(error);
                    }
                    work.stop();
                    return;
                }
            }
        };
        std::thread::scope(|scope| {
            for _ in 0..missing.len().min(WORKERS) {
                scope.spawn(run_worker);
            }
        });
        match first_error.into_inner() {
            Ok(Some(error)) => Err(error),
            _ => Ok(()),
        }
    }

    fn ensure_layer<S: BlobSource>(
        &self,
        source: &S,
        blob: &Descriptor,
        diff_id: &Digest,
        work: &Work<'_>,
    ) -> Result<(), S::Error> {
        self.ensure_blob(source, blob, work)?;
        self.add_layer(diff_id, blob, work).map_err(|error| match error {
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
