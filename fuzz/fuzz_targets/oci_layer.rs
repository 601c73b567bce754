//! Any bytes as a layer of an image: unpacking must not panic, hang, or touch anything outside its
//! directory.

#![no_main]

use std::fs;
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt};
use std::path::Path;

use libfuzzer_sys::fuzz_target;
use ringwall_image::{UnpackLimits, unpack_layer};

fuzz_target!(|layer: &[u8]| {
    let around = tempfile::tempdir().expect("a temporary directory");
    let into = around.path().join("layer");
    fs::create_dir(&into).expect("an empty directory");
    let limits = UnpackLimits {
        max_bytes: 1 << 20,
        max_entries: 200,
        max_ratio: 100,
        ratio_floor_bytes: 1 << 16,
    };
    let _ = unpack_layer(layer, &into, &limits);
    let outside = fs::read_dir(around.path())
        .expect("the directory around")
        .count();
    assert_eq!(outside, 1, "something was made outside the layer");
    check(&into);
});

/// Opens every directory on the way, so that the temporary directory can be removed.
fn check(directory: &Path) {
    fs::set_permissions(directory, fs::Permissions::from_mode(0o700)).expect("our own directory");
    for entry in fs::read_dir(directory).expect("our own directory") {
        let path = entry.expect("an entry").path();
        let found = fs::symlink_metadata(&path).expect("an entry");
        assert_eq!(
            found.mode() & 0o6000,
            0,
            "set-id bits on {}",
            path.display()
        );
        let device = found.file_type().is_block_device() || found.file_type().is_char_device();
        assert!(
            !device || found.rdev() == 0,
            "a device at {}",
            path.display()
        );
        if found.is_dir() {
            check(&path);
        }
    }
}
