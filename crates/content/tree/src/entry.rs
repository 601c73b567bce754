//! The records of the stream, and which paths they may name.

use std::io;

use serde::{Deserialize, Serialize};

/// The last byte is the version.
pub(crate) const MAGIC: [u8; 8] = *b"RWTREE\0\x01";
/// Of one record, without the content of a file.
pub(crate) const MAX_RECORD_BYTES: usize = 16 << 10;
/// What the kernel allows a link to say.
pub(crate) const MAX_TARGET_BYTES: usize = 4096;

/// Bytes of a whole path.
pub const MAX_PATH_BYTES: usize = 4096;
/// Bytes of one part of a path.
pub const MAX_PART_BYTES: usize = 255;
/// Parts of a path.
pub const MAX_DEPTH: usize = 256;

/// Bytes of a path in a message; the rest says little to people.
const SHOWN_BYTES: usize = 200;

/// Seconds and nanoseconds.
pub(crate) type Time = (i64, u32);

/// One record. The order of the variants and of their fields is the format.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Entry {
    Dir {
        path: Vec<u8>,
        mode: u32,
        mtime: Time,
        opaque: bool,
    },
    /// Followed by exactly `size` bytes.
    File {
        path: Vec<u8>,
        mode: u32,
        mtime: Time,
        size: u64,
    },
    Link {
        path: Vec<u8>,
        target: Vec<u8>,
        mtime: Time,
    },
    Whiteout {
        path: Vec<u8>,
    },
    /// How many records and bytes of content came before.
    End {
        entries: u64,
        bytes: u64,
    },
}

/// What is wrong with a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum PathFault {
    #[error("it is empty")]
    Empty,
    #[error("it is absolute")]
    Absolute,
    #[error("it has an empty part")]
    EmptyPart,
    #[error("it has a part \".\" or \"..\"")]
    Dots,
    #[error("it holds a zero byte")]
    Zero,
    #[error("one of its parts is longer than {MAX_PART_BYTES} bytes")]
    PartTooLong,
    #[error("it is longer than {MAX_PATH_BYTES} bytes")]
    TooLong,
    #[error("it is deeper than {MAX_DEPTH} directories")]
    TooDeep,
}

impl Entry {
    /// Appends the record, its length first.
    pub(crate) fn encode(&self, out: &mut Vec<u8>) -> io::Result<()> {
        let record = postcard::to_stdvec(self).map_err(io::Error::other)?;
        let length = u32::try_from(record.len()).map_err(io::Error::other)?;
        out.extend_from_slice(&length.to_le_bytes());
        out.extend_from_slice(&record);
        Ok(())
    }
}

/// Whether a path stays below the directory that it is relative to, and can be made by every file
/// system that we know.
pub(crate) fn check_path(path: &[u8]) -> Result<(), PathFault> {
    if path.is_empty() {
        return Err(PathFault::Empty);
    }
    if path.len() > MAX_PATH_BYTES {
        return Err(PathFault::TooLong);
    }
    if path.starts_with(b"/") {
        return Err(PathFault::Absolute);
    }
    if path.contains(&0) {
        return Err(PathFault::Zero);
    }
    for (depth, part) in path.split(|byte| *byte == b'/').enumerate() {
        match part {
            b"" => return Err(PathFault::EmptyPart),
            b"." | b".." => return Err(PathFault::Dots),
            _ if part.len() > MAX_PART_BYTES => return Err(PathFault::PartTooLong),
            _ if depth >= MAX_DEPTH => return Err(PathFault::TooDeep),
            _ => {}
        }
    }
    Ok(())
}

/// The directory that holds `path`, empty for the root, and the name in it.
pub(crate) fn split(path: &[u8]) -> (&[u8], &[u8]) {
    match path.iter().rposition(|byte| *byte == b'/') {
        Some(at) => (&path[..at], &path[at + 1..]),
        None => (b"", path),
    }
}

/// A path that a stranger chose, fit for a terminal.
pub(crate) fn shown(path: &[u8]) -> String {
    if path.is_empty() {
        return "the top directory".to_owned();
    }
    let cut = path.len().min(SHOWN_BYTES);
    let more = if cut < path.len() { "…" } else { "" };
    format!("\"{}{more}\"", path[..cut].escape_ascii())
}
