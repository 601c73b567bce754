//! What a sandbox changed, as data: the manifest that `collect` writes and the others read.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use ringwall_safekeeping::{Content, replace};
use ringwall_spec::ChangeSummary;
use serde::{Deserialize, Serialize};

use crate::check::CheckedWorkspace;
use crate::content::{self, Digest};
use crate::identity::WorkspaceId;
use crate::path::{EscapedBytes, RelPath};
use crate::periods::Periods;

/// The changes of one sandbox, in a directory of ours: a manifest and the new contents.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Changes {
    pub(crate) dir: PathBuf,
    pub(crate) manifest: Manifest,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Manifest {
    pub(crate) version: u32,
    /// The host directory that the sandbox saw.
    pub(crate) workspace: EscapedBytes,
    pub(crate) workspace_id: WorkspaceId,
    /// In order of path, so that a directory comes before its entries.
    pub(crate) changes: Vec<Change>,
    pub(crate) refused: Vec<Refused>,
    pub(crate) notes: Vec<Note>,
}

/// One path that is different from what the sandbox was given.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Change {
    pub path: RelPath,
    /// The host's side when the changes were collected; absent if there was nothing.
    pub before: Option<Before>,
    /// The sandbox's side; absent if it was deleted.
    pub after: Option<After>,
    /// The sandbox wrote to a path that was hidden from it, so it never saw the file there.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub hidden: bool,
    /// How often the rights of the sandbox had been changed when this was changed last.
    #[serde(default, skip_serializing_if = "is_first")]
    pub period: usize,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde asks for a reference")]
fn is_first(period: &usize) -> bool {
    *period == 0
}

/// What the host had.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub enum Before {
    File {
        mode: u32,
        size: u64,
        /// Seconds and nanoseconds.
        modified: (i64, u64),
        /// Absent if the file is hidden, unreadable or was over the bound for hashing.
        sha256: Option<Digest>,
    },
    Symlink {
        target: EscapedBytes,
    },
    Directory {
        mode: u32,
    },
}

/// A sandbox opens nothing of the host to other users: of the permission to write, its group and others keep
/// what the host's own file or directory gives them. Ringwall does not use a policy that others can write.
pub(crate) fn closed_mode(mode: u32, host: Option<u32>) -> u32 {
    mode & 0o777 & !(0o022 & !host.unwrap_or(0))
}

/// What the sandbox left.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub enum After {
    File {
        mode: u32,
        size: u64,
        sha256: Digest,
        /// The number of the file with the content; absent if the content is still the host's.
        blob: Option<u64>,
    },
    Symlink {
        target: EscapedBytes,
    },
    Directory {
        mode: u32,
    },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ChangeKind {
    Added,
    Modified,
    Deleted,
    ModeChanged,
}

/// Something in the upper directory that is never taken over.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Refused {
    pub path: RelPath,
    pub why: RefusedWhy,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum RefusedWhy {
    Device,
    Fifo,
    Socket,
    /// Overlay attributes (redirect, metacopy, ...) that would point at other files.
    OverlayAttribute,
    FileTooLarge,
    TooDeep,
    /// It would take the place of a directory that holds hidden or unremovable host files.
    CoversHiddenFiles,
    /// It is on the host and is neither a file nor a link nor a directory, or cannot be read.
    UnknownOnHost,
    /// It could not be read from the sandbox's side.
    Unreadable,
    /// The name is one that Ringwall itself uses while it applies changes.
    ReservedName,
    /// The sandbox was not allowed to write there when it did.
    NotWritable,
    /// One of many names of a file. Written out, they would take more than the disk limit.
    LinkedTooOften,
}

impl RefusedWhy {
    pub fn words(self) -> &'static str {
        match self {
            RefusedWhy::Device => "device, not taken over",
            RefusedWhy::Fifo => "fifo, not taken over",
            RefusedWhy::Socket => "socket, not taken over",
            RefusedWhy::OverlayAttribute => "carries overlay attributes, not taken over",
            RefusedWhy::FileTooLarge => "too large, not taken over",
            RefusedWhy::TooDeep => "nested too deeply, not taken over",
            RefusedWhy::CoversHiddenFiles => "would remove hidden files, not taken over",
            RefusedWhy::UnknownOnHost => "cannot be compared with the host, left as it is",
            RefusedWhy::Unreadable => "cannot be read, not taken over",
            RefusedWhy::ReservedName => "name reserved by Ringwall, not taken over",
            RefusedWhy::NotWritable => "not where the sandbox may write, not taken over",
            RefusedWhy::LinkedTooOften => {
                "one more hard link than the disk limit has room for, not taken over"
            }
        }
    }
}

/// Something that was altered on the way out.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Note {
    pub path: RelPath,
    pub kind: NoteKind,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum NoteKind {
    /// Set-user-id, set-group-id and sticky bits are not carried over.
    SpecialBitsRemoved,
    /// One of several names of a file; each becomes a file of its own.
    HardLinkSplit,
    /// The sandbox deleted the directory, but it holds files that were hidden from it.
    KeptForHiddenFiles,
}

impl NoteKind {
    pub fn words(self) -> &'static str {
        match self {
            NoteKind::SpecialBitsRemoved => "setuid, setgid or sticky bit removed",
            NoteKind::HardLinkSplit => "was a hard link, now a file of its own",
            NoteKind::KeptForHiddenFiles => "kept, it holds files hidden from the sandbox",
        }
    }
}

#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    #[error(
        "there are no changes in {dir}: the run had no copy-on-write workspace, or they were removed"
    )]
    Missing { dir: String },
    #[error("the changes in {dir} cannot be read")]
    Read { dir: String, source: io::Error },
    #[error("the list of changes in {dir} is damaged; run the job again")]
    Damaged { dir: String, source: serde_json::Error },
    #[error("the list of changes in {dir} is larger than {max} bytes", max = Manifest::MAX_BYTES)]
    TooLarge { dir: String },
    #[error("the list of changes in {dir} has version {found}; this Ringwall reads version {known}", known = Manifest::VERSION)]
    Version { dir: String, found: u32 },
}

// === impl Change ===

impl Change {
    pub fn kind(&self) -> ChangeKind {
        match (&self.before, &self.after) {
            (None, _) => ChangeKind::Added,
            (_, None) => ChangeKind::Deleted,
            (Some(Before::Directory { .. }), Some(After::Directory { .. }))
            | (Some(Before::File { .. }), Some(After::File { blob: None, .. })) => {
                ChangeKind::ModeChanged
            }
            _ => ChangeKind::Modified,
        }
    }
}

// === impl Manifest ===

impl Manifest {
    const VERSION: u32 = 2;
    const FILE: &str = "manifest.json";
    /// A hundred thousand changes with long paths fit.
    const MAX_BYTES: u64 = 256 << 20;

    pub(crate) fn new(workspace: &CheckedWorkspace) -> rustix::io::Result<Self> {
        use std::os::unix::ffi::OsStrExt;
        Ok(Manifest {
            version: Self::VERSION,
            workspace: EscapedBytes(workspace.path().as_os_str().as_bytes().to_vec()),
            workspace_id: WorkspaceId::of(workspace)?,
            changes: Vec::new(),
            refused: Vec::new(),
            notes: Vec::new(),
        })
    }

    /// Notes when each change was made, and refuses those that were not allowed then.
    pub(crate) fn judge(&mut self, periods: &Periods) {
        let all = std::mem::take(&mut self.changes);
        for mut change in all {
            if periods.allow(&change) {
                change.period = periods.of(&change.path);
                self.changes.push(change);
            } else {
                let why = RefusedWhy::NotWritable;
                self.refused.push(Refused { path: change.path, why });
            }
        }
    }

    /// Each name of a file becomes a file of its own. Refuses names that would make all of them take
    /// more than `max_bytes`, the first names last.
    pub(crate) fn refuse_links_beyond(&mut self, max_bytes: u64) {
        let blob_of = |change: &Change| match &change.after {
            Some(After::File { blob: Some(blob), size, .. }) => Some((*blob, *size)),
            _ => None,
        };
        let kept: BTreeMap<u64, u64> = self.changes.iter().filter_map(blob_of).collect();
        let mut left = max_bytes.saturating_sub(kept.values().sum());
        let mut written = BTreeSet::new();
        let all = std::mem::take(&mut self.changes);
        let (kept, others): (Vec<_>, Vec<_>) = all.into_iter().partition(|change| {
            let Some((blob, size)) = blob_of(change) else { return true };
            if written.insert(blob) {
                return true;
            }
            let fits = size <= left;
            left -= if fits { size } else { 0 };
            fits
        });
        self.changes = kept;
        let refused = others.into_iter().map(|change| change.path);
        self.refused.extend(refused.map(|path| Refused { path, why: RefusedWhy::LinkedTooOften }));
        self.refused.sort_by(|a, b| a.path.cmp(&b.path));
    }

    pub(crate) fn sort(&mut self) {
        self.changes.sort_by(|a, b| a.path.cmp(&b.path));
        self.refused.sort_by(|a, b| a.path.cmp(&b.path));
        self.notes.sort_by(|a, b| a.path.cmp(&b.path));
    }
}

// === impl Changes ===

pub(crate) fn summary_of<'a>(changes: impl IntoIterator<Item = &'a Change>) -> ChangeSummary {
    let mut summary = ChangeSummary::default();
    for change in changes {
        match change.kind() {
            ChangeKind::Added => summary.added += 1,
            ChangeKind::Deleted => summary.deleted += 1,
            ChangeKind::Modified | ChangeKind::ModeChanged => summary.modified += 1,
        }
    }
    summary
}

impl Changes {
    /// Reads what `collect` left in `dir`.
    pub fn load(dir: &Path) -> Result<Self, LoadError> {
        let name = || dir.display().to_string();
        let file = match File::open(dir.join(Manifest::FILE)) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                return Err(LoadError::Missing { dir: name() });
            }
            Err(source) => {
                return Err(LoadError::Read { dir: name(), source });
            }
        };
        let bytes = content::read_bounded(file, Manifest::MAX_BYTES)
            .map_err(|source| LoadError::Read { dir: name(), source })?
            .ok_or_else(|| LoadError::TooLarge { dir: name() })?;
        let manifest: Manifest = serde_json::from_slice(&bytes)
            .map_err(|source| LoadError::Damaged { dir: name(), source })?;
        if manifest.version != Manifest::VERSION {
            return Err(LoadError::Version { dir: name(), found: manifest.version });
        }
        Ok(Changes { dir: dir.to_owned(), manifest })
    }

    /// Writes the manifest last and in one piece: a directory without one was not finished.
    pub(crate) fn save(&self) -> io::Result<()> {
        let text = serde_json::to_vec(&self.manifest)?;
        Ok(replace(&self.dir.join(Manifest::FILE), Content::quick(&text))?)
    }

    /// The host directory that the sandbox saw when the changes were collected.
    pub fn workspace(&self) -> PathBuf {
        PathBuf::from(crate::beneath::os_bytes(&self.manifest.workspace.0))
    }

    /// The directory at `path`, if it is the one that the sandbox saw; `ESTALE` if not.
    pub(crate) fn open_workspace(&self, path: &Path) -> rustix::io::Result<OwnedFd> {
        self.manifest.workspace_id.open(path)
    }

    /// In order of path.
    pub fn entries(&self) -> &[Change] {
        &self.manifest.changes
    }

    pub fn refused(&self) -> &[Refused] {
        &self.manifest.refused
    }

    pub fn notes(&self) -> &[Note] {
        &self.manifest.notes
    }

    pub fn is_empty(&self) -> bool {
        self.manifest.changes.is_empty()
    }

    /// The counts for the outcome; a changed mode counts as a modification.
    pub fn summary(&self) -> ChangeSummary {
        summary_of(&self.manifest.changes)
    }

    /// Where the new content of a changed file is, if it has one.
    pub fn content_of(&self, change: &Change) -> Option<PathBuf> {
        match &change.after {
            Some(After::File { blob: Some(blob), .. }) => Some(self.blob_path(*blob)),
            _ => None,
        }
    }

    pub(crate) fn blob_path(&self, blob: u64) -> PathBuf {
        self.dir.join(BLOBS).join(blob.to_string())
    }
}

/// The directory of new contents inside the directory of changes.
pub(crate) const BLOBS: &str = "blobs";
