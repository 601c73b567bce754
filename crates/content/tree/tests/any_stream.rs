//! Whatever the tree and however its stream is cut, it survives; whatever the stream, it harms
//! nothing.
#![allow(clippy::unwrap_used, clippy::panic, reason = "helpers of tests fail by panicking")]

mod support;

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;

use proptest::prelude::*;
use ringwall_tree::{
    OverlayKind, PackOptions, Packer, Progress, Summary, UnpackError, UnpackOptions, Unpacker,
};
use support::{BOUNDS, Record, Stream, open, open_up, snapshot};

#[derive(Debug, Clone)]
enum Thing {
    Dir,
    File(Vec<u8>),
    Link(String),
}

/// Names from few parts, so that entries often meet.
fn name() -> impl Strategy<Value = String> {
    let part = prop::sample::select(vec!["a", "b", "a.b", "link", "é"]);
    prop::collection::vec(part, 1..5).prop_map(|parts| parts.join("/"))
}

fn thing() -> impl Strategy<Value = Thing> {
    prop_oneof![
        Just(Thing::Dir),
        prop::collection::vec(any::<u8>(), 0..3000).prop_map(Thing::File),
        prop::sample::select(vec!["..", "../secret", "/", "a"])
            .prop_map(|target| Thing::Link(target.to_owned())),
    ]
}

fn make(root: &Path, things: &[(String, Thing)]) {
    for (name, thing) in things {
        let path = root.join(name);
        // What does not fit is not made; the rest is tree enough.
        let in_links = path.ancestors().skip(1).any(|above| above.is_symlink());
        if in_links || path.symlink_metadata().is_ok() {
            continue;
        }
        if path.parent().is_some_and(|parent| fs::create_dir_all(parent).is_err()) {
            continue;
        }
        match thing {
            Thing::Dir => fs::create_dir(path).unwrap(),
            Thing::File(content) => fs::write(path, content).unwrap(),
            Thing::Link(target) => symlink(target, path).unwrap(),
        }
    }
}

/// Pieces of the lengths that are asked for, over and over.
fn feed(into: &Path, stream: &[u8], lengths: &[usize]) -> Result<Summary, UnpackError> {
    let options = UnpackOptions { owner: None, whiteouts: Some(OverlayKind::User) };
    let mut unpacker = Unpacker::new(open(into), BOUNDS, options)?;
    let mut rest = stream;
    for length in lengths.iter().cycle() {
        let (piece, after) = rest.split_at((*length).min(rest.len()));
        unpacker.feed(piece)?;
        rest = after;
        if rest.is_empty() {
            break;
        }
    }
    unpacker.finish()
}

fn packed(from: &Path, rooms: &[usize]) -> Vec<u8> {
    let mut packer = Packer::new(open(from), PackOptions::default()).unwrap();
    let mut stream = Vec::new();
    for room in rooms.iter().cycle() {
        if packer.fill(&mut stream, *room).unwrap() == Progress::Done {
            break;
        }
    }
    stream
}

fn cuts() -> impl Strategy<Value = Vec<usize>> {
    prop::collection::vec(1usize..2000, 1..6)
}

fn record() -> impl Strategy<Value = Record> {
    let odd = prop::sample::select(vec!["..", "../secret", "/secret", "", "a/../../secret"]);
    let path = prop_oneof![20 => name(), 1 => odd.prop_map(str::to_owned)];
    (path, 0..5u8, any::<u32>(), any::<i64>(), 0..50u64).prop_map(
        |(path, kind, mode, seconds, size)| {
            let (path, mtime) = (path.into_bytes(), (seconds, 0));
            match kind {
                0 | 1 => Record::Dir { path, mode, mtime, opaque: mode & 0x8000 != 0 },
                2 => Record::File { path, mode, mtime, size },
                3 => Record::Link { path, target: b"..".to_vec(), mtime },
                _ => Record::Whiteout { path },
            }
        },
    )
}

/// Takes a stream in a directory with a neighbour; nothing but the directory may be touched.
fn assert_harmless(stream: &[u8], lengths: &[usize]) -> String {
    let around = tempfile::tempdir().unwrap();
    fs::write(around.path().join("secret"), "untouched").unwrap();
    let before = snapshot(around.path());
    let into = around.path().join("into");
    fs::create_dir(&into).unwrap();
    let result = feed(&into, stream, lengths);
    open_up(&into);
    fs::remove_dir_all(&into).unwrap();
    assert_eq!(snapshot(around.path()), before);
    format!("{result:?}")
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(100))]

    #[test]
    fn any_tree_survives_however_its_stream_is_cut(
        things in prop::collection::vec((name(), thing()), 0..20),
        rooms in cuts(),
        lengths in cuts(),
    ) {
        let (from, into) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        make(from.path(), &things);
        let stream = packed(from.path(), &rooms);
        prop_assert_eq!(&stream, &packed(from.path(), &[1 << 20]));
        feed(into.path(), &stream, &lengths).unwrap();
        prop_assert_eq!(snapshot(into.path()), snapshot(from.path()));
    }

    #[test]
    fn any_records_do_no_harm_and_mean_the_same_however_they_are_cut(
        records in prop::collection::vec(record(), 0..12),
        lengths in cuts(),
    ) {
        let stream = records.iter().fold(Stream::new(), |stream, record| stream.with(record));
        let stream = stream.ended();
        prop_assert_eq!(assert_harmless(&stream, &lengths), assert_harmless(&stream, &[1 << 20]));
    }

    #[test]
    fn a_stream_with_a_wrong_byte_does_no_harm(
        records in prop::collection::vec(record(), 0..6),
        at in any::<prop::sample::Index>(),
        byte in any::<u8>(),
        lengths in cuts(),
    ) {
        let stream = records.iter().fold(Stream::new(), |stream, record| stream.with(record));
        let mut stream = stream.ended();
        let at = at.index(stream.len());
        stream[at] = byte;
        prop_assert_eq!(assert_harmless(&stream, &lengths), assert_harmless(&stream, &[1 << 20]));
    }
}
