//! What goes in comes out: odd trees, odd sizes of pieces, trees that change on the way.
#![allow(clippy::unwrap_used, clippy::panic, reason = "helpers of tests fail by panicking")]

mod support;

use std::ffi::OsStr;
use std::fs::{self, File, Permissions};
use std::io::Write;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use ringwall_tree::{LeftOut, PackError, PackOptions, Packer, Progress, UnpackOptions};
use rustix::fs::{CWD, FileType, Mode, mknodat};
use support::{open, open_up, pack, snapshot, unpack};

/// Packs and unpacks; both sides must then look the same.
fn assert_survives(from: &Path) {
    for (room, chunk) in [(1 << 20, 1 << 20), (1, 4096), (4096, 1), (777, 333)] {
        let into = tempfile::tempdir().unwrap();
        let (stream, packed) = pack(from, PackOptions::default(), room);
        let made = unpack(into.path(), &stream, chunk, UnpackOptions::default()).unwrap();
        assert_eq!((made.entries, made.bytes), (packed.entries, packed.bytes));
        assert_eq!(packed.left_out, LeftOut::default());
        assert_eq!(snapshot(into.path()), snapshot(from), "room {room}, chunk {chunk}");
        open_up(into.path());
    }
}

fn set_old(path: &Path) {
    let time = SystemTime::UNIX_EPOCH + Duration::new(1_000_000_000, 123_456_789);
    File::open(path).unwrap().set_modified(time).unwrap();
}

#[test]
fn an_empty_directory_survives() {
    assert_survives(tempfile::tempdir().unwrap().path());
}

#[test]
fn odd_names_empty_directories_and_links_to_anywhere_survive() {
    let from = tempfile::tempdir().unwrap();
    let at = |name: &[u8]| from.path().join(OsStr::from_bytes(name));
    fs::create_dir_all(at(b"empty/inside/of")).unwrap();
    fs::create_dir(at(b"\xff\xfe not text\n")).unwrap();
    fs::write(at(b"\xff\xfe not text\n/\x01"), "content").unwrap();
    fs::write(at(b"..."), "three dots are a name").unwrap();
    fs::write(at(&[b'n'; 255]), "").unwrap();
    fs::write(at(b"a"), "before a.b and a/b").unwrap();
    fs::create_dir(at(b"a.d")).unwrap();
    fs::write(at(b"a.d/x"), "").unwrap();
    fs::create_dir(at(b"a.")).unwrap();
    symlink("/etc/passwd", at(b"absolute")).unwrap();
    symlink("../../../..", at(b"up")).unwrap();
    symlink("nowhere", at(b"dangling")).unwrap();
    symlink("loop", at(b"loop")).unwrap();
    symlink(OsStr::from_bytes(&[b't'; 4000]), at(b"long")).unwrap();
    set_old(&at(b"empty/inside"));
    set_old(&at(b"empty"));
    set_old(&at(b"..."));
    assert_survives(from.path());
}

#[test]
fn modes_survive_even_those_that_forbid_their_owner_to_enter() {
    let from = tempfile::tempdir().unwrap();
    fs::create_dir_all(from.path().join("closed/inside")).unwrap();
    fs::write(from.path().join("closed/script"), "#!").unwrap();
    let set = |path: &str, mode| {
        fs::set_permissions(from.path().join(path), Permissions::from_mode(mode)).unwrap();
    };
    set("closed/script", 0o751);
    set("closed/inside", 0o500);
    set("closed", 0o550);
    assert_survives(from.path());
    open_up(from.path());
}

#[test]
fn set_id_and_sticky_bits_do_not_survive() {
    let (from, into) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    fs::write(from.path().join("tool"), "").unwrap();
    fs::create_dir(from.path().join("shared")).unwrap();
    fs::set_permissions(from.path().join("tool"), Permissions::from_mode(0o6755)).unwrap();
    fs::set_permissions(from.path().join("shared"), Permissions::from_mode(0o1777)).unwrap();
    let (stream, _) = pack(from.path(), PackOptions::default(), 4096);
    unpack(into.path(), &stream, 4096, UnpackOptions::default()).unwrap();
    let mode = |name: &str| fs::metadata(into.path().join(name)).unwrap().mode() & 0o7777;
    assert_eq!((mode("tool"), mode("shared")), (0o755, 0o777));
}

#[test]
fn a_large_file_survives_byte_by_byte() {
    let from = tempfile::tempdir().unwrap();
    let content: Vec<u8> = (0..200_000u32).map(|i| (i % 251) as u8).collect();
    fs::write(from.path().join("large"), content).unwrap();
    assert_survives(from.path());
}

#[test]
fn a_tree_of_256_levels_survives_and_what_is_deeper_is_left_out_and_counted() {
    let (from, into) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let deepest: PathBuf = (0..256).map(|_| "d").collect();
    fs::create_dir_all(from.path().join(&deepest)).unwrap();
    fs::write(from.path().join("z"), "beside it").unwrap();
    assert_survives(from.path());
    fs::write(from.path().join(&deepest).join("file"), "").unwrap();
    let (stream, packed) = pack(from.path(), PackOptions::default(), 4096);
    assert_eq!(packed.left_out, LeftOut { too_long: 1, ..LeftOut::default() });
    assert_eq!(packed.entries, 257);
    unpack(into.path(), &stream, 4096, UnpackOptions::default()).unwrap();
}

#[test]
fn skipped_paths_are_left_out_with_all_that_is_in_them() {
    let (from, into) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    fs::create_dir_all(from.path().join("a/secrets/deep")).unwrap();
    fs::write(from.path().join("a/secrets/deep/key"), "secret").unwrap();
    fs::write(from.path().join("a/.env"), "secret").unwrap();
    fs::write(from.path().join(".env"), "harmless").unwrap();
    let skip = vec!["a/secrets".into(), "./a/.env".into(), "not/there".into()];
    let (stream, packed) = pack(from.path(), PackOptions { skip, ..PackOptions::default() }, 4096);
    unpack(into.path(), &stream, 4096, UnpackOptions::default()).unwrap();
    let names: Vec<_> = snapshot(into.path()).into_keys().collect();
    assert_eq!(names, [&b".env"[..], b"a"]);
    assert_eq!(packed.left_out, LeftOut::default());
    assert!(!stream.windows(6).any(|bytes| bytes == b"secret"));
}

#[test]
fn a_path_to_skip_that_could_never_match_is_an_error() {
    let from = tempfile::tempdir().unwrap();
    for path in ["/etc/shadow", "a/../b", "..", "", "."] {
        let options = PackOptions { skip: vec![path.into()], ..PackOptions::default() };
        let refused = Packer::new(open(from.path()), options);
        assert!(matches!(refused, Err(PackError::BadSkip { .. })), "{path}: {refused:?}");
    }
}

#[test]
fn fifos_and_sockets_are_left_out_and_counted() {
    let from = tempfile::tempdir().unwrap();
    mknodat(CWD, from.path().join("fifo"), FileType::Fifo, Mode::RUSR, 0).unwrap();
    let _socket = std::os::unix::net::UnixListener::bind(from.path().join("socket")).unwrap();
    let (_, packed) = pack(from.path(), PackOptions::default(), 4096);
    assert_eq!(packed.entries, 0);
    assert_eq!(packed.left_out, LeftOut { special: 2, ..LeftOut::default() });
}

#[test]
fn what_may_not_be_read_is_left_out_and_counted() {
    if rustix::process::geteuid().is_root() {
        println!("not tested here: root may read everything");
        return;
    }
    let from = tempfile::tempdir().unwrap();
    fs::create_dir_all(from.path().join("closed/inside")).unwrap();
    fs::write(from.path().join("file"), "").unwrap();
    for name in ["closed", "file"] {
        fs::set_permissions(from.path().join(name), Permissions::from_mode(0o000)).unwrap();
    }
    let (_, packed) = pack(from.path(), PackOptions::default(), 4096);
    assert_eq!(packed.entries, 0);
    assert_eq!(packed.left_out, LeftOut { unreadable: 2, ..LeftOut::default() });
    open_up(from.path());
}

#[test]
fn a_mount_inside_is_left_out_and_counted() {
    let root = open(Path::new("/"));
    let skip = fs::read_dir("/").unwrap().map(|entry| entry.unwrap().file_name());
    let skip = skip.filter(|name| name != "proc").map(PathBuf::from).collect();
    let mut packer = Packer::new(root, PackOptions { skip, overlay: None }).unwrap();
    let mut out = Vec::new();
    if fs::metadata("/proc").unwrap().dev() == fs::metadata("/").unwrap().dev() {
        println!("not tested here: nothing is mounted at /proc");
        return;
    }
    while packer.fill(&mut out, 4096).unwrap() == Progress::More {}
    assert_eq!(packer.packed().left_out, LeftOut { mounts: 1, ..LeftOut::default() });
    assert_eq!(packer.packed().entries, 0);
}

#[test]
fn a_file_that_shrinks_is_padded_and_one_that_grows_is_cut() {
    let (from, into) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let path = |name: &str| from.path().join(name);
    fs::write(path("grows"), vec![b'g'; 100_000]).unwrap();
    fs::write(path("shrinks"), vec![b's'; 100_000]).unwrap();
    let mut packer = Packer::new(open(from.path()), PackOptions::default()).unwrap();
    let mut stream = Vec::new();
    let mut fill_to = |stream: &mut Vec<u8>, length: usize| {
        while stream.len() < length && packer.fill(stream, 1000).unwrap() == Progress::More {}
    };
    fill_to(&mut stream, 50_000);
    File::options().append(true).open(path("grows")).unwrap().write_all(b"more").unwrap();
    fill_to(&mut stream, 150_000);
    File::options().write(true).open(path("shrinks")).unwrap().set_len(10).unwrap();
    fill_to(&mut stream, usize::MAX);
    let made = unpack(into.path(), &stream, 4096, UnpackOptions::default()).unwrap();
    assert_eq!((made.entries, made.bytes), (2, 200_000));
    assert_eq!(fs::read(into.path().join("grows")).unwrap(), vec![b'g'; 100_000]);
    let shrunk = fs::read(into.path().join("shrinks")).unwrap();
    assert_eq!(shrunk.len(), 100_000);
    assert!(shrunk.ends_with(&[0; 40_000]) && shrunk.starts_with(&[b's'; 10]));
}

#[test]
fn a_directory_that_vanishes_on_the_way_leaves_a_good_stream() {
    let (from, into) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    fs::create_dir_all(from.path().join("a/b/c")).unwrap();
    for name in ["a/b/c/1", "a/b/2", "a/b/3", "a/4", "z"] {
        fs::write(from.path().join(name), "").unwrap();
    }
    for pieces in 1..12 {
        let mut packer = Packer::new(open(from.path()), PackOptions::default()).unwrap();
        let mut stream = Vec::new();
        for _ in 0..pieces {
            packer.fill(&mut stream, 1).unwrap();
        }
        fs::rename(from.path().join("a"), into.path().join("aside")).unwrap();
        while packer.fill(&mut stream, 100).unwrap() == Progress::More {}
        fs::rename(into.path().join("aside"), from.path().join("a")).unwrap();
        let made = tempfile::tempdir().unwrap();
        unpack(made.path(), &stream, 4096, UnpackOptions::default()).unwrap();
        assert!(made.path().join("z").exists());
    }
}

#[test]
fn the_new_owner_owns_everything_and_what_links_lead_to_keeps_its_own() {
    if !rustix::process::geteuid().is_root() {
        println!("not tested here: only root gives files away");
        return;
    }
    let (from, into) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let outside = tempfile::NamedTempFile::new().unwrap();
    fs::create_dir(from.path().join("dir")).unwrap();
    fs::write(from.path().join("dir/file"), "").unwrap();
    symlink(outside.path(), from.path().join("link")).unwrap();
    let (stream, _) = pack(from.path(), PackOptions::default(), 4096);
    let options = UnpackOptions { owner: Some((1234, 5678)), whiteouts: None };
    unpack(into.path(), &stream, 4096, options).unwrap();
    for name in ["dir", "dir/file", "link"] {
        let stat = fs::symlink_metadata(into.path().join(name)).unwrap();
        assert_eq!((stat.uid(), stat.gid()), (1234, 5678), "{name}");
    }
    assert_eq!(fs::metadata(outside.path()).unwrap().uid(), 0);
    assert_eq!(snapshot(into.path()), snapshot(from.path()));
}

#[test]
fn a_stream_that_is_done_stays_done() {
    let from = tempfile::tempdir().unwrap();
    let mut packer = Packer::new(open(from.path()), PackOptions::default()).unwrap();
    let mut stream = Vec::new();
    assert_eq!(packer.fill(&mut stream, 0).unwrap(), Progress::More);
    assert!(stream.is_empty());
    while packer.fill(&mut stream, 100).unwrap() == Progress::More {}
    let length = stream.len();
    assert_eq!(packer.fill(&mut stream, 100).unwrap(), Progress::Done);
    assert_eq!(stream.len(), length);
}

#[test]
fn a_directory_with_many_names_comes_in_order() {
    let (from, into) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    for number in 0..3000 {
        fs::write(from.path().join(format!("{number}")), "").unwrap();
    }
    let (stream, packed) = pack(from.path(), PackOptions::default(), 1 << 20);
    assert_eq!(packed.entries, 3000);
    unpack(into.path(), &stream, 1 << 16, UnpackOptions::default()).unwrap();
    assert_eq!(snapshot(into.path()), snapshot(from.path()));
}
