//! Taking images out of the store, and everything that only they needed.

use std::collections::HashSet;
use std::fs;
use std::io;

use super::hold::{Claim, claim};
use super::record::{ImageRecord, TagRecord};
use super::temp::remove_tree;
use super::{ResolveError, Store, StoreError};
use crate::digest::Digest;
use crate::reference::{Reference, Version};

/// What a removal did.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Removed {
    /// The names that are gone.
    pub names: Vec<String>,
    pub digest: String,
    pub freed: Freed,
}

/// How much was deleted.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Freed {
    pub images: usize,
    pub layers: usize,
    pub root_images: usize,
    pub blobs: usize,
    /// Bytes of the blobs; the unpacked layers come on top.
    pub blob_bytes: u64,
    /// Leftovers of work that was interrupted.
    pub temporary: usize,
}

/// Why an image was not removed.
#[derive(Debug, thiserror::Error)]
pub enum RemoveError {
    #[error(transparent)]
    Resolve(#[from] ResolveError),
    #[error("the image {0} is used by a running sandbox; stop it first (see `ringwall ps`)")]
    InUse(String),
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl Store {
    /// Removes a name, or with `sha256:...` every name of an image. With its last name goes the
    /// image, and with it the layers, root image and blobs that no other image uses.
    pub fn remove(&self, reference: &str) -> Result<Removed, RemoveError> {
        let _deleting = self.lock_for_deleting()?;
        let all = self.read_all_tags()?;
        let doomed = self.tags_meant(reference, &all)?;
        let digest = match doomed.first() {
            Some(tag) => tag.image.digest.clone(),
            None => return Err(ResolveError::NotFound(reference.to_owned()).into()),
        };
        let names: Vec<String> = doomed.iter().map(|tag| tag.name.clone()).collect();
        let others = all.iter().any(|tag| tag.image.digest == digest && !names.contains(&tag.name));
        // Kept until the sweep is done, so that no sandbox can start on an image that is going.
        let claimed = if others { Claim::Gone } else { self.claim_image(&digest)? };
        if matches!(claimed, Claim::Held) {
            return Err(RemoveError::InUse(reference.to_owned()));
        }
        for name in &names {
            self.delete_tag(name)?;
        }
        let mut freed = Freed::default();
        if !others {
            self.delete_image(&digest, &mut freed)?;
        }
        self.sweep(&mut freed)?;
        Ok(Removed { names, digest: digest.to_string(), freed })
    }

    /// Deletes what no name refers to and nobody holds: leftovers of crashes, images whose name now
    /// stands for a newer one, content of pulls that failed.
    pub fn gc(&self) -> Result<Freed, StoreError> {
        let _deleting = self.lock_for_deleting()?;
        let mut freed = Freed::default();
        self.sweep(&mut freed)?;
        Ok(freed)
    }

    fn tags_meant<'a>(
        &self,
        reference: &str,
        all: &'a [TagRecord],
    ) -> Result<Vec<&'a TagRecord>, ResolveError> {
        if let Ok(digest) = reference.parse::<Digest>() {
            return Ok(all.iter().filter(|tag| tag.image.digest == digest).collect());
        }
        let reference: Reference = reference.parse()?;
        let name = match reference.version() {
            Version::Digest(_) => reference.with_default_registry().to_string(),
            Version::Tag(_) => match self.find_tag(&reference)? {
                Some(tag) => tag.name,
                None => return Ok(Vec::new()),
            },
        };
        let own = reference.to_string();
        Ok(all.iter().filter(|tag| tag.name == name || tag.name == own).collect())
    }

    fn sweep(&self, freed: &mut Freed) -> Result<(), StoreError> {
        let mut kept: Vec<ImageRecord> =
            self.read_all_tags()?.into_iter().map(|tag| tag.image).collect();
        for digest in self.all_image_digests()? {
            if kept.iter().any(|image| image.digest == digest) {
                continue;
            }
            match self.claim_image(&digest)? {
                Claim::Unheld(_claim) => self.delete_image(&digest, freed)?,
                Claim::Held => kept.extend(self.read_image(&digest)?),
                Claim::Gone => {}
            }
        }
        freed.root_images += self.sweep_root_images(&kept)?;
        self.sweep_layers(&kept, freed)?;
        self.sweep_blobs(&kept, freed)?;
        // Under the exclusive lock nobody is at work, so nothing here has an owner any more.
        for name in self.names_in("tmp")? {
            let path = self.root.join("tmp").join(name);
            remove_tree(&path).map_err(StoreError::io("remove", &path))?;
            freed.temporary += 1;
        }
        Ok(())
    }

    fn sweep_layers(&self, kept: &[ImageRecord], freed: &mut Freed) -> Result<(), StoreError> {
        let used: HashSet<&str> =
            kept.iter().flat_map(|image| &image.layers).map(|layer| layer.diff_id.hex()).collect();
        for name in self.names_in("layers")? {
            if !used.contains(name.as_str()) {
                self.delete_directory(&self.root.join("layers").join(name))?;
                freed.layers += 1;
            }
        }
        Ok(())
    }

    fn sweep_blobs(&self, kept: &[ImageRecord], freed: &mut Freed) -> Result<(), StoreError> {
        let mut used: HashSet<&str> = HashSet::new();
        for image in kept {
            used.extend([image.digest.hex(), image.config_digest.hex()]);
            used.extend(image.layers.iter().map(|layer| layer.blob.hex()));
        }
        for name in self.names_in("blobs/sha256")? {
            if !used.contains(name.as_str()) {
                let path = self.root.join("blobs/sha256").join(name);
                let bytes = fs::metadata(&path).map_or(0, |found| found.len());
                fs::remove_file(&path).map_err(StoreError::io("remove", &path))?;
                freed.blobs += 1;
                freed.blob_bytes += bytes;
            }
        }
        Ok(())
    }

    fn claim_image(&self, digest: &Digest) -> Result<Claim, StoreError> {
        let path = self.image_path(digest);
        claim(&path).map_err(StoreError::io("lock", &path))
    }

    fn delete_image(&self, digest: &Digest, freed: &mut Freed) -> Result<(), StoreError> {
        let path = self.image_path(digest);
        match fs::remove_file(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            Err(error) => Err(StoreError::io("remove", &path)(error)),
            Ok(()) => {
                freed.images += 1;
                Ok(())
            }
        }
    }
}
