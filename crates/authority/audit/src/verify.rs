//! The verifier: reads a log from its first byte and says what in it is not as it was written.
//!
//! It needs the public key and no other. A whole log is one whose running hash goes through, whose
//! records make the root of the last checkpoint, and whose last checkpoint is signed: that covers
//! every byte. Where something is wrong, all checkpoints are looked at, to say where.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};
use std::path::{Path, PathBuf};

use ringwall_safekeeping::{Hold, Lock};

use crate::event::Event;
use crate::hash::{Hash, hex, sha256};
use crate::line::{self, FIRST_HASH, Line, MOST_LINE_BYTES, RecordLine};
use crate::merkle::{Edge, leaf_hash};
use crate::note::{Checkpoint, NoteError, VerifierKey};
use crate::position::Position;
use crate::state::{self, Found};
use crate::writer::LOCK_PATIENCE;

mod findings;

pub use findings::{Finding, Problem};

/// More say nothing new: the first one is what matters.
const MOST_FINDINGS: usize = 100;

/// What to verify, and against what.
#[derive(Debug, Clone)]
pub struct Verify {
    pub log: PathBuf,
    pub key: VerifierKey,
    /// Signed checkpoints that were kept elsewhere: the log must contain what they were made of.
    pub known: Vec<String>,
    /// The writer's state, where the log is verified in its own place. With it, a missing end of the
    /// log is found without a checkpoint from elsewhere, and files next to the log are checked too.
    pub state: Option<PathBuf>,
}

/// The result of a verification.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Report {
    pub origin: String,
    /// How many records the log has.
    pub size: u64,
    pub root: Hash,
    /// The last signed checkpoint, if it is believed.
    pub checkpoint: Option<String>,
    /// Nothing, if the log is whole. Otherwise the first is the first thing that is wrong.
    pub findings: Vec<Finding>,
}

impl Report {
    pub fn is_whole(&self) -> bool {
        self.findings.is_empty()
    }
}

#[derive(Debug, thiserror::Error)]
pub enum VerifyError {
    #[error("there is no log at {0}")]
    NoLog(String),
    #[error("{path} cannot be read")]
    Read { path: String, source: io::Error },
    #[error("a writer has held the log for too long; look for a stopped `ringwall`")]
    Busy,
    #[error("the given checkpoint cannot be used: {0}")]
    Known(#[source] NoteError),
}

pub fn verify(what: &Verify) -> Result<Report, VerifyError> {
    let failed = |source| VerifyError::Read { path: what.log.display().to_string(), source };
    let file = File::open(&what.log).map_err(|source| match source.kind() {
        io::ErrorKind::NotFound => VerifyError::NoLog(what.log.display().to_string()),
        _ => failed(source),
    })?;
    let mut known = Vec::new();
    for note in &what.known {
        known.push(what.key.open(note).map_err(VerifyError::Known)?);
    }
    let (length, kept) = {
        // Between two writes: whatever stands there then was written whole.
        let _locked = Lock::take(&file, Hold::Shared, LOCK_PATIENCE)
            .map_err(failed)?
            .ok_or(VerifyError::Busy)?;
        let kept = what.state.as_deref().map(state::read);
        (file.metadata().map_err(failed)?.len(), kept)
    };
    let (kept, bad_state) = match kept {
        Some(Ok(Found::State(kept))) => (Some(kept.position), false),
        Some(Ok(Found::Damaged) | Err(_)) => (None, true),
        Some(Ok(Found::Missing)) | None => (None, false),
    };
    let read = |thorough| {
        let mut pass = Pass::new(&what.key, thorough);
        pass.known.clone_from(&known);
        pass.kept.clone_from(&kept);
        pass.beside = what.state.as_ref().and(what.log.parent());
        if bad_state {
            pass.find(None, Problem::State);
        }
        pass.read(&file, length)?;
        pass.finish();
        Ok(pass.report())
    };
    let report = read(false).map_err(failed)?;
    if report.is_whole() { Ok(report) } else { read(true).map_err(failed) }
}

/// One reading of the log.
struct Pass<'a> {
    key: &'a VerifierKey,
    /// Whether every checkpoint is looked at, and not the last one only.
    thorough: bool,
    known: Vec<Checkpoint>,
    kept: Option<Position>,
    /// The directory of the log, if files beside it are to be checked.
    beside: Option<&'a Path>,
    findings: Vec<Finding>,
    edge: Edge,
    hash: Hash,
    /// The number that the next record must have.
    next: u64,
    /// Size of the log at the last checkpoint, and its note as it stands there.
    signed: u64,
    note: Vec<u8>,
    /// The last note, if it holds.
    believed: Option<String>,
    /// Where the last record begins.
    last: u64,
    /// The first records that are not those of their checkpoint, as a group.
    unlike: Option<(u64, u64)>,
    /// Whether a forged checkpoint was found. The first says where.
    forged: bool,
}

impl<'a> Pass<'a> {
    fn new(key: &'a VerifierKey, thorough: bool) -> Pass<'a> {
        Pass {
            key,
            thorough,
            known: Vec::new(),
            kept: None,
            beside: None,
            findings: Vec::new(),
            edge: Edge::default(),
            hash: FIRST_HASH,
            next: 0,
            signed: 0,
            note: Vec::new(),
            believed: None,
            last: 0,
            unlike: None,
            forged: false,
        }
    }

    fn find(&mut self, seq: Option<u64>, problem: Problem) {
        if self.findings.len() < MOST_FINDINGS {
            self.findings.push(Finding { seq, problem });
        }
    }

    fn read(&mut self, file: &File, length: u64) -> io::Result<()> {
        let mut lines = Lines::new(file, length);
        self.compare_known();
        while let Some(begin) = lines.next()? {
            let Some(text) = lines.line.strip_suffix(b"\n") else {
                self.find(Some(self.next), Problem::CutLine);
                continue;
            };
            match line::parse(text) {
                Some(Line::Record(record)) => {
                    self.record(record);
                    self.last = begin;
                }
                Some(Line::Checkpoint(json)) => {
                    self.checkpoint(json, text);
                    self.compare_state(lines.at);
                }
                None => self.find(Some(self.next), Problem::NotALine),
            }
        }
        Ok(())
    }

    fn record(&mut self, record: RecordLine<'_>) {
        let Ok(heading) = record.heading() else {
            self.find(Some(self.next), Problem::NotALine);
            return;
        };
        let seq = heading.seq;
        if seq > self.next {
            self.find(Some(self.next), Problem::Missing { until: seq - 1 });
        } else if seq < self.next {
            self.find(Some(seq), Problem::OutOfPlace { expected: self.next });
        } else if record.prev != self.hash {
            self.find(Some(seq), Problem::DoesNotFollow);
        }
        if record.computed_hash() != record.hash {
            self.find(Some(seq), Problem::Edited);
        }
        self.hash = record.hash;
        self.next = seq.saturating_add(1);
        self.edge.push(leaf_hash(record.leaf));
        self.compare_known();
        if heading.event.kind == "log-recovered" {
            self.compare_torn(seq, record);
        }
    }

    fn checkpoint(&mut self, json: &[u8], text: &[u8]) {
        self.hash = line::hash_over_checkpoint(&self.hash, text);
        // Nothing vouches for the bytes behind the last record but its one checkpoint.
        if self.edge.size() == self.signed {
            self.find(Some(self.next), Problem::NotALine);
        }
        if self.thorough {
            self.check_note(json);
        }
        self.note.clear();
        self.note.extend_from_slice(json);
        self.signed = self.edge.size();
    }

    /// Whether a checkpoint is believed and is one of just the records before it.
    fn check_note(&mut self, json: &[u8]) -> Option<String> {
        let size = self.edge.size();
        let Some(note) = line::note(json) else {
            self.find(Some(self.next), Problem::NotALine);
            return None;
        };
        match self.key.open(&note) {
            Ok(said) if said.size == size && said.root == self.edge.root() => return Some(note),
            Ok(said) => {
                if self.unlike.is_none() && self.findings.is_empty() {
                    let until = self.next.max(said.size).max(1) - 1;
                    self.unlike = Some((self.signed, until));
                }
            }
            Err(source) if !self.forged => {
                self.forged = true;
                self.find(Some(self.signed), Problem::Forged { size, source });
            }
            Err(_) => {}
        }
        None
    }

    /// Looks whether the log is, at this size, what a checkpoint from elsewhere says.
    fn compare_known(&mut self) {
        let size = self.edge.size();
        if self.known.iter().any(|known| known.size == size && known.root != self.edge.root()) {
            self.find(size.checked_sub(1), Problem::KnownDiffers { size });
        }
    }

    fn compare_state(&mut self, at: u64) {
        let Some(kept) = self.kept.take_if(|kept| kept.end <= at) else {
            return;
        };
        let found = Position { edge: self.edge.clone(), hash: self.hash, last: self.last, end: at };
        if kept != found {
            self.find(None, Problem::State);
        }
    }

    /// Looks whether a file with a cut-off end still has the recorded digest.
    fn compare_torn(&mut self, seq: u64, record: RecordLine<'_>) {
        let Some(directory) = self.beside else {
            return;
        };
        let Ok(Event::LogRecovered(recovered)) = record.body().map(|body| body.event) else {
            return;
        };
        let (Some(name), Some(digest)) = (recovered.moved_to, recovered.sha256) else {
            return;
        };
        // The name is one of ours or the record is not; never a path.
        let content = if name.as_str().contains('/') {
            Err(io::ErrorKind::InvalidInput.into())
        } else {
            std::fs::read(directory.join(name.as_str()))
        };
        if !content.is_ok_and(|content| hex(&sha256(&[&content])) == digest.as_str()) {
            self.find(Some(seq), Problem::TornFile { name: name.to_string() });
        }
    }

    fn finish(&mut self) {
        let size = self.edge.size();
        if size > self.signed {
            self.find(Some(self.signed), Problem::NotSigned { until: size - 1 });
        } else if self.note.is_empty() {
            self.find(None, Problem::NoCheckpoint);
        } else {
            let note = std::mem::take(&mut self.note);
            let found = self.findings.len();
            self.believed = self.check_note(&note);
            // The thorough reading has told it already, and where it begins.
            if self.thorough {
                self.findings.truncate(found);
            }
        }
        self.tell_unlike();
        for known in std::mem::take(&mut self.known) {
            if known.size > size {
                self.find(Some(size), Problem::CutBack { known: known.size });
            }
        }
        if let Some(kept) = self.kept.take() {
            if kept.edge.size() > size {
                self.find(Some(size), Problem::CutBack { known: kept.edge.size() });
            } else {
                self.find(None, Problem::State);
            }
        }
    }

    fn tell_unlike(&mut self) {
        if let Some((first, until)) = self.unlike {
            // A record that is known to be the wrong one says more than its group.
            let told = |finding: &Finding| {
                finding.seq.is_some_and(|seq| (first..=until.saturating_add(1)).contains(&seq))
            };
            if !self.findings.iter().any(told) {
                self.find(Some(first), Problem::OtherThanSigned { until });
            }
        }
    }

    fn report(mut self) -> Report {
        self.findings.sort_by_key(|finding| finding.seq.unwrap_or(u64::MAX));
        Report {
            origin: self.key.name().to_owned(),
            size: self.edge.size(),
            root: self.edge.root(),
            checkpoint: self.believed,
            findings: self.findings,
        }
    }
}

/// The lines of the first `length` bytes of a log, each at most as long as a line may be.
struct Lines<'a> {
    reader: BufReader<io::Take<&'a File>>,
    line: Vec<u8>,
    /// Behind the line.
    at: u64,
    started: bool,
}

impl<'a> Lines<'a> {
    fn new(file: &'a File, length: u64) -> Lines<'a> {
        let reader = BufReader::with_capacity(1 << 20, file.take(length));
        Lines { reader, line: Vec::new(), at: 0, started: false }
    }

    /// Reads the next line with its newline, and tells where it begins.
    fn next(&mut self) -> io::Result<Option<u64>> {
        use std::io::Seek;
        if !self.started {
            self.started = true;
            let mut file: &File = self.reader.get_ref().get_ref();
            file.rewind()?;
        }
        let begin = self.at;
        self.line.clear();
        let most = MOST_LINE_BYTES as u64;
        let count = (&mut self.reader).take(most).read_until(b'\n', &mut self.line)?;
        self.at += count as u64;
        Ok((count > 0).then_some(begin))
    }
}

#[cfg(test)]
mod tests;
