//! The entries of an upper directory that is no overlay's but began as a copy of the workspace.
//!
//! An entry with the same inode and the same time of change is unchanged. The kernel alone sets that time,
//! so no job can pass off a changed file as an old one.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};

use rustix::fs::Stat;

use crate::path::RelPath;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Seen {
    inode: u64,
    changed: (i64, u64),
}

/// The entries of a copy, as they were before the job.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Copied {
    /// By directory, then by name. The workspace itself is the empty path.
    entries: BTreeMap<PathBuf, BTreeMap<OsString, Seen>>,
}

impl Copied {
    /// Notes an entry: its path in the workspace, its inode, and when that was last changed.
    pub fn note(&mut self, path: &Path, inode: u64, changed: (i64, u64)) {
        if let (Some(parent), Some(name)) = (path.parent(), path.file_name()) {
            let names = self.entries.entry(parent.to_owned()).or_default();
            names.insert(name.to_owned(), Seen { inode, changed });
        }
    }

    fn seen(&self, path: &RelPath) -> Option<Seen> {
        let path = path.as_path();
        self.entries.get(path.parent()?)?.get(path.file_name()?).copied()
    }

    pub(super) fn had(&self, path: &RelPath) -> bool {
        self.seen(path).is_some()
    }

    /// Whether it is the copied entry; a directory may have other entries by now.
    pub(super) fn is_same(&self, path: &RelPath, stat: &Stat) -> bool {
        self.seen(path).is_some_and(|seen| seen.inode == stat.st_ino)
    }

    pub(super) fn is_untouched(&self, path: &RelPath, stat: &Stat) -> bool {
        let now = Seen { inode: stat.st_ino, changed: (stat.st_ctime, stat.st_ctime_nsec) };
        self.seen(path) == Some(now)
    }

    /// The names that were copied into a directory.
    pub(super) fn names(&self, directory: Option<&RelPath>) -> impl Iterator<Item = &OsStr> {
        let directory = directory.map_or(Path::new(""), RelPath::as_path);
        self.entries.get(directory).into_iter().flatten().map(|(name, _)| name.as_os_str())
    }
}
