//! Whatever an archive contains, unpacking it harms nothing.
#![allow(clippy::unwrap_used, clippy::panic, reason = "helpers of tests fail by panicking")]

mod support;

use std::fs;
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt};
use std::path::Path;

use proptest::prelude::*;
use ringwall_image::{UnpackLimits, unpack_layer};
use support::layer::{Item, Layer};
use tar::EntryType;

/// Names from few parts, so that entries often meet.
fn name() -> impl Strategy<Value = String> {
    let part = prop::sample::select(vec!["a", "link", ".wh.a", ".wh..wh..opq", "dev", "secret"]);
    prop::collection::vec(part, 1..4).prop_map(|parts| parts.join("/"))
}

/// What links point to: often outside (though no further than the test's own directory, should
/// the unpacker ever follow one), or to each other.
fn target() -> impl Strategy<Value = String> {
    let outside = prop::sample::select(vec!["..", "../secret", ".", "link"]);
    prop_oneof![outside.prop_map(str::to_owned), name()]
}

fn kind() -> impl Strategy<Value = EntryType> {
    prop::sample::select(vec![
        EntryType::Regular,
        EntryType::Directory,
        EntryType::Symlink,
        EntryType::Link,
        EntryType::Char,
        EntryType::Fifo,
    ])
}

type Described = (String, EntryType, String, u32);

/// An archive stops at the first entry that is refused, so most entries are harmless by themselves:
/// the harm is in how they follow each other.
fn item() -> impl Strategy<Value = Described> {
    let any = (name(), kind(), target(), 0..0o10000u32);
    let link = target().prop_map(|to| ("link".to_owned(), EntryType::Symlink, to, 0o777));
    let through =
        name().prop_map(|name| (format!("link/{name}"), EntryType::Regular, "".into(), 0o644));
    let evil = name().prop_map(|name| (format!("../{name}"), EntryType::Regular, "".into(), 0o644));
    prop_oneof![20 => any, 6 => link, 6 => through, 1 => evil]
}

/// Fails on anything that a layer must not contain. Makes directories accessible on the way, so
/// that an ordinary user can look into them and remove them.
fn check_harmless(directory: &Path) {
    fs::set_permissions(directory, fs::Permissions::from_mode(0o700)).unwrap();
    for entry in fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        let found = fs::symlink_metadata(&path).unwrap();
        let set_id = found.mode() & 0o6000;
        assert_eq!(set_id, 0, "{} has mode {:o}", path.display(), found.mode());
        assert!(!found.file_type().is_block_device(), "{}", path.display());
        assert!(!found.file_type().is_char_device() || found.rdev() == 0, "{}", path.display());
        assert!(!found.is_file() || found.nlink() < 100);
        if found.is_dir() {
            check_harmless(&path);
        }
    }
}

fn unpack(layer: &[u8]) {
    let around = tempfile::tempdir().unwrap();
    let into = around.path().join("layer");
    fs::create_dir(&into).unwrap();
    fs::write(around.path().join("secret"), "untouched").unwrap();
    let limits = UnpackLimits { max_bytes: 1 << 20, max_entries: 500, ..UnpackLimits::default() };
    // Refusing is as good as unpacking; what counts is what it leaves behind.
    let _ = unpack_layer(layer, &into, &limits);
    assert_eq!(support::names_in(around.path()), ["layer", "secret"]);
    let secret = fs::metadata(around.path().join("secret")).unwrap();
    assert_eq!((secret.len(), secret.nlink()), (9, 1));
    check_harmless(&into);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, failure_persistence: None, ..Default::default() })]

    #[test]
    fn any_sequence_of_entries_stays_inside(items in prop::collection::vec(item(), 1..12)) {
        let layer = items.iter().fold(Layer::default(), |layer, (name, kind, link, mode)| {
            layer.item(&Item { link: link.as_bytes(), mode: *mode, ..Item::new(name, *kind) })
        });
        unpack(&layer.done());
    }

    #[test]
    fn a_good_archive_with_damaged_bytes_stays_inside(
        damage in prop::collection::vec((0..6000usize, any::<u8>()), 1..20),
    ) {
        let mut layer = Layer::default()
            .directory("a")
            .file("a/b", "content")
            .symlink("link", "../secret")
            .pax("path", b"long/name")
            .file("x", "y")
            .hard_link("c", "a/b")
            .done();
        for (at, byte) in damage {
            let at = at % layer.len();
            layer[at] = byte;
        }
        unpack(&layer);
    }
}
