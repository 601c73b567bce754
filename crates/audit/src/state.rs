//! The writer's note to itself of how far the log goes, so that opening it need not read it.
//!
//! It is kept beside the key, not beside the log: whoever can only change the log cannot cut it back
//! unnoticed. It proves nothing by itself and is always compared with the log.
//!
//! It may go further than the disk does: of records that the kernel has and the disk perhaps not, it
//! says so, and which boot of the machine that was.

use std::fs::File;
use std::io::{self, Read, Write};
use std::path::Path;

use rustix::fs::{Mode, OFlags};

use crate::files::{self, FileError};
use crate::hash::{from_hex, hex};
use crate::merkle::Edge;
use crate::position::Position;

const MAGIC: &str = "ringwall audit state 2";
const MOST_BYTES: u64 = 8 << 10;

#[derive(Debug, thiserror::Error)]
pub enum StateError {
    #[error(transparent)]
    File(#[from] FileError),
    #[error("{path} cannot be read")]
    Read { path: String, source: io::Error },
    #[error(
        "{0} is damaged; check the log with `ringwall audit verify`, then remove this file: it is made anew from the log"
    )]
    Damaged(String),
}

/// What was kept.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Kept {
    pub(crate) position: Position,
    /// The boot in which the last records were written, if the disk may not have them.
    pub(crate) unsynced: Option<String>,
}

/// The state that was kept; `None` where there is none, or an empty file that a crash left.
pub(crate) fn read(path: &Path) -> Result<Option<Kept>, StateError> {
    let Some(file) = files::existing(path, OFlags::RDONLY)? else {
        return Ok(None);
    };
    let mut text = String::new();
    file.take(MOST_BYTES).read_to_string(&mut text).map_err(|source| match source.kind() {
        io::ErrorKind::InvalidData => StateError::Damaged(path.display().to_string()),
        _ => StateError::Read { path: path.display().to_string(), source },
    })?;
    if text.is_empty() {
        return Ok(None);
    }
    // Written again it must be the same: there is one way to write a state.
    match parse(&text).filter(|kept| encode(kept) == text) {
        Some(kept) => Ok(Some(kept)),
        None => Err(StateError::Damaged(path.display().to_string())),
    }
}

/// Replaces the state. The caller holds the lock of the log.
pub(crate) fn write(path: &Path, kept: &Kept) -> io::Result<()> {
    let new = path.with_extension("state-new");
    let flags =
        OFlags::WRONLY | OFlags::CREATE | OFlags::TRUNC | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let file = rustix::fs::open(&new, flags, Mode::from_raw_mode(0o600))?;
    File::from(file).write_all(encode(kept).as_bytes())?;
    std::fs::rename(&new, path)
}

fn encode(kept: &Kept) -> String {
    let Kept { position, unsynced } = kept;
    let edge: Vec<String> = position.edge.nodes().iter().map(hex).collect();
    format!(
        "{MAGIC}\nsize {}\nlast {}\nend {}\nhash {}\nedge {}\nunsynced {}\n",
        position.edge.size(),
        position.last,
        position.end,
        hex(&position.hash),
        edge.join(" "),
        unsynced.as_deref().unwrap_or("-"),
    )
}

fn parse(text: &str) -> Option<Kept> {
    let mut lines = text.strip_prefix(MAGIC)?.strip_prefix('\n')?.lines();
    let mut value = |name: &str| lines.next()?.strip_prefix(name)?.strip_prefix(' ');
    let size = value("size")?.parse().ok()?;
    let last = value("last")?.parse().ok()?;
    let end = value("end")?.parse().ok()?;
    let hash = from_hex(value("hash")?.as_bytes())?;
    let nodes = value("edge")?.split_terminator(' ').map(|node| from_hex(node.as_bytes()));
    let edge = Edge::new(size, nodes.collect::<Option<_>>()?)?;
    let unsynced = match value("unsynced")? {
        "-" => None,
        boot if is_boot_id(boot) => Some(boot.to_owned()),
        _ => return None,
    };
    Some(Kept { position: Position { edge, hash, last, end }, unsynced })
}

fn is_boot_id(text: &str) -> bool {
    text.len() == 36 && text.bytes().all(|byte| byte == b'-' || byte.is_ascii_hexdigit())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_state_is_read_as_it_was_written_and_no_bit_of_it_can_become_something_unreadable() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("audit.state");
        assert!(read(&path).unwrap().is_none());
        let mut position = Position { hash: [5; 32], last: 100, end: 900, ..Position::default() };
        (0..5).for_each(|leaf| position.edge.push([leaf; 32]));
        for unsynced in [None, Some("0b2a30a6-4f0e-4d3c-9ad0-52ab8dd3fa22".to_owned())] {
            let kept = Kept { position: position.clone(), unsynced };
            write(&path, &kept).unwrap();
            assert_eq!(read(&path).unwrap(), Some(kept));
        }
        let kept = read(&path).unwrap();
        let bytes = std::fs::read(&path).unwrap();
        for at in 0..bytes.len() {
            let mut changed = bytes.clone();
            changed[at] ^= 1;
            std::fs::write(&path, &changed).unwrap();
            // Whatever it says now, it is not what it was.
            assert!(read(&path).map_or(true, |found| found != kept), "byte {at}");
        }
    }
}
