//! Whose files above a workspace count: another user can put some into a directory that all share.

use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// The caller, root, and the owner of a workspace.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Owners([u32; 3]);

impl Owners {
    pub(crate) fn of(workspace: &Path) -> Owners {
        let owner = workspace.metadata().map_or(0, |found| found.uid());
        Owners([0, rustix::process::geteuid().as_raw(), owner])
    }

    /// Whether the file or link at this path, and not the target of the link, belongs to one of them.
    pub(crate) fn own(&self, path: &Path) -> bool {
        path.symlink_metadata().is_ok_and(|found| self.0.contains(&found.uid()))
    }
}
