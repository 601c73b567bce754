//! Shows changes to a person: one line each like `git status`, or a unified diff.
//!
//! Everything shown was chosen by a sandbox. Names are always quoted; contents are escaped when
//! they go to a terminal, and left as they are for a pipe so that `git apply` can read them.

mod unified;

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;

use rustix::io::Errno;

use crate::beneath;
use crate::content;
use crate::manifest::{After, Before, Change, ChangeKind, Changes, NoteKind};
use crate::nature::Nature;
use crate::path::RelPath;
use crate::show::{quoted, quoted_with_prefix};
use unified::Patience;

/// How contents are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Contents {
    /// Control characters escaped, long lines cut.
    Terminal,
    /// As they are.
    Plain,
}

#[derive(Debug, Clone)]
pub struct DiffOptions {
    pub contents: Contents,
    /// Files larger than this on either side are only said to differ.
    pub max_file_bytes: u64,
    /// How much of a line is shown on a terminal.
    pub max_line_bytes: usize,
}

impl Default for DiffOptions {
    fn default() -> Self {
        DiffOptions { contents: Contents::Terminal, max_file_bytes: 1 << 20, max_line_bytes: 2000 }
    }
}

#[derive(Debug, thiserror::Error)]
pub enum DiffError {
    #[error("the workspace {path} cannot be opened")]
    Workspace { path: String, source: io::Error },
    #[error(
        "{path} is not the directory that the sandbox saw; it or a directory above it was moved or replaced since, so put it back or run the job again"
    )]
    OtherWorkspace { path: String },
    #[error("the host's side of {path} cannot be read")]
    Host { path: String, source: io::Error },
    #[error("the kept content of {path} cannot be read; run the job again")]
    Kept { path: String, source: io::Error },
    #[error("the diff cannot be written")]
    Write(#[from] io::Error),
}

/// One side of a file in a diff.
enum Side {
    Absent,
    Bytes(Vec<u8>),
    TooLarge,
    /// A directory, device or the like: nothing that could be compared line by line.
    NoFile,
}

impl Changes {
    /// One line per change, `A  path`, with `[nature]` unless it is plain. Then one line for each path
    /// that was left as it is or refused, `!  path (why)`.
    pub fn write_status(&self, out: &mut dyn Write) -> io::Result<()> {
        let mut notes: BTreeMap<&RelPath, Vec<NoteKind>> = BTreeMap::new();
        for note in self.notes() {
            notes.entry(&note.path).or_default().push(note.kind);
        }
        for change in self.entries() {
            let letter = match change.kind() {
                ChangeKind::Added => 'A',
                ChangeKind::Deleted => 'D',
                ChangeKind::Modified | ChangeKind::ModeChanged => 'M',
            };
            write!(out, "{letter}  {}", shown_name(change))?;
            if change.kind() == ChangeKind::ModeChanged {
                let (before, after) = modes(change);
                write!(out, " (mode {:o} -> {:o})", before & 0o777, after & 0o777)?;
            }
            let nature = self.nature_of(change);
            if nature != Nature::Plain {
                write!(out, " [{}]", nature.words())?;
            }
            for kind in notes.remove(&change.path).unwrap_or_default() {
                write!(out, " ({})", kind.words())?;
            }
            writeln!(out)?;
        }
        for (path, kinds) in notes {
            for kind in kinds {
                writeln!(out, "!  {} ({})", quoted(path.as_path()), kind.words())?;
            }
        }
        for refused in self.refused() {
            writeln!(out, "!  {} ({})", quoted(refused.path.as_path()), refused.why.words())?;
        }
        Ok(())
    }

    /// A unified diff from the current files of `workspace` to what the sandbox left.
    pub fn write_diff(
        &self,
        workspace: &Path,
        options: &DiffOptions,
        out: &mut dyn Write,
    ) -> Result<(), DiffError> {
        let differ = self.differ(workspace, options)?;
        self.entries().iter().try_for_each(|change| differ.write(change, out))
    }

    /// Shows changes one by one.
    pub fn differ<'a>(
        &'a self,
        workspace: &Path,
        options: &'a DiffOptions,
    ) -> Result<Differ<'a>, DiffError> {
        let root = self.open_workspace(workspace).map_err(|error| match error {
            Errno::STALE => DiffError::OtherWorkspace { path: quoted(workspace) },
            error => DiffError::Workspace { path: quoted(workspace), source: error.into() },
        })?;
        Ok(Differ { changes: self, root, options, patience: Patience::default() })
    }
}

/// Compares the changes of a sandbox with the workspace as it is now.
#[derive(Debug)]
pub struct Differ<'a> {
    changes: &'a Changes,
    root: OwnedFd,
    options: &'a DiffOptions,
    patience: Patience,
}

impl Differ<'_> {
    /// A unified diff of one change.
    pub fn write(&self, change: &Change, out: &mut dyn Write) -> Result<(), DiffError> {
        one_kind_each(change).iter().try_for_each(|part| self.write_part(part, out))
    }

    fn write_part(&self, change: &Change, out: &mut dyn Write) -> Result<(), DiffError> {
        let Differ { changes, root, options, patience } = self;
        // Git knows no directories; a new or removed one shows by the files in it.
        let no_file_before = matches!(change.before, None | Some(Before::Directory { .. }));
        let no_file_after = matches!(change.after, None | Some(After::Directory { .. }));
        if no_file_before && no_file_after && change.kind() != ChangeKind::ModeChanged {
            return Ok(());
        }
        let path = change.path.as_path();
        let (a, b) = (quoted_with_prefix("a/", path), quoted_with_prefix("b/", path));
        writeln!(out, "diff --git {a} {b}")?;
        write_modes(change, out)?;
        if change.kind() == ChangeKind::ModeChanged {
            return Ok(());
        }
        if change.hidden {
            writeln!(out, "Hidden files {a} and {b} are not shown")?;
            return Ok(());
        }
        let old = match change.before {
            None => Side::Absent,
            Some(_) => host_side(root, &change.path, options.max_file_bytes)?,
        };
        let new = changes.kept_side(change, options.max_file_bytes)?;
        let names = (
            if change.before.is_none() { "/dev/null".to_owned() } else { a },
            if change.after.is_none() { "/dev/null".to_owned() } else { b },
        );
        write_sides(&names, [&old, &new], (options, patience), out)
    }
}

impl Changes {
    fn kept_side(&self, change: &Change, max_bytes: u64) -> Result<Side, DiffError> {
        let kept = |source| DiffError::Kept { path: quoted(change.path.as_path()), source };
        Ok(match &change.after {
            None => Side::Absent,
            Some(After::Directory { .. }) => Side::NoFile,
            Some(After::Symlink { target }) => Side::Bytes(target.0.clone()),
            Some(After::File { size, .. }) if *size > max_bytes => Side::TooLarge,
            Some(After::File { blob: None, .. }) => Side::NoFile,
            Some(After::File { blob: Some(blob), .. }) => {
                let file = File::open(self.blob_path(*blob)).map_err(kept)?;
                let bytes = content::read_bounded(file, max_bytes).map_err(kept)?;
                bytes.map_or(Side::TooLarge, Side::Bytes)
            }
        })
    }
}

/// A file that became a link, or the like, is a removal and an addition to git.
fn one_kind_each(change: &Change) -> Vec<Change> {
    let same_kind = matches!(
        (&change.before, &change.after),
        (None, _)
            | (_, None)
            | (Some(Before::File { .. }), Some(After::File { .. }))
            | (Some(Before::Symlink { .. }), Some(After::Symlink { .. }))
            | (Some(Before::Directory { .. }), Some(After::Directory { .. }))
    );
    if same_kind {
        return vec![change.clone()];
    }
    vec![Change { after: None, ..change.clone() }, Change { before: None, ..change.clone() }]
}

fn shown_name(change: &Change) -> String {
    let is_dir = matches!(change.after, Some(After::Directory { .. }))
        || (change.after.is_none() && matches!(change.before, Some(Before::Directory { .. })));
    let name = change.path.as_path();
    if is_dir { quoted(&name.join("")) } else { quoted(name) }
}

fn modes(change: &Change) -> (u32, u32) {
    let before = match &change.before {
        Some(Before::File { mode, .. }) => 0o100_000 | (mode & 0o777),
        Some(Before::Directory { mode }) => 0o040_000 | (mode & 0o777),
        Some(Before::Symlink { .. }) => 0o120_000,
        None => 0,
    };
    let after = match &change.after {
        Some(After::File { mode, .. }) => 0o100_000 | mode,
        Some(After::Directory { mode }) => 0o040_000 | mode,
        Some(After::Symlink { .. }) => 0o120_000,
        None => 0,
    };
    (before, after)
}

fn write_modes(change: &Change, out: &mut dyn Write) -> io::Result<()> {
    match modes(change) {
        (0, after) => writeln!(out, "new file mode {after:06o}"),
        (before, 0) => writeln!(out, "deleted file mode {before:06o}"),
        (before, after) if before != after => {
            writeln!(out, "old mode {before:06o}\nnew mode {after:06o}")
        }
        _ => Ok(()),
    }
}

/// The host's file as it is now; the run may be long past.
fn host_side(root: &OwnedFd, path: &RelPath, max_bytes: u64) -> Result<Side, DiffError> {
    let error = |source: io::Error| DiffError::Host { path: quoted(path.as_path()), source };
    let stat = match beneath::stat(root, path.as_path()) {
        Ok(Some(stat)) => stat,
        // A link on the way there now: nothing of ours is behind it.
        Ok(None) | Err(Errno::LOOP | Errno::XDEV) => return Ok(Side::Absent),
        Err(errno) => return Err(error(errno.into())),
    };
    match rustix::fs::FileType::from_raw_mode(stat.st_mode) {
        rustix::fs::FileType::RegularFile => {
            let opened = beneath::open_file(root.as_fd(), path.as_path());
            let (file, _) = opened.map_err(|errno| error(errno.into()))?;
            let bytes = content::read_bounded(file, max_bytes).map_err(error)?;
            Ok(bytes.map_or(Side::TooLarge, Side::Bytes))
        }
        rustix::fs::FileType::Symlink => {
            let target = beneath::read_link(root.as_fd(), path.as_path());
            target.map(Side::Bytes).map_err(|errno| error(errno.into()))
        }
        _ => Ok(Side::NoFile),
    }
}

fn write_sides(
    (a, b): &(String, String),
    [old, new]: [&Side; 2],
    (options, patience): (&DiffOptions, &Patience),
    out: &mut dyn Write,
) -> Result<(), DiffError> {
    let (old, new) = match (old, new) {
        (Side::TooLarge, _) | (_, Side::TooLarge) => {
            writeln!(out, "Large files {a} and {b} differ")?;
            return Ok(());
        }
        (old, new) => (old.bytes(), new.bytes()),
    };
    if unified::is_binary(old) || unified::is_binary(new) {
        writeln!(out, "Binary files {a} and {b} differ")?;
        return Ok(());
    }
    if old != new {
        writeln!(out, "--- {a}\n+++ {b}")?;
        unified::write_hunks(old, new, (options, patience), out)?;
    }
    Ok(())
}

impl Side {
    fn bytes(&self) -> &[u8] {
        match self {
            Side::Bytes(bytes) => bytes,
            Side::Absent | Side::TooLarge | Side::NoFile => b"",
        }
    }
}
