//! Writes changes back to the host's workspace: all of them or none.
//!
//! The order of things: what may not be written is refused; every target is compared with what
//! it was when the changes were collected; all new content is staged on the same file system; a
//! journal is written; then everything is moved into place by atomic renames, each of which can
//! be undone. An error on the way undoes the finished moves; after a crash [`recover`] does.
//!
//! New files get new inodes: extended attributes, ACLs and other hard links of a replaced file
//! are not carried over. A sandbox that is still running must not be applied over.

mod held;
mod journal;
mod links;
mod protect;
mod recover;
mod repository;
mod select;
mod stage;
mod steps;
mod survey;
mod verify;

#[cfg(test)]
mod tests;

use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use ringwall_safekeeping::{Hold, Lock, Wait};
use rustix::io::Errno;

use crate::manifest::{Change, Changes};
use crate::nature::RankedList;
use crate::path::RelPath;
use crate::show::{PathList, quoted};
use held::Held;
use journal::Journal;
use stage::Stage;
use survey::Survey;

pub use protect::is_protected;
pub use recover::{RecoverError, Recovered, recover};
pub use select::{Selection, Wanted};

/// The staging directory in a workspace is called this and a random suffix.
pub(crate) const STAGING_PREFIX: &str = ".ringwall-apply-";

#[derive(Debug, Clone, Default)]
pub struct ApplyOptions {
    /// Protected paths that may be written: each allows itself and, if it is a protected
    /// directory, everything below.
    pub allow_protected: Vec<PathBuf>,
    /// Overwrite files that the host changed in the meantime.
    pub force: bool,
    /// Take only plain changes; others must be named in `allow_protected`, or a directory above.
    pub strict: bool,
}

/// The result of an apply.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Applied {
    /// Written, in order of path.
    pub applied: Vec<RelPath>,
    /// The host already had exactly this.
    pub already: Vec<RelPath>,
}

#[derive(Debug, thiserror::Error)]
pub enum ApplyError {
    #[error("the workspace {path} cannot be opened")]
    Workspace { path: String, source: io::Error },
    #[error(
        "nothing was applied: {path} is not the directory that the sandbox saw; it or a directory above it was moved or replaced since, so put it back or run the job again"
    )]
    OtherWorkspace { path: String },
    #[error("another apply is at work in {path}; try again when it is done")]
    Busy { path: String },
    #[error("{path} is not a path inside the workspace")]
    BadPath { path: String },
    #[error("the sandbox changed nothing at {path}; see `ringwall diff`")]
    NotChanged { path: String },
    #[error(
        "nothing was applied: {0} is protected, as programs on the host trust it; review the change and name it with --allow-protected"
    )]
    Protected(PathList),
    #[error(
        "nothing was applied: the configuration of a repository on the host names {0}; review the change and name it with --allow-protected"
    )]
    NamedByRepository(PathList),
    #[error(
        "nothing was applied: the repository configuration {path} cannot be read, so it is not known which files it names"
    )]
    Repository { path: String, source: io::Error },
    #[error(
        "nothing was applied: --strict takes plain changes only, and these are not: {0}; review them, then name each with --allow-protected or leave it out with --except"
    )]
    NotPlain(RankedList),
    #[error(
        "nothing was applied: the links of the workspace, which may lead from a protected path to a changed file, cannot be read at {path}"
    )]
    Links { path: String, source: io::Error },
    #[error(
        "nothing was applied: the workspace has more than {max} files and directories, too many to search for links at protected paths; use a smaller directory as workspace"
    )]
    TooManyEntries { max: u64 },
    #[error(
        "nothing was applied: {0} would be a link out of the workspace; apply the other paths by name"
    )]
    LinksOutside(PathList),
    #[error(
        "nothing was applied: {0} changed on the host since the run; see `ringwall diff`, then apply the other paths by name or use --force"
    )]
    Conflicts(PathList),
    #[error("nothing was applied: the kept content of {path} is damaged; run the job again")]
    Damaged { path: String },
    #[error("nothing was applied: {path} cannot be prepared")]
    Stage { path: String, source: io::Error },
    #[error(
        "nothing was applied: the file system of the workspace cannot exchange files atomically"
    )]
    NoExchange,
    #[error("nothing was applied: {path} cannot be written")]
    Write { path: String, source: io::Error },
    #[error(
        "{path} could not be written, and {left} could not be put back; the former files are in {staging}"
    )]
    HalfDone { path: String, left: PathList, staging: String },
    #[error("an earlier apply was interrupted and cannot be undone")]
    Recover(#[from] RecoverError),
}

/// Writes the selected changes to their workspace.
pub fn apply(selection: &Selection<'_>, options: &ApplyOptions) -> Result<Applied, ApplyError> {
    let Selection { changes, workspace, entries } = selection;
    recover(&changes.dir)?;
    let root = changes.open_workspace(workspace).map_err(|error| match error {
        Errno::STALE => ApplyError::OtherWorkspace { path: quoted(workspace) },
        error => ApplyError::Workspace { path: quoted(workspace), source: error.into() },
    })?;
    let _lock = lock(&root, workspace)?;
    let held = Held::new(&root, workspace)?;
    refuse(changes, entries, &held, options)?;
    held.is_still_there()?;
    let verified = verify::verify(&root, entries, options.force)?;
    if verified.work.is_empty() {
        return Ok(Applied { applied: Vec::new(), already: verified.already });
    }
    // Named in the journal before it is made: after a crash it can be found.
    let name = Stage::new_name()?;
    let mut journal = Journal::begin(&changes.dir, workspace, &root, &name)
        .map_err(|source| ApplyError::Stage { path: changes.dir.display().to_string(), source })?;
    let stage = Stage::create(&root, &name).inspect_err(|_| journal.remove())?;
    let written = steps::plan(changes, &root, &stage, &verified)
        .and_then(|plan| steps::commit(plan, &root, &stage, &mut journal));
    match written {
        // The staging directory holds what could not be put back; the journal says where to.
        Err(error @ ApplyError::HalfDone { .. }) => return Err(error),
        Err(error) => {
            stage.remove(&root);
            journal.remove();
            return Err(error);
        }
        Ok(()) => {
            stage.remove(&root);
            journal.remove();
        }
    }
    let applied = verified.work.iter().map(|work| work.change.path.clone()).collect();
    Ok(Applied { applied, already: verified.already })
}

fn refuse(
    changes: &Changes,
    selected: &[&Change],
    held: &Held<'_>,
    options: &ApplyOptions,
) -> Result<(), ApplyError> {
    let allowed = select::inside(&changes.workspace(), &options.allow_protected)?;
    let names = protect::Names::of(held.path());
    let survey = Survey::of(held, names.hidden())?;
    let protected = protect::protected(selected, held, (&names, &survey), &allowed);
    if !protected.is_empty() {
        return Err(ApplyError::Protected(PathList(protected)));
    }
    let named = repository::named(selected, held, &survey, &allowed)?;
    if !named.is_empty() {
        return Err(ApplyError::NamedByRepository(PathList(named)));
    }
    if options.strict {
        let is_unasked = |change: &&&Change| {
            !allowed.iter().any(|allowed| change.path.is_within(allowed.as_path()))
        };
        let ranked = changes.ranked(selected.iter().filter(is_unasked).copied());
        if !ranked.is_empty() {
            return Err(ApplyError::NotPlain(ranked));
        }
    }
    let outside = protect::links_outside(selected, held.root());
    if !outside.is_empty() {
        return Err(ApplyError::LinksOutside(PathList(outside)));
    }
    Ok(())
}

/// Locks a workspace, so that no other process applies to it.
fn lock<'r>(root: &'r OwnedFd, workspace: &Path) -> Result<Lock<&'r OwnedFd>, ApplyError> {
    match Lock::take(root, Hold::Alone, Wait::Never) {
        Ok(held) => held.ok_or_else(|| ApplyError::Busy { path: quoted(workspace) }),
        Err(source) => Err(ApplyError::Workspace { path: quoted(workspace), source }),
    }
}
