//! Ringwall's own files: keys, policy, grants, approvals, records. No ring may see them, and no job
//! may write them.

use std::path::{Path, PathBuf};

use crate::config::Engine;
use crate::place::PlaceError;
use crate::policy_files::{SYSTEM_DIRECTORY, user_directories};

impl Engine {
    /// Where they lie, with links resolved: what a ring that shows the host's tree must cover.
    pub(crate) fn places_to_cover(&self) -> Vec<PathBuf> {
        let system = PathBuf::from(SYSTEM_DIRECTORY);
        let places = named_places(&self.home).chain([system]);
        places.filter_map(|place| place.canonicalize().ok()).collect()
    }

    /// A job that can write our records decides what `apply` writes and what `gc` removes; one that
    /// can write policy decides what it may.
    pub(crate) fn refuse_own_state(&self, workspace: &Path) -> Result<(), PlaceError> {
        match own_state_in(&self.home, workspace) {
            Some(state) => Err(PlaceError::HoldsState { workspace: workspace.to_owned(), state }),
            None => Ok(()),
        }
    }

    /// A job that can read our keys can sign.
    pub(crate) fn refuse_to_show_own(&self, path: &Path) -> Result<(), PlaceError> {
        let system = PathBuf::from(SYSTEM_DIRECTORY);
        let policy = path.starts_with(resolved(&system)).then_some(system);
        match overlapping(path, own_places(&self.home)).or(policy) {
            Some(state) => Err(PlaceError::ShowsState { path: path.to_owned(), state }),
            None => Ok(()),
        }
    }
}

/// The part of Ringwall's own state that a workspace would contain or lie in, for an engine with this
/// home.
pub fn own_state_in(home: &Path, workspace: &Path) -> Option<PathBuf> {
    let system = Path::new(SYSTEM_DIRECTORY).to_owned();
    overlapping(workspace, own_places(home).chain([system]))
}

/// The system's policy, relative to a shown directory that holds it: it is covered there.
pub(crate) fn system_policy_in(path: &Path) -> Option<PathBuf> {
    let system = Path::new(SYSTEM_DIRECTORY).canonicalize().ok()?;
    system.strip_prefix(path).ok().map(Path::to_owned)
}

/// Also those that are not there yet.
fn own_places(home: &Path) -> impl Iterator<Item = PathBuf> {
    named_places(home).map(|place| resolved(&place))
}

fn named_places(home: &Path) -> impl Iterator<Item = PathBuf> {
    std::iter::once(home.to_owned()).chain(user_directories())
}

fn overlapping(path: &Path, own: impl IntoIterator<Item = PathBuf>) -> Option<PathBuf> {
    own.into_iter().find(|own| own.starts_with(path) || path.starts_with(own))
}

/// The longest part that exists without links, and the rest as it is written. A missing directory
/// must not be made there either.
fn resolved(path: &Path) -> PathBuf {
    for above in path.ancestors() {
        if let Ok(real) = above.canonicalize() {
            return path.strip_prefix(above).map_or_else(|_| real.clone(), |rest| real.join(rest));
        }
    }
    path.to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_there_yet_is_found_through_links_above_it() {
        let top = tempfile::tempdir().unwrap();
        let real = top.path().canonicalize().unwrap().join("real");
        std::fs::create_dir(&real).unwrap();
        std::os::unix::fs::symlink(&real, top.path().join("link")).unwrap();
        assert_eq!(resolved(&top.path().join("link/a/b")), real.join("a/b"));
        assert_eq!(resolved(&top.path().join("link")), real);
    }
}
