//! Links of the user's own that lead from a protected path to an ordinary one.
//!
//! `.git/hooks/pre-commit` may be a link to `scripts/pre-commit`, and `CLAUDE.md` one to `README.md`:
//! then programs on the host obey the ordinary file as much.

use std::collections::VecDeque;
use std::ffi::OsString;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Component, Path, PathBuf};

use rustix::fs::FileType;

use super::ApplyError;
use super::held::Held;
use super::protect::Names;
use crate::beneath;
use crate::manifest::{After, Change};
use crate::path::RelPath;
use crate::show::quoted;

/// The kernel follows no more in one path.
const MAX_FOLLOWED: usize = 40;

/// Where the links at protected paths of a workspace lead.
#[derive(Debug, Default)]
pub(super) struct ProtectedLinks(Vec<Lead>);

/// A file at `target`, or below it, is found below `link` as well.
#[derive(Debug, PartialEq, Eq)]
struct Lead {
    link: PathBuf,
    target: PathBuf,
}

impl ProtectedLinks {
    /// Looks through the whole workspace, but for directories that are not searched for secrets either.
    pub(super) fn find(held: &Held<'_>, names: &Names) -> Result<Self, ApplyError> {
        let root = held.root();
        let max = names.hidden().max_entries;
        let mut left = max;
        let mut found = Vec::new();
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
                let kind = match entry.kind {
                    FileType::Unknown => kind_of(root, &path)?,
                    kind => kind,
                };
                if kind == FileType::Directory && !names.hidden().skips(path.as_path()) {
                    pending.push(Some(path));
                } else if kind == FileType::Symlink
                    && (names.protect(path.as_path()) || names.lead_through(path.as_path()))
                {
                    found.extend(leads_of(held, &path));
                }
            }
        }
        Ok(ProtectedLinks(found))
    }

    /// Whether the change is to what a protected path leads to, or to a link or directory on the way.
    pub(super) fn lead_to(&self, change: &Change, names: &Names) -> bool {
        let path = change.path.as_path();
        let stays_directory = matches!(change.after, Some(After::Directory { .. }));
        self.0.iter().any(|Lead { link, target }| match path.strip_prefix(target) {
            Ok(rest) if rest.as_os_str().is_empty() => !stays_directory || names.protect(link),
            Ok(rest) => names.protect(&link.join(rest)),
            // A directory above the target that is taken away, or becomes something else.
            Err(_) => target.starts_with(path) && !stays_directory,
        })
    }
}

fn kind_of(root: &OwnedFd, path: &RelPath) -> Result<FileType, ApplyError> {
    let stat = beneath::stat(root, path.as_path()).map_err(|error| ApplyError::Links {
        path: quoted(path.as_path()),
        source: error.into(),
    })?;
    Ok(stat.map_or(FileType::Unknown, |stat| FileType::from_raw_mode(stat.st_mode)))
}

/// Where a link leads inside the workspace: each further link on the way, and the end of it, also
/// where nothing is there yet.
fn leads_of(held: &Held<'_>, link: &RelPath) -> Vec<Lead> {
    let (root, workspace) = (held.root(), held.path());
    let lead = |target: PathBuf| Lead { link: link.as_path().to_owned(), target };
    let mut leads = Vec::new();
    // By the host's own way of following, which may leave the workspace and come back.
    if let Ok(end) = held.reach(&workspace.join(link.as_path())).canonicalize()
        && let Ok(inside) = end.strip_prefix(workspace)
    {
        leads.push(lead(inside.to_owned()));
    }
    let mut at = PathBuf::new();
    let mut ahead: VecDeque<OsString> = link.as_path().iter().map(OsString::from).collect();
    let mut followed = 0;
    while let Some(name) = ahead.pop_front() {
        match Path::new(&name).components().next() {
            Some(Component::Normal(name)) => at.push(name),
            Some(Component::ParentDir) => {
                if !at.pop() {
                    return leads;
                }
                continue;
            }
            _ => continue,
        }
        let Some(target) = link_at(root, &at) else { continue };
        followed += 1;
        if followed > MAX_FOLLOWED {
            return leads;
        }
        if at != link.as_path() {
            leads.push(lead(at.clone()));
        }
        at.pop();
        let rest = match target.is_absolute() {
            false => target.as_path(),
            true => match target.strip_prefix(workspace) {
                Ok(inside) => {
                    at.clear();
                    inside
                }
                Err(_) => return leads,
            },
        };
        for name in rest.iter().rev() {
            ahead.push_front(name.to_owned());
        }
    }
    leads.push(lead(at));
    leads
}

fn link_at(root: &OwnedFd, path: &Path) -> Option<PathBuf> {
    let target = beneath::read_link(root.as_fd(), path).ok()?;
    Some(PathBuf::from(beneath::os_bytes(&target)))
}
