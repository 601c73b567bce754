//! What a walk through the workspace finds that decides what may be written: links, and repositories.

use std::os::fd::OwnedFd;
use std::path::PathBuf;

use rustix::fs::FileType;

use super::ApplyError;
use super::held::Held;
use crate::beneath;
use crate::hide::HideRules;
use crate::path::RelPath;
use crate::show::quoted;

/// Names of directories in which a repository keeps its own files, and of the file that names one.
const OF_REPOSITORIES: [&str; 2] = [".git", ".hg"];

#[derive(Debug, Default)]
pub(super) struct Survey {
    pub(super) links: Vec<RelPath>,
    /// The directories in which repositories have their files checked out. Empty is the workspace.
    pub(super) repositories: Vec<PathBuf>,
}

impl Survey {
    /// Looks through the whole workspace, but for directories that are not searched for secrets either.
    pub(super) fn of(held: &Held<'_>, hidden: &HideRules) -> Result<Self, ApplyError> {
        let root = held.root();
        let max = hidden.max_entries;
        let mut left = max;
        let mut found = Survey::default();
        let mut pending: Vec<Option<RelPath>> = vec![None];
        while let Some(directory) = pending.pop() {
            let opened = beneath::open_dir(root, directory.as_ref());
            let entries = match opened.and_then(|dir| beneath::list(&dir, left)) {
                Ok(entries) => entries.ok_or(ApplyError::TooManyEntries { max })?,
                // Gone, not ours to read, or another file system: nothing is applied there.
                Err(_) if directory.is_some() => continue,
                Err(error) => {
                    return Err(ApplyError::Links { path: ".".to_owned(), source: error.into() });
                }
            };
            left -= entries.len() as u64;
            for entry in entries {
                let Ok(path) = RelPath::in_dir(directory.as_ref(), &entry.name) else { continue };
                if OF_REPOSITORIES.iter().any(|name| entry.name == *name) {
                    let top = directory.as_ref().map(|path| path.as_path().to_owned());
                    found.repositories.push(top.unwrap_or_default());
                }
                let kind = match entry.kind {
                    FileType::Unknown => kind_of(root, &path)?,
                    kind => kind,
                };
                if kind == FileType::Directory && !hidden.skips(path.as_path()) {
                    pending.push(Some(path));
                } else if kind == FileType::Symlink {
                    found.links.push(path);
                }
            }
        }
        Ok(found)
    }
}

fn kind_of(root: &OwnedFd, path: &RelPath) -> Result<FileType, ApplyError> {
    let stat = beneath::stat(root, path.as_path()).map_err(|error| ApplyError::Links {
        path: quoted(path.as_path()),
        source: error.into(),
    })?;
    Ok(stat.map_or(FileType::Unknown, |stat| FileType::from_raw_mode(stat.st_mode)))
}
