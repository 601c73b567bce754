//! Makes a directory tree from a stream that a stranger may have written.

mod place;

use std::io;
use std::os::fd::OwnedFd;

use crate::OverlayKind;
use crate::decode::{Decoder, Piece};
use crate::entry::{Entry, PathFault};
use place::Place;

/// How much is taken at most.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bounds {
    pub max_entries: u64,
    /// The contents of all files together.
    pub max_bytes: u64,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct UnpackOptions {
    /// The user and group that shall own everything; the caller's own if there is none.
    pub owner: Option<(u32, u32)>,
    /// How to mark whiteouts and opaque directories; without it both are refused.
    pub whiteouts: Option<OverlayKind>,
}

/// What was made.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Summary {
    pub entries: u64,
    /// The contents of all files together.
    pub bytes: u64,
}

#[derive(Debug, thiserror::Error)]
pub enum UnpackError {
    #[error("what came is not a tree of files in the format of this version")]
    NotATree,
    #[error("a record of {length} bytes is announced, more than any record has")]
    RecordTooLong { length: u32 },
    #[error("a record cannot be read")]
    BadRecord,
    #[error("the path {path} is refused: {why}")]
    BadPath { path: String, why: PathFault },
    #[error("the symbolic link {path} has a target that no link can have")]
    BadTarget { path: String },
    #[error("the time of {path} is none")]
    BadTime { path: String },
    #[error("{path} does not come right after its directory and what is in it")]
    OutOfPlace { path: String },
    #[error("{path} comes twice, or was there before")]
    Exists { path: String },
    #[error("{path} is a whiteout or an opaque directory, and only a sandbox's changes have those")]
    NotAnOverlay { path: String },
    #[error("there are more than {max} files and directories")]
    TooMany { max: u64 },
    #[error("the files hold more than {max} bytes")]
    TooLarge { max: u64 },
    #[error("the end tells of other numbers of files and bytes than came")]
    WrongTotals,
    #[error("something follows after the end")]
    AfterEnd,
    #[error("the stream stops before its end")]
    Truncated,
    #[error("the directory to fill cannot be opened")]
    Open { source: io::Error },
    #[error("{path} cannot be made")]
    Write { path: String, source: io::Error },
    #[error("the stream was refused before")]
    Stopped,
}

/// Takes a stream in pieces of any size. After an error, what was made so far stays for the caller
/// to remove, and no more is taken.
#[derive(Debug)]
pub struct Unpacker {
    decoder: Decoder,
    place: Place,
    bounds: Bounds,
    made: Summary,
    stopped: bool,
}

impl Unpacker {
    /// `dir` should be empty, and nobody else's to write to; `O_PATH` suffices.
    pub fn new(
        dir: OwnedFd,
        bounds: Bounds,
        options: UnpackOptions,
    ) -> Result<Unpacker, UnpackError> {
        Ok(Unpacker {
            decoder: Decoder::new(),
            place: Place::new(dir, options)?,
            bounds,
            made: Summary::default(),
            stopped: false,
        })
    }

    /// Takes the next bytes of the stream and makes what they tell of.
    pub fn feed(&mut self, bytes: &[u8]) -> Result<(), UnpackError> {
        if self.stopped {
            return Err(UnpackError::Stopped);
        }
        let taken = self.take(bytes);
        self.stopped = taken.is_err();
        taken
    }

    /// Whether the whole stream has come. More bytes would be an error.
    pub fn has_ended(&self) -> bool {
        self.decoder.has_ended() && !self.stopped
    }

    /// What was made, if the stream came to its end.
    pub fn finish(self) -> Result<Summary, UnpackError> {
        match (self.stopped, self.decoder.has_ended()) {
            (true, _) => Err(UnpackError::Stopped),
            (false, false) => Err(UnpackError::Truncated),
            (false, true) => Ok(self.made),
        }
    }

    fn take(&mut self, mut bytes: &[u8]) -> Result<(), UnpackError> {
        while let Some(piece) = self.decoder.next(&mut bytes)? {
            match piece {
                Piece::Content(content) => self.place.content(content)?,
                Piece::Entry(entry) => {
                    self.count(&entry)?;
                    self.entry(&entry)?;
                }
            }
        }
        Ok(())
    }

    /// Before anything is made: a file that would be too large is not begun.
    fn count(&mut self, entry: &Entry) -> Result<(), UnpackError> {
        let size = match entry {
            Entry::End { .. } => return Ok(()),
            Entry::File { size, .. } => *size,
            _ => 0,
        };
        if self.made.entries >= self.bounds.max_entries {
            return Err(UnpackError::TooMany { max: self.bounds.max_entries });
        }
        self.made.entries += 1;
        let bytes = self.made.bytes.checked_add(size);
        self.made.bytes = bytes
            .filter(|bytes| *bytes <= self.bounds.max_bytes)
            .ok_or(UnpackError::TooLarge { max: self.bounds.max_bytes })?;
        Ok(())
    }

    fn entry(&mut self, entry: &Entry) -> Result<(), UnpackError> {
        match entry {
            Entry::Dir { path, mode, mtime, opaque } => {
                self.place.directory(path, *mode, *mtime, *opaque)
            }
            Entry::File { path, mode, mtime, size } => self.place.file(path, *mode, *mtime, *size),
            Entry::Link { path, target, mtime } => self.place.link(path, target, *mtime),
            Entry::Whiteout { path } => self.place.whiteout(path),
            Entry::End { entries, bytes } => {
                if (*entries, *bytes) != (self.made.entries, self.made.bytes) {
                    return Err(UnpackError::WrongTotals);
                }
                self.place.leave_all()
            }
        }
    }
}
