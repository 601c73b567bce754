//! Streams that mean harm are refused, for the reason that they deserve, and touch nothing outside.
#![allow(clippy::unwrap_used, clippy::panic, reason = "helpers of tests fail by panicking")]

mod support;

use std::fs;
use std::os::unix::fs::symlink;

use ringwall_tree::{Bounds, PathFault, UnpackError, UnpackOptions, Unpacker};
use support::{
    BOUNDS, Record, Stream, dir, file, link, open, snapshot, unpack, unpack_bounded, whiteout,
};

/// What comes of a stream, which must be the same whole and byte by byte, with nothing outside.
fn refused(stream: &[u8]) -> UnpackError {
    refused_within(stream, BOUNDS)
}

fn refused_within(stream: &[u8], bounds: Bounds) -> UnpackError {
    let mut errors = Vec::new();
    for chunk in [stream.len().max(1), 1] {
        let around = tempfile::tempdir().unwrap();
        fs::write(around.path().join("secret"), "untouched").unwrap();
        let before = snapshot(around.path());
        let into = around.path().join("into");
        fs::create_dir(&into).unwrap();
        let result = unpack_bounded(&into, stream, chunk, UnpackOptions::default(), bounds);
        errors.push(result.unwrap_err());
        fs::remove_dir_all(&into).unwrap();
        assert_eq!(snapshot(around.path()), before);
    }
    let [whole, bytewise] = [0, 1].map(|i| format!("{:?}", errors[i]));
    assert_eq!(whole, bytewise);
    errors.remove(0)
}

fn fault(path: &[u8]) -> PathFault {
    let made: [Record; 4] = [dir(path), file(path, 0), link(path, "x"), whiteout(path)];
    let faults: Vec<PathFault> = made
        .iter()
        .map(|record| match refused(&Stream::new().with(record).ended()) {
            UnpackError::BadPath { why, .. } => why,
            other => panic!("{other:?}"),
        })
        .collect();
    assert!(faults.iter().all(|why| *why == faults[0]));
    faults[0]
}

#[test]
fn paths_that_lead_elsewhere_are_refused() {
    assert_eq!(fault(b""), PathFault::Empty);
    assert_eq!(fault(b"/etc/passwd"), PathFault::Absolute);
    assert_eq!(fault(b".."), PathFault::Dots);
    assert_eq!(fault(b"../secret"), PathFault::Dots);
    assert_eq!(fault(b"a/../../secret"), PathFault::Dots);
    assert_eq!(fault(b"."), PathFault::Dots);
    assert_eq!(fault(b"a/./b"), PathFault::Dots);
    assert_eq!(fault(b"a//b"), PathFault::EmptyPart);
    assert_eq!(fault(b"a/"), PathFault::EmptyPart);
    assert_eq!(fault(b"a\0b"), PathFault::Zero);
    assert_eq!(fault(&[b'a'; 256]), PathFault::PartTooLong);
    assert_eq!(fault(&b"a/".repeat(2049)[..4097]), PathFault::TooLong);
    assert_eq!(fault(&b"a/".repeat(257)[..513]), PathFault::TooDeep);
}

#[test]
fn a_path_through_a_link_that_the_stream_made_is_refused() {
    for target in ["..", "/", "."] {
        let stream = Stream::new().with(&link("a", target)).with(&file("a/secret", 1)).ended();
        assert!(matches!(refused(&stream), UnpackError::OutOfPlace { .. }));
        let stream = Stream::new().with(&link("a", target)).with(&dir("a")).ended();
        assert!(matches!(refused(&stream), UnpackError::Exists { .. }));
        let stream = Stream::new().with(&link("secret", target)).with(&file("secret", 1)).ended();
        assert!(matches!(refused(&stream), UnpackError::Exists { .. }));
    }
}

#[test]
fn a_link_that_was_there_before_is_not_followed() {
    let around = tempfile::tempdir().unwrap();
    let into = around.path().join("into");
    fs::create_dir(&into).unwrap();
    fs::create_dir(around.path().join("outside")).unwrap();
    symlink("../outside", into.join("a")).unwrap();
    symlink("../outside/new", into.join("f")).unwrap();
    for record in [dir("a"), file("a", 0), file("f", 0), link("f", "x")] {
        let stream = Stream::new().with(&record).ended();
        let result = unpack(&into, &stream, 100, UnpackOptions::default());
        assert!(matches!(result, Err(UnpackError::Exists { .. })), "{result:?}");
    }
    assert_eq!(fs::read_dir(around.path().join("outside")).unwrap().count(), 0);
}

#[test]
fn an_entry_that_comes_twice_is_refused() {
    let twice = [dir("a"), file("a", 3), link("a", "b")];
    for first in &twice {
        for second in &twice {
            let stream = Stream::new().with(first).with(second).ended();
            assert!(matches!(refused(&stream), UnpackError::Exists { .. }));
        }
    }
}

#[test]
fn an_entry_without_its_directory_or_after_it_was_left_is_refused() {
    let early = Stream::new().with(&file("a/b", 0)).ended();
    let in_file = Stream::new().with(&file("a", 0)).with(&file("a/b", 0)).ended();
    let late = Stream::new().with(&dir("a")).with(&dir("b")).with(&file("a/c", 0)).ended();
    let similar = Stream::new().with(&dir("ab")).with(&file("a/c", 0)).ended();
    let longer = Stream::new().with(&dir("a")).with(&file("ab/c", 0)).ended();
    for stream in [early, in_file, late, similar, longer] {
        assert!(matches!(refused(&stream), UnpackError::OutOfPlace { .. }));
    }
}

#[test]
fn too_many_entries_are_refused_at_the_first_too_many() {
    let stream = Stream::new().with(&dir("a")).with(&dir("b")).with(&dir("c")).ended();
    let bounds = Bounds { max_entries: 2, max_bytes: 0 };
    assert!(matches!(refused_within(&stream, bounds), UnpackError::TooMany { max: 2 }));
    let bounds = Bounds { max_entries: 3, max_bytes: 0 };
    let into = tempfile::tempdir().unwrap();
    unpack_bounded(into.path(), &stream, 9, UnpackOptions::default(), bounds).unwrap();
}

#[test]
fn too_many_bytes_are_refused_before_any_of_them_comes() {
    let bounds = Bounds { max_entries: 10, max_bytes: 10 };
    for size in [5, u64::MAX, u64::MAX - 5] {
        let stream = Stream::new().with(&file("a", 6)).with_only(&file("b", size));
        let error = refused_within(&stream.bytes, bounds);
        assert!(matches!(error, UnpackError::TooLarge { max: 10 }), "{error:?}");
    }
}

#[test]
fn a_stream_that_stops_anywhere_is_truncated() {
    let whole = Stream::new().with(&dir("a")).with(&file("a/b", 9)).with(&link("c", "d")).ended();
    for length in 0..whole.len() {
        assert!(matches!(refused(&whole[..length]), UnpackError::Truncated), "{length}");
    }
}

#[test]
fn nothing_may_follow_the_end() {
    let mut stream = Stream::new().with(&dir("a")).ended();
    stream.push(0);
    assert!(matches!(refused(&stream), UnpackError::AfterEnd));
}

#[test]
fn the_end_must_tell_the_truth() {
    for (entries, bytes) in [(0, 3), (2, 3), (1, 2), (u64::MAX, u64::MAX)] {
        let end = Record::End { entries, bytes };
        let stream = Stream::new().with(&file("a", 3)).with_only(&end);
        assert!(matches!(refused(&stream.bytes), UnpackError::WrongTotals));
    }
}

#[test]
fn a_wrong_magic_or_another_version_is_refused() {
    for magic in [b"RWTREE\0\x02", b"rwtree\0\x01", b"\0\0\0\0\0\0\0\0"] {
        assert!(matches!(refused(magic), UnpackError::NotATree));
    }
}

#[test]
fn records_of_a_wrong_length_are_refused() {
    let mut huge = Stream::new().bytes;
    huge.extend((16_385u32).to_le_bytes());
    assert!(matches!(refused(&huge), UnpackError::RecordTooLong { length: 16_385 }));
    let record = postcard::to_stdvec(&dir("a")).unwrap();
    let longer = [&record[..], b"\0"].concat();
    for bad in [&record[..record.len() - 1], &longer, b"", b"\x05", &[0xff; 16_384]] {
        let mut stream = Stream::new();
        stream.raw(bad);
        assert!(matches!(refused(&stream.bytes), UnpackError::BadRecord));
    }
}

#[test]
fn times_that_the_kernel_would_take_for_now_are_refused() {
    for nanoseconds in [1_000_000_000, 0x3fff_ffff, 0x3fff_fffe, u32::MAX] {
        let path = b"a".to_vec();
        let record = Record::Dir { path, mode: 0, mtime: (0, nanoseconds), opaque: false };
        let stream = Stream::new().with(&record).ended();
        assert!(matches!(refused(&stream), UnpackError::BadTime { .. }));
    }
}

#[test]
fn times_at_the_ends_of_all_time_are_taken() {
    let into = tempfile::tempdir().unwrap();
    let at = |path: &str, seconds| Record::File {
        path: path.into(),
        mode: 0o600,
        mtime: (seconds, 999_999_999),
        size: 0,
    };
    let stream = Stream::new().with(&at("a", i64::MIN)).with(&at("b", i64::MAX)).ended();
    unpack(into.path(), &stream, 1, UnpackOptions::default()).unwrap();
}

#[test]
fn targets_that_no_link_can_have_are_refused() {
    for target in [&b""[..], b"a\0b", &[b'a'; 4097]] {
        let stream = Stream::new().with(&link("a", target)).ended();
        assert!(matches!(refused(&stream), UnpackError::BadTarget { .. }));
    }
}

#[test]
fn modes_lose_all_but_the_permissions() {
    let into = tempfile::tempdir().unwrap();
    let path = b"a".to_vec();
    let record = Record::File { path, mode: 0xffff_f000 | 0o7640, mtime: (0, 0), size: 0 };
    let stream = Stream::new().with(&record).ended();
    unpack(into.path(), &stream, 1, UnpackOptions::default()).unwrap();
    assert!(snapshot(into.path())[&b"a"[..]].starts_with("640 "));
}

#[test]
fn whiteouts_and_opaque_directories_are_refused_where_none_belong() {
    let path = b"a".to_vec();
    let opaque = Record::Dir { path, mode: 0o755, mtime: (0, 0), opaque: true };
    for record in [whiteout("a"), opaque] {
        let stream = Stream::new().with(&record).ended();
        assert!(matches!(refused(&stream), UnpackError::NotAnOverlay { .. }));
    }
}

#[test]
fn after_an_error_nothing_more_is_taken() {
    let into = tempfile::tempdir().unwrap();
    let mut unpacker = Unpacker::new(open(into.path()), BOUNDS, UnpackOptions::default()).unwrap();
    unpacker.feed(b"not a tree").unwrap_err();
    let good = Stream::new().with(&dir("a")).ended();
    assert!(matches!(unpacker.feed(&good), Err(UnpackError::Stopped)));
    assert!(!unpacker.has_ended());
    assert!(matches!(unpacker.finish(), Err(UnpackError::Stopped)));
    assert!(snapshot(into.path()).is_empty());
}

#[test]
fn messages_name_hostile_paths_in_escaped_form() {
    let message = refused(&Stream::new().with(&dir("\x1b[31m/..")).ended()).to_string();
    assert_eq!(message, r#"the path "\x1b[31m/.." is refused: it has a part "." or "..""#);
}
