//! What was minted: enough to find a grant and to revoke it, never the token.

use std::io::{Read, Write};
use std::path::Path;

use ringwall_safekeeping::{Access, Content, FileError, Trust, open, open_or_make, replace};
use serde::{Deserialize, Serialize};

use crate::token::GrantId;

const FILE: &str = "minted.jsonl";
/// Beyond this, records of grants that have expired are dropped.
const COMPACT_BYTES: u64 = 4 << 20;
const MAX_BYTES: u64 = 64 << 20;

/// One grant that was made here.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Record {
    pub id: GrantId,
    /// The grant that it was narrowed from.
    pub parent: Option<GrantId>,
    pub task: String,
    pub tenant: String,
    /// Who is meant to hold it.
    pub holder: String,
    pub minted_unix: u64,
    pub expires_unix: u64,
}

/// Adds a record. The caller holds the lock.
pub(crate) fn append(directory: &Path, record: &Record, now_unix: u64) -> Result<(), FileError> {
    let path = directory.join(FILE);
    let wrong = |source: std::io::Error| FileError::Use { path: path.clone(), source };
    let line = |record: &Record| {
        serde_json::to_string(record).map(|line| line + "\n").map_err(|error| wrong(error.into()))
    };
    let mut file = open_or_make(&path, Trust::Secret, Access::Append)?;
    if file.metadata().map_err(wrong)?.len() < COMPACT_BYTES {
        // A line of its own, also behind half a line of a writer that was killed.
        let added =
            if ends_a_line(&path)? { line(record)? } else { format!("\n{}", line(record)?) };
        return file.write_all(added.as_bytes()).and_then(|()| file.sync_all()).map_err(wrong);
    }
    let mut kept = String::new();
    for record in read(directory)?.iter().filter(|old| old.expires_unix > now_unix) {
        kept.push_str(&line(record)?);
    }
    kept.push_str(&line(record)?);
    replace(&path, Content::durable(kept.as_bytes()))
}

/// All records. Half a line is of a writer that was killed before its grant was handed out.
pub(crate) fn read(directory: &Path) -> Result<Vec<Record>, FileError> {
    let path = directory.join(FILE);
    let file = match open(&path, Trust::Secret) {
        Err(FileError::Missing(_)) => return Ok(Vec::new()),
        file => file?,
    };
    let mut text = Vec::new();
    file.take(MAX_BYTES)
        .read_to_end(&mut text)
        .map_err(|source| FileError::Use { path: path.clone(), source })?;
    let lines = text.split(|byte| *byte == b'\n');
    Ok(lines.filter_map(|line| serde_json::from_slice(line).ok()).collect())
}

fn ends_a_line(path: &Path) -> Result<bool, FileError> {
    use std::io::Seek;
    let mut file = open(path, Trust::Secret)?;
    let mut last = [b'\n'];
    let read = file.metadata().and_then(|metadata| match metadata.len() {
        0 => Ok(()),
        length => {
            file.seek(std::io::SeekFrom::Start(length - 1))?;
            file.read_exact(&mut last)
        }
    });
    read.map_err(|source| FileError::Use { path: path.to_owned(), source })?;
    Ok(last == [b'\n'])
}
