//! A place to unpack layers in, and looking at what came out.

use std::fs;
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use ringwall_image::{Refusal, UnpackError, UnpackLimits, Unpacked, unpack_layer};

use super::layer::Layer;

/// A directory to unpack into, inside one that must stay as it is.
pub(crate) struct Place {
    around: tempfile::TempDir,
}

impl Place {
    pub(crate) fn new() -> Place {
        let around = tempfile::tempdir().unwrap();
        fs::create_dir(around.path().join("layer")).unwrap();
        fs::write(around.path().join("secret"), "untouched").unwrap();
        Place { around }
    }

    pub(crate) fn layer(&self) -> PathBuf {
        self.around.path().join("layer")
    }

    pub(crate) fn unpack(&self, layer: &[u8]) -> Result<Unpacked, UnpackError> {
        let result = unpack_layer(layer, &self.layer(), &UnpackLimits::default());
        assert_eq!(super::names_in(self.around.path()), ["layer", "secret"]);
        assert_eq!(fs::read_to_string(self.around.path().join("secret")).unwrap(), "untouched");
        result
    }
}

#[track_caller]
pub(crate) fn refused(layer: Layer) -> Refusal {
    match Place::new().unpack(&layer.done()) {
        Err(UnpackError::Refused { why, .. }) => why,
        other => panic!("not refused: {other:?}"),
    }
}

#[track_caller]
pub(crate) fn unpacked(layer: Layer) -> (Place, Unpacked) {
    let place = Place::new();
    let report =
        place.unpack(&layer.done()).unwrap_or_else(|error| panic!("{}", super::told(&error)));
    (place, report)
}

pub(crate) fn mode(path: &Path) -> u32 {
    fs::symlink_metadata(path).unwrap().permissions().mode() & 0o7777
}

pub(crate) fn is_whiteout(path: &Path) -> bool {
    let found = fs::symlink_metadata(path).unwrap();
    found.file_type().is_char_device() && found.rdev() == 0
}

pub(crate) fn is_opaque(path: &Path) -> bool {
    let mut value = [0; 1];
    rustix::fs::lgetxattr(path, "user.overlay.opaque", &mut value)
        .is_ok_and(|length| value[..length] == *b"y")
}
