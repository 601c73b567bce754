//! Undoes what an apply did: after an error on the way, or after a crash.
//!
//! Whether a step was done is read from the files themselves, by inode and by which slots are
//! filled, so the same code serves both and may itself be interrupted and run again.

use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use ringwall_safekeeping::{Hold, Lock, Wait};
use rustix::fs::{self, AtFlags, Gid, Mode, RenameFlags, Uid};
use rustix::io::Errno;

use super::journal::{self, Step};
use super::stage::{Stage, parent_of};
use crate::beneath;
use crate::path::RelPath;
use crate::show::{PathList, quoted};

/// What [`recover`] found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Recovered {
    /// No apply of these changes was interrupted.
    Nothing,
    /// One was, half-way: the workspace is as it was before.
    Undone,
    /// One was, after its last write: only the staging directory was left to remove.
    Finished,
}

#[derive(Debug, thiserror::Error)]
pub enum RecoverError {
    #[error("the journal of an interrupted apply in {dir} cannot be read")]
    Journal { dir: String, source: io::Error },
    #[error(
        "the workspace {path} of an interrupted apply is gone or is another directory now; its former files are in {staging} there"
    )]
    WorkspaceGone { path: String, staging: String },
    #[error("an apply is at work in {path}; try again when it is done")]
    Busy { path: String },
    #[error("{left} could not be put back; the former files are in {staging}")]
    Left { left: PathList, staging: String },
}

/// Undoes, or finishes, an apply of the changes in `dir` that was interrupted. Cheap if none was.
pub fn recover(dir: &Path) -> Result<Recovered, RecoverError> {
    let record = journal::read(dir)
        .map_err(|source| RecoverError::Journal { dir: dir.display().to_string(), source })?;
    let Some(record) = record else {
        return Ok(Recovered::Nothing);
    };
    let workspace = PathBuf::from(beneath::os_bytes(&record.workspace.0));
    let gone = || RecoverError::WorkspaceGone {
        path: quoted(&workspace),
        staging: record.staging.clone(),
    };
    let root = record.id.open(&workspace).map_err(|_| gone())?;
    let _held = Lock::take(&root, Hold::Alone, Wait::Never)
        .ok()
        .flatten()
        .ok_or_else(|| RecoverError::Busy { path: quoted(&workspace) })?;
    // Between the look and the lock the apply may have ended on its own.
    if !matches!(journal::read(dir), Ok(Some(now)) if now == record) {
        return Ok(Recovered::Nothing);
    }
    let Ok(stage) = Stage::open(&root, &record.staging) else {
        journal::remove(dir);
        return Ok(Recovered::Nothing);
    };
    if !record.committed {
        let left = undo(&record.steps, &root, &stage);
        if !left.is_empty() {
            return Err(RecoverError::Left { left: PathList(left), staging: record.staging });
        }
    }
    stage.remove(&root);
    journal::remove(dir);
    Ok(if record.committed { Recovered::Finished } else { Recovered::Undone })
}

/// Undoes whichever of the steps were done, last first; the paths where that failed.
pub(super) fn undo(steps: &[Step], root: &OwnedFd, stage: &Stage) -> Vec<RelPath> {
    let failed = |step: &&Step| undo_step(step, root, stage).is_err();
    steps.iter().rev().filter(failed).map(|step| step.path().clone()).collect()
}

fn undo_step(step: &Step, root: &OwnedFd, stage: &Stage) -> rustix::io::Result<()> {
    let is_at = |path: &RelPath, inode: u64| -> rustix::io::Result<bool> {
        Ok(beneath::stat(root, path.as_path())?.is_some_and(|stat| stat.st_ino == inode))
    };
    match step {
        Step::ChangeMode { path, inode, from, .. } => {
            if !is_at(path, *inode)? {
                return Ok(());
            }
            beneath::chmod_handle(beneath::open_handle(root, path.as_path())?, *from)
        }
        Step::Place { path, inode, directory, slot } => {
            if stage.look(slot)?.is_some() || !is_at(path, *inode)? {
                return Ok(());
            }
            let (parent, name) = parent_of(root, path)?;
            if *directory {
                // Not moved back: the user may have put a file into it by now.
                fs::unlinkat(parent, &name, AtFlags::REMOVEDIR)
            } else {
                fs::renameat_with(parent, &name, stage, slot.as_str(), RenameFlags::NOREPLACE)
            }
        }
        Step::Swap { path, slot, inode } => match stage.look(slot)? {
            Some(staged) if staged.st_ino == *inode => Ok(()),
            Some(_) if is_at(path, *inode)? => {
                let (parent, name) = parent_of(root, path)?;
                fs::renameat_with(stage, slot.as_str(), parent, &name, RenameFlags::EXCHANGE)
            }
            _ => Err(Errno::STALE),
        },
        Step::Take { path, slot } => {
            if stage.look(slot)?.is_none() {
                return Ok(());
            }
            let (parent, name) = parent_of(root, path)?;
            fs::renameat_with(stage, slot.as_str(), parent, &name, RenameFlags::NOREPLACE)
        }
        Step::RemoveDirectory { path, mode, uid, gid } => {
            if beneath::stat(root, path.as_path())?.is_some() {
                return Ok(());
            }
            let (parent, name) = parent_of(root, path)?;
            fs::mkdirat(&parent, &name, Mode::RWXU)?;
            let dir = beneath::open_dir(root, Some(path))?;
            if rustix::process::geteuid().is_root() {
                fs::fchown(&dir, Some(Uid::from_raw(*uid)), Some(Gid::from_raw(*gid)))?;
            }
            fs::fchmod(&dir, Mode::from_raw_mode(*mode))
        }
    }
}
