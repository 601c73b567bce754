//! Unpacked layers, each in a directory of its own, shared by every image that has it.

use std::fs;

use super::temp::Temp;
use super::{Store, StoreError};
use crate::budget::Budget;
use crate::digest::Digest;
use crate::manifest::Descriptor;
use crate::progress::{Watched, Work};
use crate::unpack::{UnpackError, unpack_within};

/// A layer that was not unpacked.
#[derive(Debug, thiserror::Error)]
#[error("cannot unpack the layer {digest}")]
pub struct LayerError {
    /// Of the compressed layer, as the manifest names it.
    pub digest: Digest,
    pub source: UnpackError,
}

/// Why a layer is not in the store.
pub(super) enum AddLayerError {
    Layer(LayerError),
    Store(StoreError),
}

/// A layer that the store does not have yet.
pub(super) struct MissingLayer<'a> {
    pub(super) blob: &'a Descriptor,
    pub(super) diff_id: &'a Digest,
}

/// A layer in `tmp/`, removed unless it is kept.
pub(super) struct UnpackedLayer {
    temp: Temp,
    diff_id: Digest,
}

impl Store {
    pub(super) fn has_layer(&self, diff_id: &Digest) -> bool {
        fs::symlink_metadata(self.layer_path(diff_id)).is_ok()
    }

    /// Unpacks a blob of the store. It gets its name when the image's other layers are there, too: an
    /// image that breaks its budget leaves none of its layers.
    pub(super) fn unpack_blob(
        &self,
        layer: &MissingLayer<'_>,
        budget: &Budget,
        work: &Work<'_>,
    ) -> Result<UnpackedLayer, AddLayerError> {
        let MissingLayer { blob, diff_id } = *layer;
        let temp = self.temp_directory().map_err(AddLayerError::Store)?;
        let piece = work.begin(format!("unpacking {}", blob.digest.short()), Some(blob.size));
        let compressed = self.open_blob(&blob.digest).map_err(AddLayerError::Store)?;
        let watched = Watched { inner: compressed, piece: &piece };
        let failed =
            |source| AddLayerError::Layer(LayerError { digest: blob.digest.clone(), source });
        let unpacked =
            unpack_within(watched, temp.path(), &budget.meter(blob.size)).map_err(failed)?;
        if unpacked.diff_id != *diff_id {
            let (expected, found) = (diff_id.clone(), unpacked.diff_id);
            return Err(failed(UnpackError::WrongDiffId { expected, found }));
        }
        Ok(UnpackedLayer { temp, diff_id: diff_id.clone() })
    }

    pub(super) fn keep_layer(&self, layer: UnpackedLayer) -> Result<(), StoreError> {
        layer.temp.settle(&self.layer_path(&layer.diff_id))
    }

    /// Which of an image's layers to mount, bottom to top.
    ///
    /// overlayfs refuses a directory that is listed twice. Only the topmost occurrence matters: it has
    /// everything that the lower ones have and hides everything that they hide. And overlayfs does not
    /// look for the opaque mark on a layer's root, so what lies below such a layer is left out here.
    pub(super) fn stack_of(&self, diff_ids: &[Digest]) -> Vec<Digest> {
        let mut stack: Vec<Digest> = Vec::with_capacity(diff_ids.len());
        for diff_id in diff_ids.iter().rev() {
            if !stack.contains(diff_id) {
                stack.push(diff_id.clone());
            }
            if self.hides_everything_below(diff_id) {
                break;
            }
        }
        stack.reverse();
        stack
    }

    fn hides_everything_below(&self, diff_id: &Digest) -> bool {
        let mut value = [0; 1];
        let attribute = "user.overlay.opaque";
        rustix::fs::lgetxattr(self.layer_path(diff_id), attribute, &mut value)
            .is_ok_and(|length| value[..length] == *b"y")
    }
}
