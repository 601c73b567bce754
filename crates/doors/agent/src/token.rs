//! Where the token of an agent is kept, so that it goes on with the same grant.

use std::fs::File;
use std::io::{Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use crate::journal::{AgentId, JournalError};

/// No token is longer.
const MOST_BYTES: u64 = 64 << 10;

pub(crate) fn keep(home: &Path, id: &AgentId, token: &str) -> Result<(), JournalError> {
    let path = path(home, id);
    let mut options = File::options();
    let file = options.write(true).create(true).truncate(true).mode(0o600).open(&path);
    let written = file.and_then(|mut file| file.write_all(token.as_bytes()));
    written.map_err(|source| JournalError::Io { path, source })
}

pub(crate) fn kept(home: &Path, id: &AgentId) -> Result<String, JournalError> {
    let path = path(home, id);
    let mut text = String::new();
    let read = File::open(&path).and_then(|file| file.take(MOST_BYTES).read_to_string(&mut text));
    read.map(|_| text).map_err(|source| JournalError::Io { path, source })
}

fn path(home: &Path, id: &AgentId) -> PathBuf {
    home.join("agents").join(format!("{id}.grant"))
}
