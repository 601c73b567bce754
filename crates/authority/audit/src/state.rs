//! The writer's note to itself of how far the log goes, so that opening it need not read it.
//!
//! It is kept next to the key, not next to the log: a process that can only change the log cannot cut it
//! back unnoticed. It proves nothing by itself and is always compared with the log.
//!
//! It may go further than the disk does: of records that the kernel has and the disk perhaps not, it
//! says so, which boot of the machine that was, and how far the disk goes for certain. Only what lies behind
//! that can be lost with the machine. A log that is shorter was cut by hand.
//!
//! One page, written in place under the log's lock: another name for each new one would make
//! the file system write at once. Only a machine that goes down can leave half of it, and its sum tells.

use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;

use ringwall_safekeeping::{Access, FileError, Trust, if_there, open, open_or_make};

use crate::hash::{from_hex, hex, sha256};
use crate::merkle::Edge;
use crate::position::Position;

const MAGIC: &str = "ringwall audit state 4";
/// Room for the edge of more records than any log will have.
const PAGE: usize = 4096;

#[derive(Debug, thiserror::Error)]
pub enum StateError {
    #[error(transparent)]
    File(#[from] FileError),
    #[error("{path} cannot be read")]
    Read { path: String, source: io::Error },
    #[error(
        "{0} is damaged, and the log is missing; where it cannot be brought back, remove this file: a new log begins"
    )]
    Damaged(String),
}

/// The state as it was kept.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Kept {
    pub(crate) position: Position,
    /// The boot in which the last records were written, if the disk may not have them.
    pub(crate) unsynced: Option<String>,
    /// How many bytes of the log the disk has for certain.
    pub(crate) durable: u64,
    /// When that was found out, in milliseconds since 1970.
    pub(crate) synced_ms: u64,
}

/// What the file has.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Found {
    State(Kept),
    Missing,
    /// Not what any writer wrote whole. It is no more worth than a missing one.
    Damaged,
}

/// Reads the state. The caller holds the lock of the log.
pub(crate) fn read(path: &Path) -> Result<Found, StateError> {
    let Some(file) = if_there(open(path, Trust::Secret))? else {
        return Ok(Found::Missing);
    };
    let failed = |source| StateError::Read { path: path.display().to_string(), source };
    let mut page = [0; PAGE];
    let mut length = 0;
    while let Some(rest) = page.get_mut(length..).filter(|rest| !rest.is_empty()) {
        match file.read_at(rest, length as u64).map_err(failed)? {
            0 => break,
            count => length += count,
        }
    }
    match length {
        0 => Ok(Found::Missing),
        PAGE => Ok(decode(&page).map_or(Found::Damaged, Found::State)),
        _ => Ok(Found::Damaged),
    }
}

/// Replaces the state. The caller holds the lock of the log.
pub(crate) fn write(path: &Path, kept: &Kept) -> io::Result<()> {
    let file = open_or_make(path, Trust::Secret, Access::Change)?;
    let page = page(kept).ok_or_else(|| io::Error::other("the audit log is too long"))?;
    file.write_all_at(&page, 0)
}

/// The text, newlines to the end of the page, and before its last one the sum of all that.
fn page(kept: &Kept) -> Option<[u8; PAGE]> {
    let mut page = [b'\n'; PAGE];
    let text = encode(kept);
    page.get_mut(..SUM_AT)?.get_mut(..text.len())?.copy_from_slice(text.as_bytes());
    let sum = hex(&sha256(&[page.get(..SUM_AT)?]));
    page.get_mut(SUM_AT..PAGE - 1)?.copy_from_slice(sum.as_bytes());
    Some(page)
}

const SUM_AT: usize = PAGE - 1 - 64;

fn decode(read: &[u8; PAGE]) -> Option<Kept> {
    let text = std::str::from_utf8(read.get(..SUM_AT)?).ok()?;
    // Written again it must be the same: there is one way to write a state.
    parse(text).filter(|kept| page(kept).as_ref() == Some(read))
}

fn encode(kept: &Kept) -> String {
    let Kept { position, unsynced, .. } = kept;
    let edge: Vec<String> = position.edge.nodes().iter().map(|node| hex(node)).collect();
    format!(
        "{MAGIC}\nsize {}\nlast {}\nend {}\ndurable {}\nsynced {}\nhash {}\nedge {}\nunsynced {}\n",
        position.edge.size(),
        position.last,
        position.end,
        kept.durable,
        kept.synced_ms,
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
    let durable = value("durable")?.parse().ok()?;
    let synced_ms = value("synced")?.parse().ok()?;
    let hash = from_hex(value("hash")?.as_bytes())?;
    let nodes = value("edge")?.split_terminator(' ').map(|node| from_hex(node.as_bytes()));
    let edge = Edge::new(size, nodes.collect::<Option<_>>()?)?;
    let unsynced = match value("unsynced")? {
        "-" => None,
        boot if is_boot_id(boot) => Some(boot.to_owned()),
        _ => return None,
    };
    let position = Position { edge, hash, last, end };
    Some(Kept { position, unsynced, durable, synced_ms })
}

fn is_boot_id(text: &str) -> bool {
    text.len() == 36 && text.bytes().all(|byte| byte == b'-' || byte.is_ascii_hexdigit())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_state_is_read_as_it_was_written_and_with_any_bit_changed_it_is_damaged() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("audit.state");
        assert_eq!(read(&path).unwrap(), Found::Missing);
        let mut position = Position { hash: [5; 32], last: 100, end: 900, ..Position::default() };
        (0..5).for_each(|leaf| position.edge.push([leaf; 32]));
        for unsynced in [None, Some("0b2a30a6-4f0e-4d3c-9ad0-52ab8dd3fa22".to_owned())] {
            let kept = Kept { position: position.clone(), unsynced, durable: 450, synced_ms: 7 };
            write(&path, &kept).unwrap();
            assert_eq!(read(&path).unwrap(), Found::State(kept));
        }
        let bytes = std::fs::read(&path).unwrap();
        assert_eq!(bytes.len(), PAGE);
        for at in 0..bytes.len() {
            let mut changed = bytes.clone();
            changed[at] ^= 1;
            std::fs::write(&path, &changed).unwrap();
            assert_eq!(read(&path).unwrap(), Found::Damaged, "byte {at}");
        }
        std::fs::write(&path, &bytes[..PAGE - 1]).unwrap();
        assert_eq!(read(&path).unwrap(), Found::Damaged);
    }

    #[test]
    fn the_state_of_the_longest_log_has_room() {
        let mut position = Position { last: u64::MAX, end: u64::MAX, ..Position::default() };
        // Every bit set: as many nodes as there can be for a size.
        position.edge = Edge::new((1 << 50) - 1, vec![[7; 32]; 50]).unwrap();
        let boot = "0b2a30a6-4f0e-4d3c-9ad0-52ab8dd3fa22".to_owned();
        assert!(
            page(&Kept { position, unsynced: Some(boot), durable: u64::MAX, synced_ms: u64::MAX })
                .is_some()
        );
    }
}
