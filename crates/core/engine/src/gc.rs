//! Removes what crashed runs left behind.

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::path::Path;

use ringwall_linux::cgroup::CgroupError;
use ringwall_safekeeping::{Directory, Hold, Lock, Trust, lock};
use ringwall_spec::SandboxId;
use ringwall_workspace::Recovered;

use crate::config::Engine;
use crate::record::{self, Record, RecordState};
use crate::remove_tree::remove_tree;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, serde::Serialize)]
pub struct GcReport {
    /// Abandoned sandboxes that were cleaned up after.
    pub sandboxes: u64,
    pub cgroups: u64,
    /// Interrupted `apply`s that were finished or undone.
    pub recovered: u64,
    /// Temporary files and unused parts of the image store.
    pub image_leftovers: u64,
    /// Guests kept ready to be copied whose image is gone, or that no run used for long.
    pub templates: u64,
    /// Snapshots that were never finished.
    pub snapshots: u64,
}

#[derive(Debug, thiserror::Error)]
pub enum GcError {
    #[error("{path} could not be cleaned up")]
    Io { path: String, source: io::Error },
    #[error(transparent)]
    Cgroup(#[from] CgroupError),
    #[error(transparent)]
    Recover(#[from] ringwall_workspace::RecoverError),
    #[error(transparent)]
    Store(#[from] ringwall_image::StoreError),
}

/// Held shared while a record comes into being and exclusively while leftovers are looked for, so
/// that a record half made is never taken for a leftover.
#[derive(Debug)]
pub(crate) struct CreationLock(#[expect(dead_code, reason = "held until it is dropped")] Lock);

impl CreationLock {
    pub(crate) fn shared(sandboxes: &Path) -> io::Result<CreationLock> {
        Self::take(sandboxes, Hold::Shared)
    }

    pub(crate) fn exclusive(sandboxes: &Path) -> io::Result<CreationLock> {
        Self::take(sandboxes, Hold::Alone)
    }

    fn take(sandboxes: &Path, how: Hold) -> io::Result<CreationLock> {
        Ok(CreationLock(lock(&sandboxes.join(".creation"), how)?))
    }
}

impl Engine {
    /// Cleans up after every sandbox whose owner is gone. One that resists does not keep the
    /// others from being cleaned up after; the first failure is told.
    pub fn gc(&self) -> Result<GcReport, GcError> {
        let mut report = GcReport::default();
        let swept = self.sweep(&mut report);
        // Without the lock: a pull may keep the store busy, and `gc` need not wait for that.
        let freed = self.images()?.gc();
        swept?;
        let freed = freed?;
        let leftovers = freed.layers + freed.root_images + freed.blobs + freed.temporary;
        report.image_leftovers = u64::try_from(leftovers).unwrap_or(u64::MAX);
        report.templates = crate::vm::sweep_templates(&self.home);
        report.snapshots = crate::vm::sweep_snapshots(&self.home);
        for directory in [self.home.clone(), self.home.join("secrets")] {
            // What cannot be removed now is removed the next time.
            let _ = Directory::open(&directory, Trust::Own)
                .and_then(|directory| directory.remove_leftovers());
        }
        Ok(report)
    }

    fn sweep(&self, report: &mut GcReport) -> Result<(), GcError> {
        let sandboxes = self.home.join("sandboxes");
        let wrong = |source| GcError::Io { path: sandboxes.display().to_string(), source };
        let alone = CreationLock::exclusive(&sandboxes).map_err(wrong)?;
        let mut outcome = Ok(());
        // A sandbox has a record, a directory or both: each must be found, and none twice.
        let mut dirs = BTreeSet::new();
        for entry in fs::read_dir(&sandboxes).map_err(wrong)? {
            let path = entry.map_err(wrong)?.path();
            if path.extension().is_some_and(|extension| extension == "json") {
                dirs.insert(path.with_extension(""));
            } else if path.is_dir() {
                dirs.insert(path);
            }
        }
        for dir in dirs.iter().filter(|dir| !record::is_held(dir)) {
            outcome = outcome.and(self.look_after(dir, report));
        }
        outcome = outcome.and(self.sweep_names(&alone).map_err(wrong));
        self.cgroups.remove_empty_parent();
        outcome
    }

    /// One sandbox without an owner process: abandoned, or finished and kept.
    fn look_after(&self, dir: &Path, report: &mut GcReport) -> Result<(), GcError> {
        let record = Record::load(dir);
        let recovered = record.as_ref().map_or(Ok(false), recover_apply);
        let finished = record.as_ref().is_ok_and(|record| record.state == RecordState::Finished);
        if let (true, Ok(record)) = (finished, &record) {
            remove_handed_over(record)?;
        }
        if !finished {
            let had_group = self.has_group(dir);
            self.clean_up(dir)?;
            report.cgroups += u64::from(had_group);
            report.sandboxes += 1;
        }
        report.recovered += u64::from(recovered?);
        Ok(())
    }

    /// Kills the processes that one sandbox left and removes its traces.
    pub(crate) fn clean_up(&self, dir: &Path) -> Result<(), GcError> {
        if let Some(id) = id_of(dir)
            && self.cgroups.means().is_some()
        {
            self.cgroups.remove_by_name(id.as_str())?;
        }
        record::delete_at(dir)
            .map_err(|source| GcError::Io { path: dir.display().to_string(), source })
    }

    fn has_group(&self, dir: &Path) -> bool {
        id_of(dir).is_some_and(|id| self.cgroups.find(id.as_str()).is_some())
    }
}

/// Removes the files that a guest handed over. They are not needed once the changes were collected.
fn remove_handed_over(record: &Record) -> Result<(), GcError> {
    let upper = record.upper_dir();
    match remove_tree(&upper) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        other => other.map_err(|source| GcError::Io { path: upper.display().to_string(), source }),
    }
}

/// Finishes or undoes an `apply` that was interrupted.
fn recover_apply(record: &Record) -> Result<bool, GcError> {
    let changes = record.changes_dir();
    if !changes.is_dir() {
        return Ok(false);
    }
    Ok(ringwall_workspace::recover(&changes)? != Recovered::Nothing)
}

/// Only a well-formed id may name a control group to remove.
fn id_of(dir: &Path) -> Option<SandboxId> {
    dir.file_name()?.to_str()?.parse().ok()
}
