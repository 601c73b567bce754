//! The upper directory of an overlay comes out with its whiteouts and opaque directories.
#![allow(clippy::unwrap_used, clippy::panic, reason = "helpers of tests fail by panicking")]
#![allow(clippy::print_stdout, reason = "says what is not tested")]

mod support;

use std::fs;
use std::path::Path;

use ringwall_tree::{
    LeftOut, OverlayKind, PackError, PackOptions, Packer, Progress, UnpackOptions,
};
use rustix::fs::{CWD, FileType, Mode, XattrFlags, getxattr, mknodat, setxattr};
use support::{open, pack, snapshot, unpack};

const BOTH: [OverlayKind; 2] = [OverlayKind::User, OverlayKind::Trusted];

fn attribute(kind: OverlayKind, name: &str) -> String {
    match kind {
        OverlayKind::User => format!("user.overlay.{name}"),
        OverlayKind::Trusted => format!("trusted.overlay.{name}"),
    }
}

/// Sets an attribute, or says that nothing is tested.
fn mark(path: &Path, name: &str, value: &str) -> bool {
    match setxattr(path, name, value.as_bytes(), XattrFlags::empty()) {
        Ok(()) => true,
        Err(errno) => {
            println!("not tested here: {name} cannot be set ({errno})");
            false
        }
    }
}

fn white_out(path: &Path) -> bool {
    match mknodat(CWD, path, FileType::CharacterDevice, Mode::empty(), 0) {
        Ok(()) => true,
        Err(errno) => {
            println!("not tested here: whiteouts cannot be made ({errno})");
            false
        }
    }
}

fn is_opaque(path: &Path, kind: OverlayKind) -> bool {
    let mut value = [0; 8];
    getxattr(path, attribute(kind, "opaque"), &mut value[..]).is_ok_and(|n| &value[..n] == b"y")
}

fn options(kind: OverlayKind) -> PackOptions {
    PackOptions { skip: Vec::new(), overlay: Some(kind) }
}

#[test]
fn whiteouts_and_opaque_directories_survive_into_either_kind() {
    for from_kind in BOTH {
        let from = tempfile::tempdir().unwrap();
        fs::create_dir_all(from.path().join("dir/opaque/plain")).unwrap();
        fs::write(from.path().join("dir/opaque/new"), "new").unwrap();
        if !white_out(&from.path().join("dir/gone")) || !white_out(&from.path().join("gone")) {
            return;
        }
        let opaque = from.path().join("dir/opaque");
        if !mark(&opaque, &attribute(from_kind, "opaque"), "y") {
            continue;
        }
        let (stream, packed) = pack(from.path(), options(from_kind), 100);
        assert_eq!((packed.entries, packed.left_out), (6, LeftOut::default()));
        for into_kind in BOTH {
            let into = tempfile::tempdir().unwrap();
            if !mark(into.path(), &attribute(into_kind, "opaque"), "n") {
                continue;
            }
            let options = UnpackOptions { owner: None, whiteouts: Some(into_kind) };
            unpack(into.path(), &stream, 7, options).unwrap();
            assert_eq!(snapshot(into.path()), snapshot(from.path()));
            assert!(is_opaque(&into.path().join("dir/opaque"), into_kind));
            assert!(!is_opaque(&into.path().join("dir/opaque/plain"), into_kind));
            assert!(!is_opaque(&into.path().join("dir"), into_kind));
        }
    }
}

#[test]
fn outside_an_overlay_a_whiteout_is_a_device_and_opaque_means_nothing() {
    let (from, into) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    fs::create_dir(from.path().join("dir")).unwrap();
    if !white_out(&from.path().join("gone")) {
        return;
    }
    if !mark(&from.path().join("dir"), "user.overlay.opaque", "y") {
        return;
    }
    let (stream, packed) = pack(from.path(), PackOptions::default(), 100);
    assert_eq!(packed.left_out, LeftOut { special: 1, ..LeftOut::default() });
    unpack(into.path(), &stream, 7, UnpackOptions::default()).unwrap();
    assert_eq!(snapshot(into.path()).len(), 1);
}

#[test]
fn what_is_partly_elsewhere_is_refused_by_name() {
    for kind in BOTH {
        for (path, name, value) in [
            ("dir", "redirect", "/elsewhere"),
            ("file", "metacopy", ""),
            ("dir", "opaque", "x"),
            ("", "opaque", "y"),
        ] {
            let from = tempfile::tempdir().unwrap();
            fs::create_dir(from.path().join("dir")).unwrap();
            fs::write(from.path().join("file"), "").unwrap();
            if !mark(&from.path().join(path), &attribute(kind, name), value) {
                continue;
            }
            let error = packing_error(from.path(), kind);
            let PackError::Overlay { attribute: found, .. } = &error else {
                panic!("{error:?}");
            };
            assert_eq!(*found, attribute(kind, name));
        }
    }
}

fn packing_error(from: &Path, kind: OverlayKind) -> PackError {
    let mut packer = match Packer::new(open(from), options(kind)) {
        Ok(packer) => packer,
        Err(error) => return error,
    };
    let mut out = Vec::new();
    loop {
        match packer.fill(&mut out, 100) {
            Ok(Progress::More) => {}
            Ok(Progress::Done) => panic!("it was sent"),
            Err(error) => {
                let again = packer.fill(&mut out, 100);
                assert!(matches!(again, Err(PackError::Stopped)));
                return error;
            }
        }
    }
}
