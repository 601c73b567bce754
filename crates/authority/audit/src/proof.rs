//! Proofs for auditors: that a record is in the log, and that an older log is a beginning of it.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};
use std::path::Path;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;

use ringwall_safekeeping::{Hold, Lock};

use crate::hash::Hash;
use crate::line::{self, Line, MOST_LINE_BYTES};
use crate::merkle::{self, Edge, ProofBuilder, leaf_hash, verify_consistency, verify_inclusion};
use crate::note::{NoteError, VerifierKey};
use crate::writer::LOCK_PATIENCE;

/// That a record is in the log that a checkpoint was signed for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InclusionProof {
    pub index: u64,
    pub size: u64,
    /// The record's line, without its newline.
    pub leaf: String,
    pub hashes: Vec<Hash>,
    pub root: Hash,
    /// The signed checkpoint.
    pub note: String,
}

/// That the log of `old` records is the beginning of the one of `new`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConsistencyProof {
    pub old: u64,
    pub old_root: Hash,
    pub new: u64,
    pub new_root: Hash,
    pub hashes: Vec<Hash>,
    pub note: String,
}

#[derive(Debug, thiserror::Error)]
pub enum ProofError {
    #[error("the audit log {path} cannot be read")]
    Read { path: String, source: io::Error },
    #[error("a writer has held the log for too long; look for a stopped `ringwall`")]
    Busy,
    #[error("the log has {size} records, counted from 0; there is no record {seq}")]
    NoRecord { seq: u64, size: u64 },
    #[error("the log has {size} records; it has no beginning of {old}")]
    NoBeginning { old: u64, size: u64 },
    #[error("the log is not whole, so nothing can be proved with it; see `ringwall audit verify`")]
    NotWhole,
    #[error("the log's last checkpoint is not believed: {0}; see `ringwall audit verify`")]
    Note(#[from] NoteError),
}

impl InclusionProof {
    /// In the format `tlog-proof` of C2SP.
    pub fn to_text(&self) -> String {
        let hashes: String =
            self.hashes.iter().map(|hash| format!("{}\n", BASE64.encode(hash))).collect();
        format!("c2sp.org/tlog-proof@v1\nindex {}\n{hashes}\n{}", self.index, self.note)
    }
}

/// Proves that record `seq` is in the log.
pub fn inclusion(log: &Path, key: &VerifierKey, seq: u64) -> Result<InclusionProof, ProofError> {
    let scan = Scan::open(log)?;
    let signed = scan.run(log, |_, _| {})?;
    if seq >= signed.size {
        return Err(ProofError::NoRecord { seq, size: signed.size });
    }
    let mut leaf = String::new();
    let mut proof = ProofBuilder::new(merkle::inclusion_ranges(seq, signed.size));
    scan.run(log, |index, line| {
        if index == seq {
            leaf = String::from_utf8_lossy(line).into_owned();
        }
        proof.push(leaf_hash(line));
    })?;
    let hashes = proof.finish().ok_or(ProofError::NotWhole)?;
    let Signed { size, root, note } = signed;
    let checkpoint = key.open(&note)?;
    let hash = leaf_hash(leaf.as_bytes());
    // A proof that does not verify is never handed out.
    if checkpoint.size != size || !verify_inclusion(&hash, seq, size, &hashes, &checkpoint.root) {
        return Err(ProofError::NotWhole);
    }
    Ok(InclusionProof { index: seq, size, leaf, hashes, root, note })
}

/// Proves that the first `old` records are still what the log begins with.
pub fn consistency(
    log: &Path,
    key: &VerifierKey,
    old: u64,
) -> Result<ConsistencyProof, ProofError> {
    let scan = Scan::open(log)?;
    let signed = scan.run(log, |_, _| {})?;
    if old > signed.size {
        return Err(ProofError::NoBeginning { old, size: signed.size });
    }
    let mut beginning = Edge::default();
    let mut proof = ProofBuilder::new(merkle::consistency_ranges(old, signed.size));
    scan.run(log, |index, line| {
        let hash = leaf_hash(line);
        if index < old {
            beginning.push(hash);
        }
        proof.push(hash);
    })?;
    let hashes = proof.finish().ok_or(ProofError::NotWhole)?;
    let Signed { size: new, root: new_root, note } = signed;
    let (old_root, checkpoint) = (beginning.root(), key.open(&note)?);
    let holds = verify_consistency((old, &old_root), (new, &new_root), &hashes);
    if checkpoint.size != new || checkpoint.root != new_root || !holds {
        return Err(ProofError::NotWhole);
    }
    Ok(ConsistencyProof { old, old_root, new, new_root, hashes, note })
}

/// The log as it was when a proof was begun.
struct Scan {
    file: File,
    length: u64,
}

/// The end of the log: its last checkpoint, and the root that its records really have.
struct Signed {
    size: u64,
    root: Hash,
    note: String,
}

impl Scan {
    fn open(log: &Path) -> Result<Scan, ProofError> {
        let file = File::open(log).map_err(failed(log))?;
        let locked = Lock::take(&file, Hold::Shared, LOCK_PATIENCE)
            .map_err(failed(log))?
            .ok_or(ProofError::Busy)?;
        let length = file.metadata().map_err(failed(log))?.len();
        drop(locked);
        Ok(Scan { file, length })
    }

    /// Shows every record's line with its number, and returns the signed state.
    fn run(&self, log: &Path, mut each: impl FnMut(u64, &[u8])) -> Result<Signed, ProofError> {
        let from = crate::position::ReadFrom { file: &self.file, at: 0 };
        let mut reader = BufReader::with_capacity(1 << 20, from.take(self.length));
        let (mut line, mut edge, mut note) = (Vec::new(), Edge::default(), None);
        loop {
            line.clear();
            let most = MOST_LINE_BYTES as u64;
            (&mut reader).take(most).read_until(b'\n', &mut line).map_err(failed(log))?;
            if line.is_empty() {
                break;
            }
            match line.strip_suffix(b"\n").and_then(line::parse) {
                Some(Line::Record(record)) => {
                    each(edge.size(), record.leaf);
                    edge.push(leaf_hash(record.leaf));
                    note = None;
                }
                Some(Line::Checkpoint(json)) => note = line::note(json),
                None => return Err(ProofError::NotWhole),
            }
        }
        let note = note.ok_or(ProofError::NotWhole)?;
        Ok(Signed { size: edge.size(), root: edge.root(), note })
    }
}

fn failed(log: &Path) -> impl Fn(io::Error) -> ProofError {
    let path = log.display().to_string();
    move |source| ProofError::Read { path: path.clone(), source }
}

#[cfg(test)]
mod tests;
