//! Reads what a sandbox left in its upper directory into a directory of ours.
//!
//! The upper directory was under the control of hostile code, and may still be: every name,
//! mode, attribute, size and count in it is checked, and nothing in it is followed. What cannot
//! be taken over safely is listed as refused, never dropped in silence.

mod copied;
mod lower;
mod store;
mod upper;

use std::collections::BTreeSet;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};

use crate::check::CheckedWorkspace;
use crate::manifest::{
    After, Before, Change, Changes, Manifest, Note, NoteKind, Refused, RefusedWhy,
};
use crate::path::RelPath;
use crate::periods::Periods;
use crate::show::quoted;
pub use copied::Copied;
use store::Store;

/// How much is taken over at most. A sandbox's own disk and inode limits are usually lower.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bounds {
    /// Entries of the upper directory and of host directories that it deletes, counted together;
    /// every 256 bytes of a path or link target count as one more.
    pub max_entries: u64,
    /// All new contents together, counted for each name that they are written to.
    pub max_total_bytes: u64,
    /// One file; larger ones are listed as refused.
    pub max_file_bytes: u64,
    /// Levels of directories; deeper entries are listed as refused.
    pub max_depth: usize,
    /// Host bytes that are hashed, of files that the sandbox wrote to. Files beyond it, and those that
    /// it only deleted, are compared by size and time when applying.
    pub max_hash_bytes: u64,
}

impl Default for Bounds {
    fn default() -> Self {
        Bounds {
            max_entries: 100_000,
            max_total_bytes: 4 << 30,
            max_file_bytes: 1 << 30,
            max_depth: 128,
            max_hash_bytes: 8 << 30,
        }
    }
}

#[derive(Debug, thiserror::Error)]
pub enum CollectError {
    #[error(
        "the sandbox changed more than {max} files and directories; have the job clean up after itself, or run it in parts"
    )]
    TooManyEntries { max: u64 },
    #[error(
        "the sandbox wrote more than {max} bytes to its workspace; have the job clean up after itself, or run it in parts"
    )]
    TooManyBytes { max: u64 },
    #[error("the workspace {path} cannot be opened")]
    Workspace { path: String, source: io::Error },
    #[error("the sandbox's changes cannot be read")]
    Upper { source: io::Error },
    #[error("the host's side of {path} cannot be read")]
    Lower { path: String, source: io::Error },
    #[error("the directory {dir} for the changes is not empty; it must be new")]
    StoreNotEmpty { dir: String },
    #[error("the changes cannot be kept in {dir}")]
    Store { dir: String, source: io::Error },
}

/// What a sandbox wrote to in place of its workspace.
#[derive(Debug)]
pub struct Upper<'u> {
    pub dir: BorrowedFd<'u>,
    /// The entries of a copy of the workspace. `None` is the upper directory of an overlay.
    pub copied: Option<Copied>,
}

impl<'u> From<BorrowedFd<'u>> for Upper<'u> {
    fn from(dir: BorrowedFd<'u>) -> Self {
        Upper { dir, copied: None }
    }
}

/// Reads the changes in `upper` against the host directory `workspace` and keeps them in the new
/// directory `into`. `hidden` are the paths whose whiteouts we planted ourselves, `periods` what the
/// sandbox was allowed to write, and when: other changes are refused. On an error nothing is left in
/// `into`.
pub fn collect<'u>(
    upper: impl Into<Upper<'u>>,
    workspace: &CheckedWorkspace,
    hidden: &[PathBuf],
    periods: &Periods,
    into: &Path,
    bounds: &Bounds,
) -> Result<Changes, CollectError> {
    let unusable = |source| CollectError::Workspace { path: quoted(workspace.path()), source };
    let lower = workspace.as_fd().try_clone_to_owned().map_err(unusable)?;
    let manifest = Manifest::new(workspace).map_err(|error| unusable(error.into()))?;
    let store = Store::create(into, bounds)?;
    let Upper { dir: upper, copied } = upper.into();
    let mut collector = Collector {
        upper,
        copied,
        lower,
        hidden: hidden.iter().cloned().collect(),
        bounds,
        entries_left: bounds.max_entries,
        hash_left: bounds.max_hash_bytes,
        store,
        manifest,
        unlocked: Vec::new(),
    };
    let walked = collector.walk();
    collector.lock_again();
    let Collector { store, mut manifest, .. } = collector;
    manifest.judge(periods);
    manifest.sort();
    manifest.refuse_links_beyond(bounds.max_total_bytes);
    let kept = walked.and_then(|()| {
        let changes = Changes { dir: into.to_owned(), manifest };
        changes.save().map_err(|source| store.error(source))?;
        Ok(changes)
    });
    if kept.is_err() {
        store.discard();
    }
    kept
}

struct Collector<'a> {
    upper: BorrowedFd<'a>,
    copied: Option<Copied>,
    lower: OwnedFd,
    hidden: BTreeSet<PathBuf>,
    bounds: &'a Bounds,
    entries_left: u64,
    hash_left: u64,
    store: Store,
    manifest: Manifest,
    /// What had to be made readable on the upper side, and the modes it had.
    unlocked: Vec<(RelPath, u32)>,
}

impl Collector<'_> {
    fn is_hidden(&self, path: &RelPath) -> bool {
        path.as_path().ancestors().any(|above| self.hidden.contains(above))
    }

    fn record(&mut self, path: RelPath, before: Option<Before>, after: Option<After>) {
        let hidden = self.is_hidden(&path);
        self.manifest.changes.push(Change { path, before, after, hidden, period: 0 });
    }

    fn refuse(&mut self, path: RelPath, why: RefusedWhy) {
        self.manifest.refused.push(Refused { path, why });
    }

    fn note(&mut self, path: &RelPath, kind: NoteKind) {
        self.manifest.notes.push(Note { path: path.clone(), kind });
    }

    /// A long path or link target counts as several entries, so that the bound on entries is one
    /// on memory too.
    fn count_bytes(&mut self, bytes: usize) -> Result<(), CollectError> {
        self.count(bytes / 256)
    }

    fn count(&mut self, entries: usize) -> Result<(), CollectError> {
        let left = self.entries_left.checked_sub(entries as u64);
        self.entries_left =
            left.ok_or(CollectError::TooManyEntries { max: self.bounds.max_entries })?;
        Ok(())
    }
}
