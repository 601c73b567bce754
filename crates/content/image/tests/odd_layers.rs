//! Layers that are in order but not simple: replaced entries, whiteouts, odd modes and names.
#![allow(clippy::unwrap_used, clippy::panic, reason = "helpers of tests fail by panicking")]

mod support;

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};

use ringwall_image::Refusal;
use support::is_root;
use support::layer::{Item, Layer};
use support::place::{is_opaque, is_whiteout, mode, refused, unpacked};
use tar::EntryType;

#[test]
fn a_file_replaces_a_symlink_instead_of_following_it() {
    let (place, _) = unpacked(Layer::default().symlink("link", "../secret").file("link", "new"));
    assert!(fs::symlink_metadata(place.layer().join("link")).unwrap().is_file());
}

#[test]
fn a_directory_entry_replaces_a_symlink_instead_of_following_it() {
    let layer = Layer::default().symlink("link", "..").directory("link").file("link/secret", "x");
    let (place, _) = unpacked(layer);
    assert_eq!(fs::read_to_string(place.layer().join("link/secret")).unwrap(), "x");
}

#[test]
fn a_hard_link_to_a_symlink_does_not_follow_it() {
    let layer =
        Layer::default().symlink("link", "../secret").hard_link("x", "link").file("x", "new");
    let (place, _) = unpacked(layer);
    assert!(fs::symlink_metadata(place.layer().join("link")).unwrap().is_symlink());
}

#[test]
fn a_file_that_replaces_a_hard_link_leaves_the_other_name_alone() {
    let layer = Layer::default().file("a", "one").hard_link("b", "a").file("b", "two");
    let (place, _) = unpacked(layer);
    assert_eq!(fs::read_to_string(place.layer().join("a")).unwrap(), "one");
    assert_eq!(fs::read_to_string(place.layer().join("b")).unwrap(), "two");
}

#[test]
fn set_id_and_sticky_bits_do_not_survive_where_they_matter() {
    let file = Item { mode: 0o7755, ..Item::new("file", EntryType::Regular) };
    let directory = Item { mode: 0o7777, ..Item::new("tmp", EntryType::Directory) };
    let (place, _) = unpacked(Layer::default().item(&file).item(&directory));
    assert_eq!(mode(&place.layer().join("file")), 0o755);
    assert_eq!(mode(&place.layer().join("tmp")), 0o1777);
}

#[test]
fn owners_are_kept_for_root_and_ignored_for_others() {
    let owned = |owner| Item { owner, ..Item::new("x", EntryType::Regular) };
    if is_root() {
        let (place, _) = unpacked(Layer::default().item(&owned((1000, 65535))));
        let found = fs::metadata(place.layer().join("x")).unwrap();
        assert_eq!((found.uid(), found.gid()), (1000, 65535));
        let too_large = Layer::default().item(&owned((65536, 0)));
        assert_eq!(refused(too_large), Refusal::OwnerTooLarge(65536));
        let too_large = Layer::default().pax("gid", b"4294967296").item(&owned((0, 0)));
        assert_eq!(refused(too_large), Refusal::OwnerTooLarge(1 << 32));
    } else {
        let (place, _) = unpacked(Layer::default().item(&owned((1000, 1000))));
        let found = fs::metadata(place.layer().join("x")).unwrap();
        assert_eq!(found.uid(), rustix::process::geteuid().as_raw());
    }
}

#[test]
fn whiteouts_become_what_overlayfs_understands() {
    let layer = Layer::default()
        .file("etc/.wh.motd", "")
        .directory("opt")
        .file("opt/.wh..wh..opq", "")
        .file("implied/.wh..wh..opq", "")
        .file(".wh..wh.plnk/1.2", "aufs");
    let (place, _) = unpacked(layer);
    assert!(is_whiteout(&place.layer().join("etc/motd")));
    assert!(is_opaque(&place.layer().join("opt")));
    assert!(is_opaque(&place.layer().join("implied")));
    assert_eq!(support::names_in(&place.layer()), ["etc", "implied", "opt"]);
}

#[test]
fn a_whiteout_hides_lower_layers_and_not_its_own() {
    let layers = [
        Layer::default().file(".wh.x", "").directory("x").file("x/new", "n"),
        Layer::default().file(".wh.x", "").file("x/new", "n"),
        Layer::default().directory("x").file("x/new", "n").file(".wh.x", ""),
    ];
    for layer in layers {
        let (place, _) = unpacked(layer);
        assert!(is_opaque(&place.layer().join("x")));
        assert_eq!(fs::read_to_string(place.layer().join("x/new")).unwrap(), "n");
    }
    for layer in [
        Layer::default().file(".wh.x", "").file("x", "new"),
        Layer::default().file("x", "new").file(".wh.x", ""),
    ] {
        let (place, _) = unpacked(layer);
        assert_eq!(fs::read_to_string(place.layer().join("x")).unwrap(), "new");
    }
}

#[test]
fn the_root_entry_sets_the_roots_mode_and_can_be_nothing_but_a_directory() {
    for name in ["./", ".", "/"] {
        let root = Item { mode: 0o711, ..Item::new(name, EntryType::Directory) };
        let (place, _) = unpacked(Layer::default().item(&root).file("x", "x"));
        assert_eq!(mode(&place.layer()), 0o711);
    }
    assert_eq!(refused(Layer::default().symlink("./", "/etc")), Refusal::RootNotDirectory);
    assert_eq!(refused(Layer::default().file(".", "x")), Refusal::RootNotDirectory);
}

#[test]
fn a_directory_without_any_permission_can_still_be_filled() {
    let closed = Item { mode: 0, ..Item::new("closed", EntryType::Directory) };
    let layer = Layer::default().item(&closed).file("closed/deep/file", "x");
    let (place, _) = unpacked(layer);
    assert_eq!(mode(&place.layer().join("closed")), 0);
    // So that an ordinary user's temporary directory can be removed.
    fs::set_permissions(place.layer().join("closed"), fs::Permissions::from_mode(0o700)).unwrap();
    assert_eq!(fs::read_to_string(place.layer().join("closed/deep/file")).unwrap(), "x");
}

#[test]
fn a_full_directory_is_not_replaced_by_a_file() {
    let layer = Layer::default().file("a/b", "x");
    assert_eq!(refused(layer.file("a", "x")), Refusal::ReplacesDirectory);
    let (place, _) = unpacked(Layer::default().directory("a").file("a", "x"));
    assert!(place.layer().join("a").is_file());
    let layer = Layer::default().file("a", "x");
    assert_eq!(refused(layer.file("a/b", "x")), Refusal::ParentNotDirectory);
}

#[test]
fn modification_times_are_kept() {
    let (place, _) = unpacked(Layer::default().directory("d").file("d/f", "x").symlink("d/l", "f"));
    for name in ["d", "d/f", "d/l"] {
        let found = fs::symlink_metadata(place.layer().join(name)).unwrap();
        assert_eq!(found.mtime(), 1_700_000_000, "{name}");
    }
}

#[test]
fn names_longer_than_a_header_can_hold_are_read() {
    let long = format!("{}/{}", "d".repeat(200), "f".repeat(200));
    let layer = Layer::default().long_name(long.as_bytes()).file("short", "gnu");
    let pax = format!("{}/{}", "d".repeat(200), "p".repeat(200));
    let (place, _) = unpacked(layer.pax("path", pax.as_bytes()).file("short", "pax"));
    assert_eq!(fs::read_to_string(place.layer().join(long)).unwrap(), "gnu");
    assert_eq!(fs::read_to_string(place.layer().join(pax)).unwrap(), "pax");
}
