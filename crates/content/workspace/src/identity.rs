//! Which directory a sandbox saw as its workspace, so that its changes go to no other.
//!
//! A path does not say that: a process that can write to a directory above the workspace can rename it and
//! put a link, or another directory, in its place.

use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;

use rustix::fs::fstat;
use rustix::io::{Errno, Result};
use serde::{Deserialize, Serialize};

use crate::beneath;

/// The kernel gives some file systems another device number at every boot.
const BOOT_ID: &str = "/proc/sys/kernel/random/boot_id";

/// A directory, whatever its path.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct WorkspaceId {
    inode: u64,
    device: u64,
    /// For which boot of the machine the device number counts.
    boot: String,
}

impl WorkspaceId {
    pub(crate) fn of(dir: impl AsFd) -> Result<Self> {
        let stat = fstat(dir)?;
        Ok(WorkspaceId { inode: stat.st_ino, device: stat.st_dev, boot: boot() })
    }

    /// Opens the directory at `path`, which must be this one. `ESTALE` if another is there, or a
    /// link is on the way.
    pub(crate) fn open(&self, path: &Path) -> Result<OwnedFd> {
        let dir = beneath::open_root(path).map_err(|error| match error {
            Errno::LOOP => Errno::STALE,
            error => error,
        })?;
        let found = WorkspaceId::of(&dir)?;
        let same_device = self.device == found.device || self.boot != found.boot;
        if self.inode == found.inode && same_device { Ok(dir) } else { Err(Errno::STALE) }
    }
}

fn boot() -> String {
    std::fs::read_to_string(BOOT_ID).map(|id| id.trim().to_owned()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn another_directory_at_the_path_or_a_link_on_the_way_is_not_the_workspace() {
        let top = tempfile::tempdir().unwrap();
        let top = top.path().canonicalize().unwrap();
        let path = top.join("above/workspace");
        std::fs::create_dir_all(&path).unwrap();
        let id = WorkspaceId::of(beneath::open_root(&path).unwrap()).unwrap();
        assert!(id.open(&path).is_ok());
        std::fs::rename(top.join("above"), top.join("moved")).unwrap();
        assert_eq!(id.open(&path).unwrap_err(), Errno::NOENT);
        symlink("moved", top.join("above")).unwrap();
        assert_eq!(id.open(&path).unwrap_err(), Errno::STALE);
        std::fs::remove_file(top.join("above")).unwrap();
        std::fs::create_dir_all(&path).unwrap();
        assert_eq!(id.open(&path).unwrap_err(), Errno::STALE);
    }

    #[test]
    fn after_another_boot_the_device_number_is_not_compared() {
        let top = tempfile::tempdir().unwrap();
        let path = top.path().canonicalize().unwrap();
        let now = WorkspaceId::of(beneath::open_root(&path).unwrap()).unwrap();
        let other_device = WorkspaceId { device: now.device + 1, ..now.clone() };
        assert_eq!(other_device.open(&path).unwrap_err(), Errno::STALE);
        let other_boot = WorkspaceId { boot: "another".to_owned(), ..other_device };
        assert!(other_boot.open(&path).is_ok());
        let other_inode = WorkspaceId { inode: now.inode + 1, ..other_boot };
        assert_eq!(other_inode.open(&path).unwrap_err(), Errno::STALE);
    }
}
