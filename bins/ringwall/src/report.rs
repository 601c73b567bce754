//! What people and programs get to read: notes on standard error, tables and JSON on standard
//! output.

mod busy;
mod diff;
mod evidence;
mod outcome;
mod progress;
mod table;
mod text;

use std::io::{self, Write};

use serde::Serialize;

pub(crate) use busy::{Busy, busy};
pub(crate) use diff::{ColouredDiff, CountedDiff};
pub(crate) use evidence::write_evidence;
pub(crate) use outcome::{explain, hint_at_changes};
pub(crate) use progress::progress;
pub(crate) use table::Table;
pub(crate) use text::{age, printable, printable_bytes, utc};

/// Says one thing to the person, on standard error.
pub(crate) fn note(text: &str) {
    // One write, so that lines of several processes do not mix. No reader is left to tell if this
    // fails.
    let _ = io::stderr().write_all(format!("ringwall: {}\n", printable(text)).as_bytes());
}

/// Writes one JSON document to standard output.
pub(crate) fn json(document: &impl Serialize) -> io::Result<()> {
    let mut out = io::BufWriter::new(io::stdout().lock());
    serde_json::to_writer_pretty(&mut out, document).map_err(io::Error::from)?;
    out.write_all(b"\n")?;
    out.flush()
}

/// Writes finished text to standard output in one go.
pub(crate) fn text(text: impl AsRef<[u8]>) -> io::Result<()> {
    let mut out = io::stdout().lock();
    out.write_all(text.as_ref())?;
    out.flush()
}
