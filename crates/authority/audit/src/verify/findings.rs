//! What can be wrong with a log, in words.

use std::fmt;

use serde::Serialize;

use crate::note::NoteError;

/// One thing that is not as it was written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finding {
    /// The record that it is about, or the first of them.
    pub seq: Option<u64>,
    pub problem: Problem,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Problem {
    /// The record's content does not have its hash.
    Edited,
    /// Records from `seq` to `until` are not there.
    Missing { until: u64 },
    /// The record stands where another belongs.
    OutOfPlace { expected: u64 },
    /// The record names another history than the one before it.
    DoesNotFollow,
    /// A line that Ringwall does not write.
    NotALine,
    /// The log ends in the middle of a line.
    CutLine,
    /// Records from `seq` to `until` are not the ones that were signed for.
    OtherThanSigned { until: u64 },
    /// The checkpoint for the first `size` records is not by the log's key.
    Forged { size: u64, source: NoteError },
    /// Records from `seq` to `until` have no checkpoint behind them.
    NotSigned { until: u64 },
    /// There is no checkpoint at all.
    NoCheckpoint,
    /// The log had more records than it has.
    CutBack { known: u64 },
    /// A checkpoint from elsewhere is for other records than the first `size` of this log.
    KnownDiffers { size: u64 },
    /// The file with the end that was cut off after a crash is gone or was changed.
    TornFile { name: String },
    /// The writer's state is not that of this log.
    State,
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let seq = self.seq.unwrap_or_default();
        match &self.problem {
            Problem::Edited => {
                write!(f, "record {seq} was edited: its content does not have its hash")
            }
            Problem::Missing { until } if *until == seq => write!(f, "record {seq} was removed"),
            Problem::Missing { until } => write!(f, "records {seq} to {until} were removed"),
            Problem::OutOfPlace { expected } => {
                write!(
                    f,
                    "record {seq} is out of place: {expected} belongs there; it was moved or inserted"
                )
            }
            Problem::DoesNotFollow => {
                write!(
                    f,
                    "record {seq} does not follow what stands before it: that was edited, removed or inserted"
                )
            }
            Problem::NotALine => {
                write!(f, "the line where record {seq} belongs is none that Ringwall writes")
            }
            Problem::CutLine => write!(
                f,
                "the log ends in the middle of a line, where record {seq} belongs; if a writer was killed, the next `ringwall` command puts this right"
            ),
            Problem::OtherThanSigned { until } => {
                write!(f, "records {seq} to {until} are not the ones that were signed for")
            }
            Problem::Forged { size, source } => {
                write!(
                    f,
                    "the checkpoint for {size} records, from record {seq} on, is not believed: {source}"
                )
            }
            Problem::NotSigned { until } => write!(
                f,
                "records {seq} to {until} are not signed for; if a writer was killed, the next `ringwall` command puts this right"
            ),
            Problem::NoCheckpoint => write!(f, "there is no signed checkpoint"),
            Problem::CutBack { known } => {
                write!(
                    f,
                    "the log was cut back: it had {known} records and now ends before record {seq}"
                )
            }
            Problem::KnownDiffers { size } => write!(
                f,
                "the first {size} records are not those of the given checkpoint: history was rewritten"
            ),
            Problem::TornFile { name } => {
                write!(f, "the file {name} that record {seq} speaks of is gone or was changed")
            }
            Problem::State => write!(f, "the writer's state is not that of this log"),
        }
    }
}

/// For programs: the record, a word for the problem, and the sentence.
impl Serialize for Finding {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        #[derive(Serialize)]
        struct Shown {
            seq: Option<u64>,
            problem: &'static str,
            text: String,
        }
        Shown { seq: self.seq, problem: self.problem.word(), text: self.to_string() }
            .serialize(serializer)
    }
}

impl Problem {
    fn word(&self) -> &'static str {
        match self {
            Problem::Edited => "edited",
            Problem::Missing { .. } => "removed",
            Problem::OutOfPlace { .. } => "out-of-place",
            Problem::DoesNotFollow => "does-not-follow",
            Problem::NotALine => "not-a-line",
            Problem::CutLine => "cut-line",
            Problem::OtherThanSigned { .. } => "other-than-signed",
            Problem::Forged { .. } => "forged-checkpoint",
            Problem::NotSigned { .. } => "not-signed",
            Problem::NoCheckpoint => "no-checkpoint",
            Problem::CutBack { .. } => "cut-back",
            Problem::KnownDiffers { .. } => "known-differs",
            Problem::TornFile { .. } => "torn-file",
            Problem::State => "state",
        }
    }
}
