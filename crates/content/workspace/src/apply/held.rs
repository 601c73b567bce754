//! The workspace that is written to, for what has to be judged by paths.
//!
//! Writing goes by a descriptor. Judging by the workspace's path would look it up again, and a process
//! that can rename a directory above could have other files judged than are written. So files in the
//! workspace are reached through the descriptor, and its path is where the kernel says that the
//! descriptor is.

use std::os::fd::{AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};

use super::ApplyError;
use crate::show::quoted;

/// A workspace that is held open.
#[derive(Debug)]
pub(super) struct Held<'r> {
    root: &'r OwnedFd,
    path: PathBuf,
}

impl<'r> Held<'r> {
    /// The directory `root`, which is at `path`, or nothing is judged.
    pub(super) fn new(root: &'r OwnedFd, path: &Path) -> Result<Self, ApplyError> {
        let path = path
            .canonicalize()
            .map_err(|source| ApplyError::Workspace { path: quoted(path), source })?;
        let held = Held { root, path };
        held.is_still_there()?;
        Ok(held)
    }

    pub(super) fn root(&self) -> &'r OwnedFd {
        self.root
    }

    /// Without links; names are compared with it, and nothing in the workspace is opened by it.
    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// By what `path` is opened: through the descriptor where it is in the workspace.
    pub(super) fn reach(&self, path: &Path) -> PathBuf {
        match path.strip_prefix(&self.path) {
            Ok(inside) => self.link().join(inside),
            Err(_) => path.to_owned(),
        }
    }

    /// Fails if the workspace has been moved. Earlier judgements count only if it has not.
    pub(super) fn is_still_there(&self) -> Result<(), ApplyError> {
        let at = std::fs::read_link(self.link())
            .map_err(|source| ApplyError::Workspace { path: quoted(&self.path), source })?;
        if at == self.path {
            return Ok(());
        }
        Err(ApplyError::OtherWorkspace { path: quoted(&self.path) })
    }

    fn link(&self) -> PathBuf {
        PathBuf::from(format!("/proc/self/fd/{}", self.root.as_raw_fd()))
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;

    use super::*;
    use crate::beneath;

    #[test]
    fn what_is_judged_is_what_is_held_whatever_comes_to_its_path() {
        let top = tempfile::tempdir().unwrap();
        let top = top.path().canonicalize().unwrap();
        let path = top.join("above/workspace");
        fs::create_dir_all(&path).unwrap();
        fs::write(path.join("config"), "held").unwrap();
        let root = beneath::open_root(&path).unwrap();
        let held = Held::new(&root, &path).unwrap();
        fs::rename(top.join("above"), top.join("moved")).unwrap();
        fs::create_dir_all(&path).unwrap();
        fs::write(path.join("config"), "another").unwrap();
        assert_eq!(fs::read(held.reach(&path.join("config"))).unwrap(), b"held");
        assert!(matches!(held.is_still_there(), Err(ApplyError::OtherWorkspace { .. })));
        assert!(matches!(Held::new(&root, &path), Err(ApplyError::OtherWorkspace { .. })));
        // Led back to the same place, but by a link: that could be led elsewhere again.
        fs::remove_dir_all(top.join("above")).unwrap();
        symlink("moved", top.join("above")).unwrap();
        assert!(held.is_still_there().is_err());
        fs::remove_file(top.join("above")).unwrap();
        fs::rename(top.join("moved"), top.join("above")).unwrap();
        held.is_still_there().unwrap();
        let outside = top.join("elsewhere");
        assert_eq!(held.reach(&outside), outside);
    }
}
