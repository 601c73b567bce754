//! Selects the changes that the caller named.
//!
//! Invariant: this is the only place that says so. Policy, approval and writing all take a [`Selection`], so
//! nothing is written that was not decided on.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use super::ApplyError;
use ringwall_spec::ChangeSummary;

use crate::manifest::{After, Change, Changes, summary_of};
use crate::path::RelPath;
use crate::show::quoted;

/// Paths as they were given: relative to the workspace, or absolute.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Wanted {
    /// Only these paths, and all below them; everything when it is empty.
    pub only: Vec<PathBuf>,
    /// Paths that are left out, with all below them.
    pub except: Vec<PathBuf>,
}

/// The changes that are to be written, and no others.
#[derive(Debug)]
pub struct Selection<'a> {
    pub(super) changes: &'a Changes,
    /// Where they are written to.
    pub(super) workspace: PathBuf,
    pub(super) entries: Vec<&'a Change>,
}

impl Changes {
    /// The changes that `wanted` means, with the new directories that they need.
    pub fn select(&self, wanted: &Wanted) -> Result<Selection<'_>, ApplyError> {
        let workspace = self.workspace();
        let entries = select(self, &workspace, &wanted.only, &wanted.except)?;
        Ok(Selection { changes: self, workspace, entries })
    }
}

impl Selection<'_> {
    /// In order of path.
    pub fn paths(&self) -> impl Iterator<Item = &Path> + Send {
        self.entries.iter().map(|change| change.path.as_path())
    }

    pub fn summary(&self) -> ChangeSummary {
        summary_of(self.entries.iter().copied())
    }
}

/// The changes at and below `only` (all when empty) but not `except`, in order of path, with the
/// new directories that they need.
fn select<'a>(
    changes: &'a Changes,
    workspace: &Path,
    only: &[PathBuf],
    except: &[PathBuf],
) -> Result<Vec<&'a Change>, ApplyError> {
    let only_inside = inside(workspace, only)?;
    let except = inside(workspace, except)?;
    for wanted in &only_inside {
        if !changes.entries().iter().any(|change| change.path.is_within(wanted.as_path())) {
            return Err(ApplyError::NotChanged { path: quoted(wanted.as_path()) });
        }
    }
    let within = |change: &Change, paths: &[RelPath]| {
        paths.iter().any(|path| change.path.is_within(path.as_path()))
    };
    // Naming the workspace itself means all of it.
    let all = only.len() > only_inside.len() || only.is_empty();
    let chosen: BTreeSet<&RelPath> = changes
        .entries()
        .iter()
        .filter(|change| (all || within(change, &only_inside)) && !within(change, &except))
        .map(|change| &change.path)
        .collect();
    let needed: BTreeSet<&Path> = changes
        .entries()
        .iter()
        .filter(|change| chosen.contains(&change.path) && change.after.is_some())
        .flat_map(|change| change.path.ancestors())
        .collect();
    let selected = changes.entries().iter().filter(|change| {
        let is_needed = matches!(change.after, Some(After::Directory { .. }))
            && change.kind() != crate::manifest::ChangeKind::ModeChanged
            && needed.contains(change.path.as_path());
        chosen.contains(&change.path) || is_needed
    });
    Ok(selected.collect())
}

/// Paths as a person gives them, relative to the workspace or absolute, as paths inside it. The
/// workspace itself is left out.
pub(super) fn inside(workspace: &Path, paths: &[PathBuf]) -> Result<Vec<RelPath>, ApplyError> {
    let mut inside = Vec::with_capacity(paths.len());
    for path in paths {
        let relative = path.strip_prefix(workspace).unwrap_or(path);
        // Also takes `./a` and `a/`, which a shell completes to.
        let tidy: PathBuf = relative.components().filter(|part| part.as_os_str() != ".").collect();
        if tidy.as_os_str().is_empty() && !path.as_os_str().is_empty() {
            continue;
        }
        let bad = |_| ApplyError::BadPath { path: quoted(path) };
        inside.push(RelPath::new(tidy).map_err(bad)?);
    }
    Ok(inside)
}
