//! Any bytes as a stream of a tree: taking it must not panic, touch anything outside its directory,
//! or depend on how the bytes were cut.
//!
//! The first byte of the input chooses how the rest is cut. A stream that is not one by chance gets
//! the magic that it lacks.

#![no_main]

use std::fs;
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt};
use std::path::Path;

use libfuzzer_sys::fuzz_target;
use ringwall_tree::{Bounds, OverlayKind, UnpackOptions, Unpacker};

const MAGIC: &[u8] = b"RWTREE\0\x01";

fuzz_target!(|input: &[u8]| {
    let [cut, rest @ ..] = input else {
        return;
    };
    let stream = if rest.starts_with(b"RW") {
        rest.to_vec()
    } else {
        [MAGIC, rest].concat()
    };
    let at_once = take(&[&stream]);
    let pieces: Vec<&[u8]> = stream.chunks(usize::from(*cut) + 1).collect();
    assert_eq!(at_once, take(&pieces));
});

/// What came of it, in words.
fn take(pieces: &[&[u8]]) -> String {
    let around = tempfile::tempdir().expect("a temporary directory");
    let into = around.path().join("tree");
    fs::create_dir(&into).expect("an empty directory");
    let bounds = Bounds {
        max_entries: 200,
        max_bytes: 1 << 20,
    };
    let options = UnpackOptions {
        owner: None,
        whiteouts: Some(OverlayKind::User),
    };
    let directory = fs::File::open(&into).expect("our own directory").into();
    let mut unpacker = Unpacker::new(directory, bounds, options).expect("our own directory");
    let fed = pieces.iter().try_for_each(|piece| unpacker.feed(piece));
    let result = fed.and_then(|()| unpacker.finish());
    let outside = fs::read_dir(around.path())
        .expect("the directory around")
        .count();
    assert_eq!(outside, 1, "something was made outside the tree");
    check(&into);
    format!("{result:?}")
}

/// Opens every directory on the way, so that the temporary directory can be removed.
fn check(directory: &Path) {
    fs::set_permissions(directory, fs::Permissions::from_mode(0o700)).expect("our own directory");
    for entry in fs::read_dir(directory).expect("our own directory") {
        let path = entry.expect("an entry").path();
        let found = fs::symlink_metadata(&path).expect("an entry");
        let kind = found.file_type();
        assert!(
            kind.is_symlink() || found.mode() & 0o7000 == 0,
            "special bits on {}",
            path.display()
        );
        assert!(
            !kind.is_char_device() || found.rdev() == 0,
            "{} is a device",
            path.display()
        );
        assert!(!kind.is_block_device() && !kind.is_fifo() && !kind.is_socket());
        if found.is_dir() {
            check(&path);
        }
    }
}
