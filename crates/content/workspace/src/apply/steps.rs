//! From verified changes to steps, and the steps done one by one.

use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;

use rustix::fs::{self, AtFlags, RenameFlags, Stat};
use rustix::io::Errno;

use super::ApplyError;
use super::journal::{Journal, Step};
use super::recover::undo;
use super::stage::{NewOwner, Stage, parent_of, stage_error};
use super::verify::{Current, Verified, Work};
use crate::beneath;
use crate::manifest::{After, Changes, closed_mode};
use crate::path::RelPath;
use crate::show::{PathList, quoted};

/// The steps, each with what it must find in its place.
#[derive(Debug, Default)]
pub(super) struct Plan {
    steps: Vec<(Step, Option<Stat>)>,
}

/// Stages all new content and lists the moves: first deletions, deepest first,
/// then additions, then the modes of directories, as those may forbid further writing.
pub(super) fn plan(
    changes: &Changes,
    root: &OwnedFd,
    stage: &Stage,
    verified: &Verified<'_>,
) -> Result<Plan, ApplyError> {
    let mut planner = Planner { changes, root, stage, slots: 0, modes: Vec::new() };
    let mut plan = Plan::default();
    for work in verified.work.iter().rev() {
        plan.steps.extend(planner.going(work));
    }
    for work in &verified.work {
        plan.steps.extend(planner.coming(work)?);
    }
    planner.modes.reverse();
    plan.steps.append(&mut planner.modes);
    Ok(plan)
}

/// Does all steps or none.
pub(super) fn commit(
    plan: Plan,
    root: &OwnedFd,
    stage: &Stage,
    journal: &mut Journal,
) -> Result<(), ApplyError> {
    let unwritten = |source| ApplyError::Stage { path: "the journal".to_owned(), source };
    stage.sync().map_err(|error| unwritten(error.into()))?;
    let steps: Vec<Step> = plan.steps.iter().map(|(step, _)| step.clone()).collect();
    journal.arm(steps.clone()).map_err(unwritten)?;
    for (step, expected) in &plan.steps {
        if let Err(error) = step.run(root, stage, expected.as_ref()) {
            let path = step.path();
            return Err(match undo(&steps, root, stage) {
                left if left.is_empty() => write_error(path, error),
                left => ApplyError::HalfDone {
                    path: quoted(path.as_path()),
                    left: PathList(left),
                    staging: stage.name.clone(),
                },
            });
        }
    }
    // Without this mark a later recovery would undo the finished moves; better now than then.
    let committed = stage.sync().map_err(io::Error::from).and_then(|()| journal.commit());
    if let Err(source) = committed {
        let left = undo(&steps, root, stage);
        if left.is_empty() {
            return Err(unwritten(source));
        }
        let staging = stage.name.clone();
        return Err(ApplyError::HalfDone {
            path: "the journal".to_owned(),
            left: PathList(left),
            staging,
        });
    }
    Ok(())
}

#[cfg(test)]
impl Plan {
    pub(super) fn len(&self) -> usize {
        self.steps.len()
    }

    pub(super) fn steps(&self) -> Vec<Step> {
        self.steps.iter().map(|(step, _)| step.clone()).collect()
    }

    /// What a crash after `count` steps would have done.
    pub(super) fn run_first(
        &self,
        count: usize,
        root: &OwnedFd,
        stage: &Stage,
    ) -> rustix::io::Result<()> {
        let first = self.steps.iter().take(count);
        first.into_iter().try_for_each(|(step, expected)| step.run(root, stage, expected.as_ref()))
    }
}

fn write_error(path: &RelPath, error: Errno) -> ApplyError {
    match error {
        // What we found was not what we had looked at a moment before.
        Errno::STALE | Errno::EXIST | Errno::NOTEMPTY => {
            ApplyError::Conflicts(PathList(vec![path.clone()]))
        }
        Errno::INVAL | Errno::NOSYS => ApplyError::NoExchange,
        error => ApplyError::Write { path: quoted(path.as_path()), source: error.into() },
    }
}

impl Step {
    /// Does it. `STALE` if the host's file is not the expected one; it is in its slot then, and
    /// undoing the steps puts it back.
    fn run(
        &self,
        root: &OwnedFd,
        stage: &Stage,
        expected: Option<&Stat>,
    ) -> rustix::io::Result<()> {
        let (parent, name) = parent_of(root, self.path())?;
        match self {
            Step::Place { slot, .. } => {
                let flags = RenameFlags::NOREPLACE;
                fs::renameat_with(stage, slot.as_str(), parent, &name, flags)
            }
            Step::Take { slot, .. } => {
                let flags = RenameFlags::NOREPLACE;
                fs::renameat_with(parent, &name, stage, slot.as_str(), flags)?;
                check_taken(stage, slot, expected)
            }
            Step::Swap { slot, .. } => {
                let flags = RenameFlags::EXCHANGE;
                fs::renameat_with(stage, slot.as_str(), parent, &name, flags)?;
                check_taken(stage, slot, expected)
            }
            Step::RemoveDirectory { .. } => fs::unlinkat(parent, &name, AtFlags::REMOVEDIR),
            Step::ChangeMode { inode, to, .. } => {
                let handle = beneath::open_handle(&parent, &name)?;
                if fs::fstat(&handle)?.st_ino != *inode {
                    return Err(Errno::STALE);
                }
                beneath::chmod_handle(handle, *to)
            }
        }
    }
}

fn check_taken(stage: &Stage, slot: &str, expected: Option<&Stat>) -> rustix::io::Result<()> {
    match (stage.look(slot)?, expected) {
        (Some(taken), Some(expected)) if !beneath::unchanged(&taken, expected) => Err(Errno::STALE),
        (None, _) => Err(Errno::STALE),
        _ => Ok(()),
    }
}

struct Planner<'a> {
    changes: &'a Changes,
    root: &'a OwnedFd,
    stage: &'a Stage,
    slots: u64,
    modes: Vec<(Step, Option<Stat>)>,
}

impl Planner<'_> {
    fn slot(&mut self) -> String {
        self.slots += 1;
        self.slots.to_string()
    }

    /// What has to go before anything comes: deleted paths, and those that change their kind
    /// from or to a directory.
    fn going(&mut self, work: &Work<'_>) -> Option<(Step, Option<Stat>)> {
        let path = work.change.path.clone();
        let becomes_directory = matches!(work.change.after, Some(After::Directory { .. }));
        let is_deleted = work.change.after.is_none();
        match &work.current {
            Current::Directory(stat) if !becomes_directory => {
                let (mode, uid, gid) = (stat.st_mode & 0o7777, stat.st_uid, stat.st_gid);
                Some((Step::RemoveDirectory { path, mode, uid, gid }, None))
            }
            Current::File(stat) | Current::Symlink(stat, _) if is_deleted || becomes_directory => {
                Some((Step::Take { path, slot: self.slot() }, Some(*stat)))
            }
            _ => None,
        }
    }

    fn coming(&mut self, work: &Work<'_>) -> Result<Option<(Step, Option<Stat>)>, ApplyError> {
        let path = &work.change.path;
        match (&work.change.after, &work.current) {
            (None, _) => Ok(None),
            (Some(After::Directory { mode }), Current::Directory(stat)) => {
                // The host's own set-group-id and sticky bits stay.
                let mode = work.current.closed_mode(*mode);
                self.change_mode(path, stat, stat.st_mode & 0o7000 | mode);
                Ok(None)
            }
            (Some(After::Directory { mode }), _) => {
                self.new_directory(path, closed_mode(*mode, None)).map(Some)
            }
            (Some(After::File { mode, blob: None, size, .. }), Current::File(stat)) => {
                let mode = work.current.closed_mode(*mode);
                // Another name of the same file may be outside the workspace.
                if stat.st_nlink == 1 {
                    self.change_mode(path, stat, mode);
                    return Ok(None);
                }
                let slot = self.slot();
                let opened = beneath::open_file(self.root, path.as_path());
                let (mut file, _) = opened.map_err(|error| stage_error(path, error.into()))?;
                let owner = self.owner(path, Some(stat))?;
                self.stage
                    .add_file(&slot, &mut file, *size, mode, owner)
                    .map_err(|source| stage_error(path, source))?;
                self.move_in(path, slot, &work.current).map(Some)
            }
            (Some(After::File { .. } | After::Symlink { .. }), current) => {
                let replaced = match current {
                    Current::File(stat) | Current::Symlink(stat, _) => Some(stat),
                    Current::Nothing | Current::Directory(_) => None,
                };
                let slot = self.slot();
                let owner = self.owner(path, replaced)?;
                self.stage_content(work, &slot, owner)?;
                self.move_in(path, slot, current).map(Some)
            }
        }
    }

    fn stage_content(
        &self,
        work: &Work<'_>,
        slot: &str,
        owner: NewOwner,
    ) -> Result<(), ApplyError> {
        let path = &work.change.path;
        let damaged = || ApplyError::Damaged { path: quoted(path.as_path()) };
        match &work.change.after {
            Some(After::Symlink { target }) => self
                .stage
                .add_symlink(slot, &target.0, owner)
                .map_err(|source| stage_error(path, source)),
            Some(After::File { mode, size, sha256, blob: Some(blob) }) => {
                let mode = match &work.current {
                    current @ Current::File(_) => current.closed_mode(*mode),
                    _ => closed_mode(*mode, None),
                };
                let mut kept = File::open(self.changes.blob_path(*blob)).map_err(|_| damaged())?;
                let copied = self
                    .stage
                    .add_file(slot, &mut kept, *size, mode, owner)
                    .map_err(|source| stage_error(path, source))?;
                let intact =
                    copied.is_some_and(|found| found.size == *size && found.sha256 == *sha256);
                if intact { Ok(()) } else { Err(damaged()) }
            }
            _ => Err(damaged()),
        }
    }

    fn move_in(
        &self,
        path: &RelPath,
        slot: String,
        current: &Current,
    ) -> Result<(Step, Option<Stat>), ApplyError> {
        let inode = self.staged_inode(path, &slot)?;
        let path = path.clone();
        Ok(match current {
            Current::File(stat) | Current::Symlink(stat, _) => {
                (Step::Swap { path, slot, inode }, Some(*stat))
            }
            Current::Nothing | Current::Directory(_) => {
                (Step::Place { path, slot, inode, directory: false }, None)
            }
        })
    }

    fn new_directory(
        &mut self,
        path: &RelPath,
        mode: u32,
    ) -> Result<(Step, Option<Stat>), ApplyError> {
        let slot = self.slot();
        let owner = self.owner(path, None)?;
        self.stage.add_directory(&slot, mode, owner).map_err(|source| stage_error(path, source))?;
        let inode = self.staged_inode(path, &slot)?;
        let from = mode | 0o700;
        if from != mode {
            let step = Step::ChangeMode { path: path.clone(), inode, from, to: mode };
            self.modes.push((step, None));
        }
        Ok((Step::Place { path: path.clone(), slot, inode, directory: true }, None))
    }

    fn change_mode(&mut self, path: &RelPath, stat: &Stat, to: u32) {
        let from = stat.st_mode & 0o7777;
        let step = Step::ChangeMode { path: path.clone(), inode: stat.st_ino, from, to };
        self.modes.push((step, None));
    }

    fn owner(&self, path: &RelPath, replaced: Option<&Stat>) -> Result<NewOwner, ApplyError> {
        NewOwner::of(self.root, path, replaced).map_err(|source| stage_error(path, source))
    }

    fn staged_inode(&self, path: &RelPath, slot: &str) -> Result<u64, ApplyError> {
        beneath::stat(self.stage, Path::new(slot))
            .and_then(|stat| stat.ok_or(Errno::NOENT))
            .map(|stat| stat.st_ino)
            .map_err(|error| stage_error(path, error.into()))
    }
}
