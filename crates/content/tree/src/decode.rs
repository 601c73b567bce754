//! Takes a stream apart, however it was cut, and checks every record before anybody acts on it.
//!
//! Holds at most one record. What it hands out has good paths, targets and times.

use crate::entry::{Entry, MAGIC, MAX_RECORD_BYTES, MAX_TARGET_BYTES, Time, check_path, shown};
use crate::unpack::UnpackError;

const LENGTH_BYTES: usize = 4;
/// From here on the kernel reads a time as "now" or "leave it".
const NANOSECONDS: u32 = 1_000_000_000;

/// What came next.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Piece<'a> {
    Entry(Entry),
    /// Some bytes of the file whose record came last.
    Content(&'a [u8]),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Magic,
    Length,
    Record(usize),
    Content(u64),
    Ended,
}

#[derive(Debug)]
pub(crate) struct Decoder {
    state: State,
    /// The beginning of a magic, length or record whose rest has not come.
    held: Vec<u8>,
}

impl Decoder {
    pub(crate) fn new() -> Decoder {
        Decoder { state: State::Magic, held: Vec::new() }
    }

    pub(crate) fn has_ended(&self) -> bool {
        self.state == State::Ended
    }

    /// The next piece, taken off the front of `bytes`; `None` when it takes more bytes.
    pub(crate) fn next<'a>(
        &mut self,
        bytes: &mut &'a [u8],
    ) -> Result<Option<Piece<'a>>, UnpackError> {
        loop {
            match self.state {
                State::Magic => {
                    if !self.hold(bytes, MAGIC.len()) {
                        return Ok(None);
                    }
                    if self.held != MAGIC {
                        return Err(UnpackError::NotATree);
                    }
                    self.become_now(State::Length);
                }
                State::Length => {
                    if !self.hold(bytes, LENGTH_BYTES) {
                        return Ok(None);
                    }
                    let length =
                        self.held.iter().rev().fold(0, |sum, byte| sum << 8 | u32::from(*byte));
                    match usize::try_from(length) {
                        Ok(length) if length <= MAX_RECORD_BYTES => {
                            self.become_now(State::Record(length));
                        }
                        _ => return Err(UnpackError::RecordTooLong { length }),
                    }
                }
                State::Record(length) => {
                    if !self.hold(bytes, length) {
                        return Ok(None);
                    }
                    let entry = read_record(&self.held)?;
                    self.become_now(match entry {
                        Entry::File { size, .. } if size > 0 => State::Content(size),
                        Entry::End { .. } => State::Ended,
                        _ => State::Length,
                    });
                    return Ok(Some(Piece::Entry(entry)));
                }
                State::Content(left) => {
                    if bytes.is_empty() {
                        return Ok(None);
                    }
                    let here =
                        usize::try_from(left).map_or(bytes.len(), |left| left.min(bytes.len()));
                    let (content, rest) = bytes.split_at(here);
                    *bytes = rest;
                    self.state = match left - here as u64 {
                        0 => State::Length,
                        left => State::Content(left),
                    };
                    return Ok(Some(Piece::Content(content)));
                }
                State::Ended if bytes.is_empty() => return Ok(None),
                State::Ended => return Err(UnpackError::AfterEnd),
            }
        }
    }

    /// Moves bytes over until `wanted` are held; whether they are.
    fn hold(&mut self, bytes: &mut &[u8], wanted: usize) -> bool {
        let missing = wanted.saturating_sub(self.held.len()).min(bytes.len());
        let (taken, rest) = bytes.split_at(missing);
        self.held.extend_from_slice(taken);
        *bytes = rest;
        self.held.len() >= wanted
    }

    fn become_now(&mut self, state: State) {
        self.held.clear();
        self.state = state;
    }
}

fn read_record(record: &[u8]) -> Result<Entry, UnpackError> {
    let entry = match postcard::take_from_bytes::<Entry>(record) {
        Ok((entry, [])) => entry,
        _ => return Err(UnpackError::BadRecord),
    };
    match &entry {
        Entry::Dir { path, mtime, .. } | Entry::File { path, mtime, .. } => {
            check(path, Some(*mtime))?;
        }
        Entry::Link { path, target, mtime } => {
            check(path, Some(*mtime))?;
            // It may say anything else: nobody here follows it.
            if target.is_empty() || target.len() > MAX_TARGET_BYTES || target.contains(&0) {
                return Err(UnpackError::BadTarget { path: shown(path) });
            }
        }
        Entry::Whiteout { path } => check(path, None)?,
        Entry::End { .. } => {}
    }
    Ok(entry)
}

fn check(path: &[u8], mtime: Option<Time>) -> Result<(), UnpackError> {
    check_path(path).map_err(|why| UnpackError::BadPath { path: shown(path), why })?;
    if mtime.is_some_and(|(_, nanoseconds)| nanoseconds >= NANOSECONDS) {
        return Err(UnpackError::BadTime { path: shown(path) });
    }
    Ok(())
}
