//! Opens the database: read-only unless writing was asked for, never one that is not there.

use std::fs::File;
use std::io::Read as _;
use std::path::Path;

use ringwall_tool_sdk::{Failure, files};
use rusqlite::{Connection, OpenFlags};

use crate::{Input, failed};

/// The header of a database; bytes 18 and 19 tell the journal mode.
const HEADER: usize = 100;
const MAGIC: &[u8] = b"SQLite format 3\0";
const WAL: u8 = 2;

pub(crate) fn open(root: &Path, input: &Input) -> Result<Connection, Failure> {
    let Some(path) = &input.database else {
        return Connection::open_in_memory().map_err(|error| failed(&error));
    };
    if !input.tables.is_empty() {
        return Err(Failure::bad_input("give either `database` or `tables`, not both"));
    }
    let full = files::resolve(root, path)?;
    let full = full.to_str().ok_or_else(|| Failure::bad_input("the path is not UTF-8"))?;
    let uses_wal = check_header(path, full)?;
    if input.write && uses_wal {
        return Err(Failure::conflict(format_args!(
            "{path:?} is in WAL mode, which needs shared memory; it can only be read here. To write, \
             first run PRAGMA journal_mode=DELETE on it elsewhere"
        )));
    }
    let mut name = String::from("file:");
    name.extend(full.bytes().map(|byte| match byte {
        b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'/' | b'.' | b'-' | b'_' => {
            char::from(byte).to_string()
        }
        other => format!("%{other:02x}"),
    }));
    let flags = if input.write {
        OpenFlags::SQLITE_OPEN_READ_WRITE
    } else {
        // Nobody writes while a call reads: without this, a WAL database could not be opened.
        name.push_str(if uses_wal { "?mode=ro&immutable=1" } else { "?mode=ro" });
        OpenFlags::SQLITE_OPEN_READ_ONLY
    };
    let flags = flags | OpenFlags::SQLITE_OPEN_URI | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    Connection::open_with_flags(&name, flags).map_err(|error| failed(&error))
}

/// Refuses what is no database, and one whose last changes are only in its log. Tells whether the
/// database is in WAL mode.
fn check_header(path: &str, full: &str) -> Result<bool, Failure> {
    let mut header = Vec::with_capacity(HEADER);
    let file = File::open(full).map_err(|error| Failure::io(path, &error))?;
    let read = file.take(HEADER as u64).read_to_end(&mut header);
    read.map_err(|error| Failure::io(path, &error))?;
    // An empty file is an empty database.
    if header.is_empty() {
        return Ok(false);
    }
    if !header.starts_with(MAGIC) || header.len() < HEADER {
        return Err(Failure::bad_input(format_args!("{path:?} is not an SQLite database")));
    }
    let uses_wal = header[18] == WAL || header[19] == WAL;
    let log = std::fs::metadata(format!("{full}-wal")).map_or(0, |log| log.len());
    if uses_wal && log > 0 {
        return Err(Failure::conflict(format_args!(
            "{path:?} has changes in its write-ahead log ({path}-wal), which cannot be read here; run \
             PRAGMA wal_checkpoint(TRUNCATE) where it is in use, or give a copy made with VACUUM INTO"
        )));
    }
    Ok(uses_wal)
}
