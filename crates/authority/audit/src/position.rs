//! How far the writer knows the log, and how it takes in what others wrote behind that.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};
use std::os::unix::fs::FileExt;
use std::sync::Arc;

use crate::hash::Hash;
use crate::line::{self, Line, MOST_LINE_BYTES};
use crate::merkle::{Edge, leaf_hash};
use crate::note::{NoteError, VerifierKey};

/// The end of a log that was found to be whole: behind a signed checkpoint.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Position {
    pub(crate) edge: Edge,
    /// The running hash.
    pub(crate) hash: Hash,
    /// Where the last record begins.
    pub(crate) last: u64,
    /// Behind the last checkpoint.
    pub(crate) end: u64,
}

/// Why a log cannot be written to any more.
#[derive(Debug, Clone, thiserror::Error)]
pub enum Broken {
    #[error("the audit log cannot be read")]
    Read(#[source] Arc<io::Error>),
    #[error("record {0} of the audit log was changed; {ADVICE}")]
    Record(u64),
    #[error("something was removed, added or moved before record {0} of the audit log; {ADVICE}")]
    Order(u64),
    #[error("the line after record {0} of the audit log is none that Ringwall writes; {ADVICE}")]
    Line(u64),
    #[error(
        "the checkpoint for {size} records of the audit log is not believed: {source}; {ADVICE}"
    )]
    Checkpoint { size: u64, source: NoteError },
    #[error("the checkpoint after record {0} of the audit log is for other records; {ADVICE}")]
    Root(u64),
    #[error(
        "the audit log has {found} bytes, but had {known} when it was last written: its end was cut off; {ADVICE}"
    )]
    Cut { found: u64, known: u64 },
}

impl From<io::Error> for Broken {
    fn from(error: io::Error) -> Broken {
        Broken::Read(Arc::new(error))
    }
}

const ADVICE: &str = "`ringwall audit verify` tells more";

impl Position {
    /// Takes in the records behind this position, up to the last checkpoint. Records behind that were
    /// never acknowledged.
    pub(crate) fn advance(&mut self, file: &File, key: &VerifierKey) -> Result<(), Broken> {
        let mut reader = BufReader::with_capacity(64 << 10, ReadFrom { file, at: self.end });
        let mut ahead = self.clone();
        // Where `ahead` is, as it stops at checkpoints only in the end.
        let mut at = self.end;
        let mut reached: Option<(Position, String)> = None;
        let mut line = Vec::new();
        loop {
            line.clear();
            let most = MOST_LINE_BYTES as u64;
            (&mut reader).take(most).read_until(b'\n', &mut line)?;
            let next = ahead.edge.size();
            let Some(text) = line.strip_suffix(b"\n") else {
                if line.len() as u64 == most {
                    return Err(Broken::Line(next));
                }
                break;
            };
            let begin = at;
            at += line.len() as u64;
            match line::parse(text).ok_or(Broken::Line(next))? {
                Line::Record(record) => {
                    if record.prev != ahead.hash {
                        return Err(Broken::Order(next));
                    }
                    let seq = record.heading().map_err(|_| Broken::Record(next))?.seq;
                    if seq != next || record.computed_hash() != record.hash {
                        return Err(Broken::Record(next));
                    }
                    ahead.edge.push(leaf_hash(record.leaf));
                    ahead.hash = record.hash;
                    ahead.last = begin;
                }
                Line::Checkpoint(json) => {
                    let signed =
                        reached.as_ref().map_or(self.edge.size(), |(at, _)| at.edge.size());
                    let note = line::note(json).filter(|_| next > signed);
                    let note = note.ok_or(Broken::Line(next))?;
                    ahead.hash = line::hash_over_checkpoint(&ahead.hash, text);
                    ahead.end = at;
                    reached = Some((ahead.clone(), note));
                }
            }
        }
        if let Some((position, note)) = reached {
            position.check_note(&note, key)?;
            *self = position;
        }
        Ok(())
    }

    /// Whether `note` is a checkpoint of just these records, by this key. It covers all before it.
    pub(crate) fn check_note(&self, note: &str, key: &VerifierKey) -> Result<(), Broken> {
        let size = self.edge.size();
        let checkpoint = key.open(note).map_err(|source| Broken::Checkpoint { size, source })?;
        if checkpoint.size == size && checkpoint.root == self.edge.root() {
            Ok(())
        } else {
            Err(Broken::Root(size))
        }
    }

    /// Whether the log still has at its end what this position says: the last record and a checkpoint.
    pub(crate) fn check_end(&self, file: &File, key: &VerifierKey) -> Result<bool, Broken> {
        if self.edge.size() == 0 {
            return Ok(self.end == 0);
        }
        let length = self.end.saturating_sub(self.last);
        if length > 2 * MOST_LINE_BYTES as u64 {
            return Ok(false);
        }
        let mut bytes = vec![0; usize::try_from(length).unwrap_or_default()];
        file.read_exact_at(&mut bytes, self.last)?;
        let mut lines = bytes.split_inclusive(|byte| *byte == b'\n');
        let mut next = || line::parse(lines.next()?.strip_suffix(b"\n")?);
        let (Some(Line::Record(record)), Some(Line::Checkpoint(json))) = (next(), next()) else {
            return Ok(false);
        };
        let Some(note) = line::note(json) else {
            return Ok(false);
        };
        self.check_note(&note, key)?;
        let behind = record.leaf.len() + 1;
        let checkpoint = bytes.get(behind..bytes.len() - 1).unwrap_or_default();
        let seq = record.heading().map(|heading| heading.seq);
        Ok(lines.next().is_none()
            && record.computed_hash() == record.hash
            && seq.is_ok_and(|seq| seq + 1 == self.edge.size())
            && line::hash_over_checkpoint(&record.hash, checkpoint) == self.hash)
    }
}

/// Reads on from an offset, whatever else is done with the file.
#[derive(Debug)]
pub(crate) struct ReadFrom<'a> {
    pub(crate) file: &'a File,
    pub(crate) at: u64,
}

impl Read for ReadFrom<'_> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let count = self.file.read_at(into, self.at)?;
        self.at += count as u64;
        Ok(count)
    }
}
