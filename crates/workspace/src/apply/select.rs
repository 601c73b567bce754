//! Which changes a person asked for.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use super::ApplyError;
use crate::manifest::{After, Change, Changes};
use crate::path::RelPath;
use crate::show::quoted;

/// The changes at and below `only` (all when empty) but not `except`, in order of path, with the
/// new directories that they need.
pub(super) fn select<'a>(
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
