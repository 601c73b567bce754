//! Files of another user or group in a workspace, which an overlay in a ring of one user cannot copy up.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, FileType, Stat};

use super::{HideError, HideRules, Links, Place, Search, Visitor};
use crate::beneath;
use crate::path::RelPath;

/// What one search of a workspace found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Searched {
    /// As [`find_hidden`](super::find_hidden) gives it.
    pub hidden: Vec<PathBuf>,
    /// One file or directory of another user or group, if there is one among those that were looked at.
    pub foreign: Option<PathBuf>,
}

/// Finds the hidden paths, and a file or directory of another user or group.
pub fn find_hidden_and_foreign(
    workspace: BorrowedFd<'_>,
    rules: &HideRules,
    owner: (u32, u32),
) -> Result<Searched, HideError> {
    let mut owners = Owners { owner, foreign: None };
    let links = &mut Links::default();
    let hidden = Search::new(workspace, rules, &mut owners, links).below(vec![Place::top()])?;
    Ok(Searched { hidden, foreign: owners.foreign })
}

struct Owners {
    owner: (u32, u32),
    foreign: Option<PathBuf>,
}

impl Visitor for Owners {
    fn visit(&mut self, _: &OwnedFd, _: Option<&RelPath>) {}

    /// A link is removed or replaced without a copy of it.
    fn see(&mut self, directory: BorrowedFd<'_>, path: &RelPath, kind: FileType) {
        if self.foreign.is_some() || !matches!(kind, FileType::RegularFile | FileType::Directory) {
            return;
        }
        let stat = stat_of(directory, Path::new(path.file_name()));
        if stat.is_some_and(|stat| (stat.st_uid, stat.st_gid) != self.owner) {
            self.foreign = Some(path.as_path().to_owned());
        }
    }
}

/// Whether all of a workspace is no more than so many entries and bytes. What cannot be read counts
/// nothing, and other file systems are left out.
pub fn fits(workspace: BorrowedFd<'_>, max_entries: u64, max_bytes: u64) -> bool {
    let (mut entries_left, mut bytes_left) = (max_entries, max_bytes);
    let mut pending: Vec<Option<RelPath>> = vec![None];
    while let Some(directory) = pending.pop() {
        let Ok(opened) = beneath::open_dir(workspace, directory.as_ref()) else { continue };
        let listed = match beneath::list(&opened, entries_left) {
            Ok(Some(listed)) => listed,
            Ok(None) => return false,
            Err(_) => continue,
        };
        entries_left -= listed.len() as u64;
        for entry in listed {
            let Ok(path) = RelPath::in_dir(directory.as_ref(), &entry.name) else { return false };
            let stat = stat_of(&opened, Path::new(&entry.name));
            let Some(left) = bytes_left.checked_sub(stat.as_ref().map_or(0, bytes_of)) else {
                return false;
            };
            bytes_left = left;
            if stat.is_some_and(|stat| kind_of(&stat) == FileType::Directory) {
                pending.push(Some(path));
            }
        }
    }
    true
}

fn stat_of(directory: impl AsFd, name: &Path) -> Option<Stat> {
    rustix::fs::statat(directory, name, AtFlags::SYMLINK_NOFOLLOW).ok()
}

fn kind_of(stat: &Stat) -> FileType {
    FileType::from_raw_mode(stat.st_mode)
}

fn bytes_of(stat: &Stat) -> u64 {
    match kind_of(stat) {
        FileType::RegularFile => u64::try_from(stat.st_size).unwrap_or(u64::MAX),
        _ => 0,
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::{MetadataExt, chown, symlink};

    use super::*;

    fn workspace() -> tempfile::TempDir {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir_all(dir.path().join("a/b")).unwrap();
        fs::write(dir.path().join("a/b/file"), vec![0; 1000]).unwrap();
        fs::write(dir.path().join(".env"), "A=1").unwrap();
        symlink("a/b/file", dir.path().join("link")).unwrap();
        dir
    }

    #[test]
    fn a_file_or_directory_of_another_group_is_found_at_any_depth() {
        let dir = workspace();
        let opened = fs::File::open(dir.path()).unwrap();
        let top = opened.metadata().unwrap();
        let search = |owner| {
            let rules = HideRules::below(dir.path());
            let found = find_hidden_and_foreign(opened.as_fd(), &rules, owner).unwrap();
            assert_eq!(found.hidden, [Path::new(".env")]);
            found.foreign
        };
        assert_eq!(search((top.uid(), top.gid())), None);
        assert!(search((top.uid(), top.gid() + 1)).is_some());
        assert!(search((top.uid() + 1, top.gid())).is_some());
        if !rustix::process::geteuid().is_root() {
            eprintln!("the rest is not tested here: only root gives files to another group");
            return;
        }
        for path in ["a/b/file", "a/b"] {
            chown(dir.path().join(path), None, Some(top.gid() + 1)).unwrap();
            assert_eq!(search((top.uid(), top.gid())), Some(PathBuf::from(path)));
            chown(dir.path().join(path), None, Some(top.gid())).unwrap();
        }
    }

    #[test]
    fn a_workspace_fits_when_all_of_it_does() {
        let dir = workspace();
        let opened = fs::File::open(dir.path()).unwrap();
        // Two directories, two files and a link.
        let fit = |entries, bytes| fits(opened.as_fd(), entries, bytes);
        assert!(fit(5, 1003));
        assert!(!fit(4, 1003));
        assert!(!fit(5, 1002));
    }
}
