//! What the tests of this crate share: trees as comparable values, and streams written by hand.

#![allow(dead_code, reason = "every test file uses its own part of this")]
#![allow(clippy::unwrap_used, reason = "a test that cannot be set up has failed")]

use std::collections::BTreeMap;
use std::fs::{self, File, Permissions};
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt};
use std::path::Path;

use ringwall_tree::{
    Bounds, PackOptions, Packed, Packer, Progress, Summary, UnpackError, UnpackOptions, Unpacker,
};
use serde::Serialize;

pub(crate) const BOUNDS: Bounds = Bounds { max_entries: 10_000, max_bytes: 64 << 20 };

/// The records as the format describes them, not as the crate has them: a peer that somebody else
/// wrote.
#[derive(Debug, Clone, Serialize)]
pub(crate) enum Record {
    Dir { path: Vec<u8>, mode: u32, mtime: (i64, u32), opaque: bool },
    File { path: Vec<u8>, mode: u32, mtime: (i64, u32), size: u64 },
    Link { path: Vec<u8>, target: Vec<u8>, mtime: (i64, u32) },
    Whiteout { path: Vec<u8> },
    End { entries: u64, bytes: u64 },
}

pub(crate) fn dir(path: impl AsRef<[u8]>) -> Record {
    Record::Dir { path: path.as_ref().to_vec(), mode: 0o755, mtime: (1, 2), opaque: false }
}

pub(crate) fn file(path: impl AsRef<[u8]>, size: u64) -> Record {
    Record::File { path: path.as_ref().to_vec(), mode: 0o644, mtime: (1, 2), size }
}

pub(crate) fn link(path: impl AsRef<[u8]>, target: impl AsRef<[u8]>) -> Record {
    let (path, target) = (path.as_ref().to_vec(), target.as_ref().to_vec());
    Record::Link { path, target, mtime: (1, 2) }
}

pub(crate) fn whiteout(path: impl AsRef<[u8]>) -> Record {
    Record::Whiteout { path: path.as_ref().to_vec() }
}

/// A stream under construction.
#[derive(Debug, Clone)]
pub(crate) struct Stream {
    pub(crate) bytes: Vec<u8>,
    entries: u64,
    content: u64,
}

impl Stream {
    pub(crate) fn new() -> Stream {
        Stream { bytes: b"RWTREE\0\x01".to_vec(), entries: 0, content: 0 }
    }

    /// A record, and as many bytes as it announces.
    pub(crate) fn with(mut self, record: &Record) -> Stream {
        self.raw(&postcard::to_stdvec(record).unwrap());
        self.entries += 1;
        if let Record::File { size, .. } = record {
            self.content += size;
            self.bytes.extend(vec![b'x'; usize::try_from(*size).unwrap()]);
        }
        self
    }

    /// A record without what it announces.
    pub(crate) fn with_only(mut self, record: &Record) -> Stream {
        self.raw(&postcard::to_stdvec(record).unwrap());
        self
    }

    pub(crate) fn ended(self) -> Vec<u8> {
        let end = Record::End { entries: self.entries, bytes: self.content };
        self.with_only(&end).bytes
    }

    pub(crate) fn raw(&mut self, record: &[u8]) {
        self.bytes.extend(u32::try_from(record.len()).unwrap().to_le_bytes());
        self.bytes.extend(record);
    }
}

pub(crate) fn open(path: &Path) -> OwnedFd {
    File::open(path).unwrap().into()
}

/// The whole stream of a directory, made in pieces of about `room` bytes.
pub(crate) fn pack(from: &Path, options: PackOptions, room: usize) -> (Vec<u8>, Packed) {
    let mut packer = Packer::new(open(from), options).unwrap();
    let mut stream = Vec::new();
    loop {
        let before = stream.len();
        let progress = packer.fill(&mut stream, room).unwrap();
        assert!(stream.len() - before <= room + (16 << 10) + 4, "a piece is much too large");
        if progress == Progress::Done {
            return (stream, packer.packed());
        }
    }
}

pub(crate) fn unpack(
    into: &Path,
    stream: &[u8],
    chunk: usize,
    options: UnpackOptions,
) -> Result<Summary, UnpackError> {
    unpack_bounded(into, stream, chunk, options, BOUNDS)
}

pub(crate) fn unpack_bounded(
    into: &Path,
    stream: &[u8],
    chunk: usize,
    options: UnpackOptions,
    bounds: Bounds,
) -> Result<Summary, UnpackError> {
    let mut unpacker = Unpacker::new(open(into), bounds, options)?;
    for piece in stream.chunks(chunk) {
        unpacker.feed(piece)?;
    }
    unpacker.finish()
}

/// Everything below a directory: kind, mode, time of change, content or target.
pub(crate) fn snapshot(root: &Path) -> BTreeMap<Vec<u8>, String> {
    let mut found = BTreeMap::new();
    let mut pending = vec![root.to_owned()];
    while let Some(directory) = pending.pop() {
        for entry in fs::read_dir(&directory).unwrap() {
            let path = entry.unwrap().path();
            let stat = fs::symlink_metadata(&path).unwrap();
            let kind = stat.file_type();
            let what = if kind.is_dir() {
                pending.push(path.clone());
                "directory".to_owned()
            } else if kind.is_symlink() {
                format!("link to {:?}", fs::read_link(&path).unwrap())
            } else if kind.is_file() {
                format!("file {}", fs::read(&path).unwrap().escape_ascii())
            } else if kind.is_char_device() {
                format!("device {}", stat.rdev())
            } else {
                "special".to_owned()
            };
            let time = (stat.mtime(), stat.mtime_nsec());
            let time = if kind.is_char_device() { (0, 0) } else { time };
            let name = path.strip_prefix(root).unwrap().as_os_str().as_bytes().to_vec();
            found.insert(name, format!("{:o} {time:?} {what}", stat.mode() & 0o7777));
        }
    }
    found
}

/// So that an ordinary user can remove it; what must not be there fails the test.
pub(crate) fn open_up(directory: &Path) {
    fs::set_permissions(directory, Permissions::from_mode(0o700)).unwrap();
    for entry in fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        let found = fs::symlink_metadata(&path).unwrap();
        assert!(found.is_symlink() || found.permissions().mode() & 0o7000 == 0);
        if found.is_dir() {
            open_up(&path);
        }
    }
}
