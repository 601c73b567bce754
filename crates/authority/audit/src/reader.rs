//! Reads records that are there for good, follows the log, and joins what belongs together.
//!
//! A reader believes the log: whether it is whole is for the verifier to say.

use std::collections::{HashSet, VecDeque};
use std::fs::File;
use std::io::{self, BufRead, BufReader, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};

use crate::event::{Event, Ids};
use crate::hash::Hash;
use crate::line::{self, Line, MOST_LINE_BYTES};
use crate::text::Id;

/// A record as it stands in the log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stored {
    pub seq: u64,
    /// Milliseconds since 1970.
    pub time: u64,
    pub ids: Ids,
    pub event: Event,
    pub hash: Hash,
    /// The whole line, without its newline: what the Merkle tree is made of.
    pub line: String,
}

/// Which records are wanted: those that meet everything that is set.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Filter {
    pub task: Option<Id>,
    pub sandbox: Option<Id>,
    /// As [`Event::kind`] names it.
    pub kind: Option<String>,
    /// Milliseconds since 1970.
    pub since: Option<u64>,
}

#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    #[error("there is no audit log at {0} yet")]
    NoLog(String),
    #[error("the audit log {path} cannot be read")]
    Read { path: String, source: io::Error },
    #[error(
        "the audit log has a line at byte {at} that Ringwall does not write; `ringwall audit verify` tells more"
    )]
    Line { at: u64 },
}

impl Filter {
    pub fn takes(&self, record: &Stored) -> bool {
        let same = |wanted: &Option<Id>, found: &Option<Id>| wanted.is_none() || wanted == found;
        same(&self.task, &record.ids.task)
            && same(&self.sandbox, &record.ids.sandbox)
            && self.kind.as_deref().is_none_or(|kind| kind == record.event.kind())
            && self.since.is_none_or(|since| record.time >= since)
    }
}

/// Gives records in their order. At the end of the log it gives none, and goes on when asked again
/// after more were written.
#[derive(Debug)]
pub struct LogReader {
    path: PathBuf,
    reader: BufReader<File>,
    /// Behind the last checkpoint that was read.
    at: u64,
    /// Read, and signed for.
    ready: VecDeque<Stored>,
}

impl LogReader {
    /// From the first record.
    pub fn open(log: &Path) -> Result<LogReader, ReadError> {
        let file = File::open(log).map_err(|source| match source.kind() {
            io::ErrorKind::NotFound => ReadError::NoLog(log.display().to_string()),
            _ => ReadError::Read { path: log.display().to_string(), source },
        })?;
        let reader = BufReader::with_capacity(256 << 10, file);
        Ok(LogReader { path: log.to_owned(), reader, at: 0, ready: VecDeque::new() })
    }

    /// The last `count` records that the filter takes, and a reader for what comes after them.
    pub fn last(
        log: &Path,
        count: usize,
        filter: &Filter,
    ) -> Result<(Vec<Stored>, LogReader), ReadError> {
        LogReader::last_where(log, count, |record| filter.takes(record))
    }

    /// The last `count` records that meet any condition, and a reader for the rest.
    pub fn last_where(
        log: &Path,
        count: usize,
        takes: impl Fn(&Stored) -> bool,
    ) -> Result<(Vec<Stored>, LogReader), ReadError> {
        let mut span: u64 = 64 << 10;
        loop {
            let mut reader = LogReader::open(log)?;
            let length = reader.length()?;
            let begun_at = length.saturating_sub(span);
            reader.start_at(begun_at)?;
            let mut found = VecDeque::with_capacity(count.min(1024));
            for record in reader.by_ref() {
                let record = record?;
                if takes(&record) {
                    found.push_back(record);
                }
                if found.len() > count {
                    found.pop_front();
                }
            }
            if found.len() == count || begun_at == 0 {
                return Ok((found.into(), reader));
            }
            span = span.saturating_mul(8);
        }
    }

    fn length(&self) -> Result<u64, ReadError> {
        let metadata = self.reader.get_ref().metadata().map_err(|error| self.failed(error))?;
        Ok(metadata.len())
    }

    /// Goes to the first line that begins at or behind `at`.
    fn start_at(&mut self, at: u64) -> Result<(), ReadError> {
        let Some(before) = at.checked_sub(1) else {
            return Ok(());
        };
        let found = self.reader.seek(SeekFrom::Start(before)).and_then(|_| {
            let mut skipped = Vec::new();
            let most = MOST_LINE_BYTES as u64 + 1;
            (&mut self.reader).take(most).read_until(b'\n', &mut skipped)
        });
        self.at = before + found.map_err(|error| self.failed(error))? as u64;
        Ok(())
    }

    /// Reads one group of records with the checkpoint behind it. `false` when it is not there (yet).
    fn read_group(&mut self) -> Result<bool, ReadError> {
        let mut at = self.at;
        let mut group = Vec::new();
        loop {
            let mut line = Vec::new();
            let read = (&mut self.reader).take(MOST_LINE_BYTES as u64).read_until(b'\n', &mut line);
            read.map_err(|error| self.failed(error))?;
            let Some(text) = line.strip_suffix(b"\n") else {
                if line.len() == MOST_LINE_BYTES {
                    return Err(ReadError::Line { at });
                }
                // The beginning of this line is read again when the whole line is there.
                let seek = self.reader.seek(SeekFrom::Start(self.at));
                seek.map_err(|error| self.failed(error))?;
                return Ok(false);
            };
            match line::parse(text) {
                Some(Line::Record(record)) => {
                    let body = record.body().map_err(|_| ReadError::Line { at })?;
                    let line = str::from_utf8(text).map_err(|_| ReadError::Line { at })?;
                    group.push(Stored {
                        seq: body.seq,
                        time: body.time,
                        ids: body.ids,
                        event: body.event,
                        hash: record.hash,
                        line: line.to_owned(),
                    });
                    at += line.len() as u64 + 1;
                }
                Some(Line::Checkpoint(_)) => {
                    self.at = at + line.len() as u64;
                    self.ready.extend(group);
                    return Ok(true);
                }
                None => return Err(ReadError::Line { at }),
            }
        }
    }

    fn failed(&self, source: io::Error) -> ReadError {
        ReadError::Read { path: self.path.display().to_string(), source }
    }
}

impl Iterator for LogReader {
    type Item = Result<Stored, ReadError>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            if let Some(record) = self.ready.pop_front() {
                return Some(Ok(record));
            }
            match self.read_group() {
                Ok(true) => {}
                Ok(false) => return None,
                Err(error) => return Some(Err(error)),
            }
        }
    }
}

/// Everything that led to what a task did and came of it, in order: the task's own records, and those
/// that name no task but one of its calls, sandboxes, grants or approvals.
pub fn chain(log: &Path, task: &Id) -> Result<Vec<Stored>, ReadError> {
    let mut joined: HashSet<Id> = HashSet::new();
    loop {
        let known = joined.len();
        let mut found = Vec::new();
        for record in LogReader::open(log)? {
            let record = record?;
            let Ids { task: own, call, sandbox, grant, approval } = &record.ids;
            let others = || [call, sandbox, grant, approval].into_iter().flatten();
            match own {
                Some(own) if own == task => joined.extend(others().cloned()),
                // A sandbox or a grant may serve several tasks: what another one did is not ours.
                Some(_) => continue,
                None if others().any(|id| joined.contains(id)) => {
                    joined.extend([call, approval].into_iter().flatten().cloned());
                }
                None => continue,
            }
            found.push(record);
        }
        // An id that was learned late may join records before it.
        if joined.len() == known {
            return Ok(found);
        }
    }
}

#[cfg(test)]
mod tests;
