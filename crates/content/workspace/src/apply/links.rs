//! Links of the user's own that lead from a protected path to an ordinary one.
//!
//! `.git/hooks/pre-commit` may be a link to `scripts/pre-commit`, and `CLAUDE.md` one to `README.md`:
//! then programs on the host obey the ordinary file as much.

use std::collections::VecDeque;
use std::path::{Path, PathBuf};

use super::held::Held;
use super::protect::Names;
use super::survey::Survey;
use crate::follow::follow;
use crate::manifest::{After, Change};
use crate::owners::Owners;
use crate::path::RelPath;

/// Entries of the repository round a workspace that are looked at, those near its top first.
const MAX_ENTRIES_ABOVE: usize = 200_000;
/// Entries of one directory above a workspace, such as a temporary directory that all users share.
const MAX_ENTRIES_OF_DIRECTORY: usize = 4096;
/// Directories that are not searched for links: large, and nothing there has a protected name.
const NOT_SEARCHED: [&str; 3] = ["objects", "node_modules", "target"];

/// Where the links at protected paths of a workspace lead, and those above it that lead into it.
#[derive(Debug, Default)]
pub(super) struct ProtectedLinks(Vec<Lead>);

/// A file at `target`, or below it, is found below `link` as well.
#[derive(Debug, PartialEq, Eq)]
struct Lead {
    /// On the host.
    link: PathBuf,
    /// In the workspace. Empty for the workspace itself.
    target: PathBuf,
}

impl ProtectedLinks {
    pub(super) fn find(held: &Held<'_>, names: &Names, survey: &Survey) -> Self {
        let protected = survey
            .links
            .iter()
            .filter(|link| names.protect(link.as_path()) || names.lead_through(link.as_path()));
        let mut leads: Vec<Lead> = protected.flat_map(|link| leads_of(held, link)).collect();
        leads.extend(leads_from_above(held, names));
        ProtectedLinks(leads)
    }

    /// Whether the change is to what a protected path leads to, or to a link or directory on the way.
    pub(super) fn lead_to(&self, change: &Change, names: &Names) -> bool {
        let path = change.path.as_path();
        let stays_directory = matches!(change.after, Some(After::Directory { .. }));
        self.0.iter().any(|Lead { link, target }| match path.strip_prefix(target) {
            Ok(rest) if rest.as_os_str().is_empty() => {
                !stays_directory || names.protect_on_host(link)
            }
            Ok(rest) => names.protect_on_host(&link.join(rest)),
            // A directory above the target that is taken away, or becomes something else.
            Err(_) => target.starts_with(path) && !stays_directory,
        })
    }
}

/// Where a link leads inside the workspace.
fn leads_of(held: &Held<'_>, link: &RelPath) -> Vec<Lead> {
    let lead = |target: PathBuf| Lead { link: held.path().join(link.as_path()), target };
    targets_of(held, link).into_iter().map(lead).collect()
}

/// The links at protected paths outside the workspace that lead into it: in the directories above it, and
/// in the whole repository that it is a part of.
fn leads_from_above(held: &Held<'_>, names: &Names) -> Vec<Lead> {
    let workspace = held.path();
    let home = std::env::var_os("HOME").map(PathBuf::from);
    let mut links = Vec::new();
    let mut repository = None;
    for above in workspace.ancestors().skip(1).filter(|above| above.parent().is_some()) {
        let (found, _) = entries_of(above, MAX_ENTRIES_OF_DIRECTORY);
        links.extend(found);
        let is_top = [".git", ".hg"].iter().any(|name| above.join(name).exists());
        repository = repository.or(is_top.then_some(above));
        if home.as_deref() == Some(above) {
            break;
        }
    }
    let mut left = MAX_ENTRIES_ABOVE;
    let mut waiting: VecDeque<PathBuf> = repository.map(Path::to_owned).into_iter().collect();
    while let Some(directory) = waiting.pop_front() {
        let (found, below) = entries_of(&directory, left);
        left = left.saturating_sub(found.len() + below.len());
        links.extend(found);
        let is_searched = |path: &PathBuf| {
            path != workspace && !NOT_SEARCHED.iter().any(|name| path.ends_with(name))
        };
        waiting.extend(below.into_iter().filter(is_searched));
    }
    let owners = Owners::of(workspace);
    let lead = |link: PathBuf| {
        let matters = names.protect_on_host(&link) || names.lead_through_on_host(&link);
        if !matters || !owners.own(&link) {
            return None;
        }
        let target = link.canonicalize().ok().or_else(|| end_of_dangling(&link))?;
        match (target.strip_prefix(workspace), workspace.strip_prefix(&target)) {
            (Ok(inside), _) => Some(Lead { link, target: inside.to_owned() }),
            (_, Ok(below)) => Some(Lead { link: link.join(below), target: PathBuf::new() }),
            _ => None,
        }
    };
    links.into_iter().filter_map(lead).collect()
}

/// Where a link leads that leads to nothing yet: programs obey what comes there.
fn end_of_dangling(link: &Path) -> Option<PathBuf> {
    let target = link.parent()?.join(link.read_link().ok()?);
    Some(target.parent()?.canonicalize().ok()?.join(target.file_name()?))
}

/// The links and the directories in a directory of the host; none if it cannot be read.
fn entries_of(directory: &Path, max: usize) -> (Vec<PathBuf>, Vec<PathBuf>) {
    let (mut links, mut directories) = (Vec::new(), Vec::new());
    for entry in std::fs::read_dir(directory).into_iter().flatten().take(max).flatten() {
        match entry.file_type() {
            Ok(kind) if kind.is_symlink() => links.push(entry.path()),
            Ok(kind) if kind.is_dir() => directories.push(entry.path()),
            _ => {}
        }
    }
    (links, directories)
}

/// Each further link on the way of a link, and the end of it, also where nothing is there yet.
pub(super) fn targets_of(held: &Held<'_>, link: &RelPath) -> Vec<PathBuf> {
    let (root, workspace) = (held.root(), held.path());
    let mut targets = Vec::new();
    // By the host's own way of following, which may leave the workspace and come back.
    if let Ok(end) = held.reach(&workspace.join(link.as_path())).canonicalize()
        && let Ok(inside) = end.strip_prefix(workspace)
    {
        targets.push(inside.to_owned());
    }
    let followed = follow(root, workspace, link.as_path());
    targets.extend(followed.through.into_iter().chain(followed.end));
    targets
}
