//! The journal of an apply: the steps that follow, kept outside the workspace.
//!
//! It lives with the changes, in a directory of ours: a journal inside the workspace could be
//! forged by the commands that fill the workspace.

use std::fs::{self, File};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use ringwall_safekeeping::{Content, replace};
use serde::{Deserialize, Serialize};

use crate::content;
use crate::identity::WorkspaceId;
use crate::path::{EscapedBytes, RelPath};

const FILE: &str = "journal.json";
const MAX_BYTES: u64 = 256 << 20;

/// One atomic, reversible move. A slot is a name in the staging directory.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Step {
    /// The host's file or link goes into an empty slot.
    Take {
        path: RelPath,
        slot: String,
    },
    /// The staged file goes to an empty place.
    Place {
        path: RelPath,
        slot: String,
        inode: u64,
        directory: bool,
    },
    /// The staged file and the host's file change places.
    Swap {
        path: RelPath,
        slot: String,
        inode: u64,
    },
    /// The host's directory, empty by then, goes.
    RemoveDirectory {
        path: RelPath,
        mode: u32,
        uid: u32,
        gid: u32,
    },
    ChangeMode {
        path: RelPath,
        inode: u64,
        from: u32,
        to: u32,
    },
}

impl Step {
    pub(super) fn path(&self) -> &RelPath {
        match self {
            Step::Take { path, .. }
            | Step::Place { path, .. }
            | Step::Swap { path, .. }
            | Step::RemoveDirectory { path, .. }
            | Step::ChangeMode { path, .. } => path,
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Record {
    pub(super) workspace: EscapedBytes,
    /// Another directory of that name is not ours to touch.
    pub(super) id: WorkspaceId,
    pub(super) staging: String,
    /// Everything is in place: nothing is to be undone any more.
    pub(super) committed: bool,
    pub(super) steps: Vec<Step>,
}

#[derive(Debug)]
pub(super) struct Journal {
    dir: PathBuf,
    record: Record,
}

impl Journal {
    /// Remembers the staging directory before it is made.
    pub(super) fn begin(
        dir: &Path,
        workspace: &Path,
        root: &OwnedFd,
        staging: &str,
    ) -> io::Result<Self> {
        let record = Record {
            workspace: EscapedBytes(workspace.as_os_str().as_bytes().to_vec()),
            id: WorkspaceId::of(root)?,
            staging: staging.to_owned(),
            committed: false,
            steps: Vec::new(),
        };
        let journal = Journal { dir: dir.to_owned(), record };
        journal.write()?;
        Ok(journal)
    }

    /// Remembers the steps that follow.
    pub(super) fn arm(&mut self, steps: Vec<Step>) -> io::Result<()> {
        self.record.steps = steps;
        self.write()
    }

    /// From here on a crash leaves only rubbish to be removed.
    pub(super) fn commit(&mut self) -> io::Result<()> {
        self.record.committed = true;
        self.write()
    }

    pub(super) fn remove(&self) {
        remove(&self.dir);
    }

    fn write(&self) -> io::Result<()> {
        let text = serde_json::to_vec(&self.record)?;
        Ok(replace(&self.dir.join(FILE), Content::durable(&text))?)
    }
}

/// The journal of an apply that did not finish, if there was one.
pub(super) fn read(dir: &Path) -> io::Result<Option<Record>> {
    let file = match File::open(dir.join(FILE)) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        opened => opened?,
    };
    let bytes = content::read_bounded(file, MAX_BYTES)?
        .ok_or_else(|| io::Error::other("the journal is too large"))?;
    Ok(Some(serde_json::from_slice(&bytes)?))
}

pub(super) fn remove(dir: &Path) {
    // If it stays, the next recovery finds no staging directory and removes it.
    let _ = fs::remove_file(dir.join(FILE));
}
