//! Layers that mean harm. Should one of them ever get through, it must not hurt the machine that the
//! tests run on: absolute paths lead to /proc, where nothing can be made.
#![allow(clippy::unwrap_used, clippy::panic, reason = "helpers of tests fail by panicking")]

mod support;

use std::fs;
use std::os::unix::fs::MetadataExt;

use ringwall_image::{ArchiveError, Bomb, Refusal, UnpackError, UnpackLimits, unpack_layer};
use support::layer::{Item, Layer};
use support::place::{Place, refused, unpacked};
use tar::EntryType;

#[test]
fn names_that_point_outside_are_refused() {
    assert_eq!(refused(Layer::default().file("/proc/absolute", "x")), Refusal::AbsoluteName);
    assert_eq!(refused(Layer::default().file("../secret", "x")), Refusal::ParentDirectory);
    assert_eq!(refused(Layer::default().file("a/../../secret", "x")), Refusal::ParentDirectory);
    assert_eq!(
        refused(Layer::default().pax("path", b"../secret").file("x", "x")),
        Refusal::ParentDirectory
    );
    assert_eq!(
        refused(Layer::default().long_name(b"/secret").file("x", "x")),
        Refusal::AbsoluteName
    );
}

#[test]
fn names_with_nul_bytes_or_beyond_all_bounds_are_refused() {
    assert_eq!(refused(Layer::default().pax("path", b"a\0b").file("x", "x")), Refusal::NulInName);
    assert_eq!(refused(Layer::default().long_name(b"a\0b").file("x", "x")), Refusal::NulInName);
    let long = "x".repeat(256);
    assert_eq!(
        refused(Layer::default().pax("path", long.as_bytes()).file("x", "x")),
        Refusal::NameTooLong
    );
    let deep = "x/".repeat(200);
    assert_eq!(
        refused(Layer::default().pax("path", deep.as_bytes()).file("x", "x")),
        Refusal::TooDeep
    );
    assert_eq!(refused(Layer::default().file("", "x")), Refusal::EmptyName);
}

#[test]
fn nothing_is_written_through_a_symlink_of_the_same_layer() {
    for target in ["/proc", "..", "../secret", "inside", "."] {
        let layer = Layer::default().directory("inside").symlink("link", target);
        assert_eq!(refused(layer.file("link/file", "x")), Refusal::ThroughSymlink, "{target}");
        let layer = Layer::default().directory("inside").symlink("link", target);
        assert_eq!(refused(layer.directory("link/directory")), Refusal::ThroughSymlink, "{target}");
        let layer = Layer::default().directory("inside").symlink("link", target);
        assert_eq!(refused(layer.file("link/.wh.file", "")), Refusal::ThroughSymlink, "{target}");
        let layer = Layer::default().directory("inside").symlink("link", target);
        assert_eq!(
            refused(layer.file("link/.wh..wh..opq", "")),
            Refusal::ThroughSymlink,
            "{target}"
        );
    }
}

#[test]
fn hard_links_reach_files_of_the_same_layer_only() {
    for target in ["../secret", "/etc/passwd", "missing", "directory", ".", "link/secret", "x"] {
        let layer = Layer::default().directory("directory").symlink("link", "..");
        let why = refused(layer.hard_link("x", target));
        assert!(matches!(why, Refusal::HardLinkTarget(_)), "{target}: {why:?}");
    }
    let layer = Layer::default().file("a", "one").hard_link("b/c", "a");
    let (place, _) = unpacked(layer);
    let links = |name: &str| fs::metadata(place.layer().join(name)).unwrap().nlink();
    assert_eq!((links("a"), links("b/c")), (2, 2));
}

#[test]
fn a_whiteout_cannot_be_made_into_a_hard_link() {
    let layer = Layer::default().file(".wh.gone", "").hard_link("x", "gone");
    assert!(matches!(refused(layer), Refusal::HardLinkTarget(_)));
}

#[test]
fn device_nodes_are_refused_and_in_dev_left_out() {
    for kind in [EntryType::Char, EntryType::Block] {
        assert_eq!(refused(Layer::default().item(&Item::new("disk", kind))), Refusal::Device);
        assert_eq!(refused(Layer::default().item(&Item::new("dev/a/b", kind))), Refusal::Device);
        let (place, report) = unpacked(Layer::default().item(&Item::new("dev/null", kind)));
        assert_eq!(report.devices_left_out, 1);
        assert!(!place.layer().join("dev/null").exists());
    }
}

#[test]
fn attributes_that_steer_the_overlay_are_refused_and_others_left_out() {
    for name in
        ["trusted.overlay.opaque", "trusted.x", "user.overlay.redirect", "user.overlay.metacopy"]
    {
        for prefix in ["SCHILY.xattr.", "LIBARCHIVE.xattr."] {
            let layer = Layer::default().pax(&format!("{prefix}{name}"), b"y").file("x", "x");
            assert_eq!(refused(layer), Refusal::OverlayAttribute(name.to_owned()));
        }
    }
    let layer = Layer::default().pax("SCHILY.xattr.security.capability", b"caps").file("x", "x");
    let (place, _) = unpacked(layer.pax("SCHILY.xattr.user.note", b"n").file("y", "y"));
    let names = |name: &str| {
        let mut buffer = [0; 256];
        rustix::fs::llistxattr(place.layer().join(name), &mut buffer).unwrap()
    };
    assert_eq!((names("x"), names("y")), (0, 0));
}

#[test]
fn malformed_whiteouts_are_refused() {
    for name in [".wh.", "a/.wh..", "a/.wh...", ".wh.a/b"] {
        assert_eq!(refused(Layer::default().file(name, "")), Refusal::BadWhiteout, "{name}");
    }
}

#[test]
fn archives_that_cannot_be_read_safely_are_refused() {
    let error = |layer: &[u8]| match Place::new().unpack(layer) {
        Err(UnpackError::Archive(error)) => error,
        other => panic!("not refused: {other:?}"),
    };
    let whole = Layer::default().file("x", "content").done();
    assert!(matches!(error(&whole[..515]), ArchiveError::Truncated));
    assert!(matches!(error(&whole[..100]), ArchiveError::Truncated));
    let mut damaged = whole.clone();
    damaged[0] = b'y';
    assert!(matches!(error(&damaged), ArchiveError::BadHeader));

    let sparse = Layer::default().item(&Item::new("x", EntryType::GNUSparse)).done();
    assert!(matches!(error(&sparse), ArchiveError::Sparse));
    let sparse = Layer::default().pax("GNU.sparse.realsize", b"9999999999999").file("x", "").done();
    assert!(matches!(error(&sparse), ArchiveError::Sparse));

    let unknown = Layer::default().item(&Item::new("x", EntryType::new(b'M'))).done();
    assert!(matches!(error(&unknown), ArchiveError::UnknownType('M')));

    let mut huge = tar::Header::new_gnu();
    huge.set_entry_type(EntryType::XHeader);
    huge.set_size(8 << 30);
    huge.set_cksum();
    let huge = Layer::default().raw(huge.as_bytes()).done();
    assert!(matches!(error(&huge), ArchiveError::ExtendedHeaderTooLarge(_)));

    for records in [&b"5 a=b\n"[..], b"99 path=x\n", b"x path=x\n", b"10 path=x", b"0 \n"] {
        let bad = Item { content: records, ..Item::new("pax", EntryType::XHeader) };
        let bad = Layer::default().item(&bad).file("x", "x").done();
        assert!(matches!(error(&bad), ArchiveError::BadPax), "{records:?}");
    }
    let bad = Layer::default().pax("size", b"18446744073709551615").file("x", "x").done();
    assert!(matches!(error(&bad), ArchiveError::BadHeader));
}

fn bomb(layer: &[u8], limits: UnpackLimits) -> Bomb {
    let place = Place::new();
    match unpack_layer(layer, &place.layer(), &limits) {
        Err(UnpackError::Bomb(bomb)) => bomb,
        other => panic!("not refused: {other:?}"),
    }
}

#[test]
fn a_layer_with_too_many_bytes_is_refused() {
    let limits = UnpackLimits { max_bytes: 4096, ..UnpackLimits::default() };
    let layer = Layer::default().file("x", &"y".repeat(10_000)).done();
    assert_eq!(bomb(&layer, limits), Bomb::Size { max: 4096 });
    // Bytes after the archive's own end count as well.
    let layer = [Layer::default().file("x", "y").done(), vec![0; 10_000]].concat();
    assert_eq!(bomb(&layer, limits), Bomb::Size { max: 4096 });
}

#[test]
fn a_layer_with_too_many_entries_is_refused_and_implied_directories_count() {
    let limits = UnpackLimits { max_entries: 50, ..UnpackLimits::default() };
    let many = (0..60).fold(Layer::default(), |layer, i| layer.file(&format!("{i}"), ""));
    assert_eq!(bomb(&many.done(), limits), Bomb::Entries { max: 50 });
    let deep = Layer::default().pax("path", "d/".repeat(100).as_bytes()).file("x", "");
    assert_eq!(bomb(&deep.done(), limits), Bomb::Entries { max: 50 });
}

#[test]
fn a_layer_that_compresses_too_well_is_refused() {
    use std::io::Write;
    let zeros = vec![0; 1 << 20];
    let mut header = tar::Header::new_gnu();
    header.set_path("zeros").unwrap();
    header.set_size(zeros.len() as u64);
    header.set_mode(0o644);
    header.set_cksum();
    let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::best());
    let mut zstd = zstd::Encoder::new(Vec::new(), 1).unwrap();
    for output in [&mut gzip as &mut dyn Write, &mut zstd] {
        output.write_all(header.as_bytes()).unwrap();
        output.write_all(&zeros).unwrap();
    }
    let (gzip, zstd) = (gzip.finish().unwrap(), zstd.finish().unwrap());
    let limits =
        UnpackLimits { max_ratio: 100, ratio_floor_bytes: 1 << 16, ..UnpackLimits::default() };
    assert_eq!(bomb(&gzip, limits), Bomb::Ratio { max: 100 });
    assert_eq!(bomb(&zstd, limits), Bomb::Ratio { max: 100 });
    for harmless in [gzip, zstd] {
        assert_eq!(Place::new().unpack(&harmless).unwrap().entries, 1);
    }
}
