//! Where a job may write in its workspace.

use std::path::{Component, Path, PathBuf};

use serde::{Deserialize, Serialize};

/// Paths are relative to the workspace; the empty one is all of it. A path in no list cannot be
/// written, and an exception counts more than the path that contains it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct WriteRights {
    pub writable: Vec<PathBuf>,
    #[serde(default)]
    pub read_only: Vec<PathBuf>,
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RightsError {
    #[error("{0:?} is no path inside a workspace; write it relative to the workspace, without ..")]
    Path(PathBuf),
    #[error("{0} paths are too many for one change of rights; name at most {max} directories", max = WriteRights::MAX_PATHS)]
    TooMany(usize),
}

impl WriteRights {
    /// Each costs a mount.
    pub const MAX_PATHS: usize = 64;

    pub fn everywhere() -> WriteRights {
        WriteRights { writable: vec![PathBuf::new()], read_only: Vec::new() }
    }

    pub fn nowhere() -> WriteRights {
        WriteRights { writable: Vec::new(), read_only: Vec::new() }
    }

    pub fn validate(&self) -> Result<(), RightsError> {
        let all = || self.writable.iter().chain(&self.read_only);
        let count = all().count();
        if count > Self::MAX_PATHS {
            return Err(RightsError::TooMany(count));
        }
        let inside =
            |path: &PathBuf| path.components().all(|part| matches!(part, Component::Normal(_)));
        all().find(|path| !inside(path)).map_or(Ok(()), |path| Err(RightsError::Path(path.clone())))
    }

    /// Whether all of the workspace can be written, but for exceptions.
    pub fn is_everywhere(&self) -> bool {
        self.writable.iter().any(|path| path.as_os_str().is_empty())
    }

    /// What both allow.
    #[must_use]
    pub fn and(&self, other: &WriteRights) -> WriteRights {
        let mut writable = Vec::new();
        for one in &self.writable {
            for two in &other.writable {
                let narrower = match (one.starts_with(two), two.starts_with(one)) {
                    (true, _) => one,
                    (_, true) => two,
                    _ => continue,
                };
                if !writable.contains(narrower) {
                    writable.push(narrower.clone());
                }
            }
        }
        let mut read_only = self.read_only.clone();
        read_only.extend(other.read_only.iter().filter(|it| !self.read_only.contains(it)).cloned());
        WriteRights { writable, read_only }
    }

    /// Whether this allows all that `other` allows.
    pub fn covers(&self, other: &WriteRights) -> bool {
        let within = |path: &Path, list: &[PathBuf]| list.iter().any(|top| path.starts_with(top));
        let writes = other.writable.iter().filter(|path| !within(path, &other.read_only));
        let takes_from = |exception: &PathBuf| {
            let touches =
                |path: &PathBuf| exception.starts_with(path) || path.starts_with(exception);
            !within(exception, &other.read_only) && other.writable.iter().any(touches)
        };
        writes.into_iter().all(|path| within(path, &self.writable))
            && !self.read_only.iter().any(takes_from)
    }

    pub fn allows(&self, path: &Path) -> bool {
        let covered = |list: &[PathBuf]| list.iter().any(|above| path.starts_with(above));
        covered(&self.writable) && !covered(&self.read_only)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rights(writable: &[&str], read_only: &[&str]) -> WriteRights {
        let paths = |list: &[&str]| list.iter().map(PathBuf::from).collect();
        WriteRights { writable: paths(writable), read_only: paths(read_only) }
    }

    #[test]
    fn only_what_is_named_can_be_written() {
        let docs = rights(&["docs"], &["docs/api"]);
        assert!(docs.allows(Path::new("docs/plan.md")));
        assert!(docs.allows(Path::new("docs")));
        assert!(!docs.allows(Path::new("docs/api/index.md")));
        assert!(!docs.allows(Path::new("docs-of-others/plan.md")));
        assert!(!docs.allows(Path::new("src/main.rs")));
        assert!(WriteRights::everywhere().allows(Path::new("src/main.rs")));
        assert!(!WriteRights::nowhere().allows(Path::new("src/main.rs")));
    }

    #[test]
    fn two_together_allow_what_both_allow() {
        let one = rights(&["docs", "src"], &["src/gen"]);
        let two = rights(&["docs/api", "", "tests"], &["docs/api/old"]);
        let both = one.and(&two);
        for path in ["docs/a", "docs/api/b", "docs/api/old/c", "src/d", "src/gen/e", "tests/f", "g"]
        {
            let path = Path::new(path);
            assert_eq!(both.allows(path), one.allows(path) && two.allows(path), "{path:?}");
        }
        assert_eq!(WriteRights::everywhere().and(&one).writable, one.writable);
        assert!(!WriteRights::nowhere().and(&one).allows(Path::new("docs/a")));
    }

    #[test]
    fn rights_cover_what_they_allow_at_least() {
        let all = WriteRights::everywhere();
        let docs = rights(&["docs"], &["docs/api"]);
        for (wide, narrow) in [
            (rights(&[""], &[]), docs.clone()),
            (rights(&["docs", "src"], &["docs/api", "src/gen"]), docs.clone()),
            (rights(&["docs"], &["docs/api/old"]), docs.clone()),
            (all.clone(), rights(&[], &[])),
        ] {
            assert!(wide.covers(&narrow) && wide.covers(&wide), "{wide:?} {narrow:?}");
        }
        assert!(docs.covers(&docs.and(&all)) && docs.and(&all).covers(&docs));
        for (narrow, wide) in [
            (docs.clone(), all.clone()),
            (rights(&["docs"], &["docs/api", "docs/b"]), docs.clone()),
            (rights(&["docs"], &["docs"]), docs.clone()),
            (rights(&["docs/x"], &[]), docs),
            (WriteRights::nowhere(), all),
        ] {
            assert!(!narrow.covers(&wide), "{narrow:?} {wide:?}");
        }
    }

    #[test]
    fn a_path_that_could_lead_out_is_refused() {
        for bad in ["../x", "/etc", "a/../../b", "."] {
            let refused = rights(&[bad], &[]).validate();
            assert_eq!(refused, Err(RightsError::Path(bad.into())), "{bad}");
        }
        assert_eq!(rights(&["a/b", ""], &["c"]).validate(), Ok(()));
        let many = vec![PathBuf::from("x"); 65];
        let many = WriteRights { writable: many, read_only: Vec::new() };
        assert_eq!(many.validate(), Err(RightsError::TooMany(65)));
    }
}
