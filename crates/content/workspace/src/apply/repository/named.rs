//! Paths of the workspace that settings name, and which changes are to them.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use crate::apply::held::Held;
use crate::apply::links::targets_of;
use crate::apply::survey::Survey;
use crate::manifest::{After, Change};
use crate::path::RelPath;
use crate::pattern::fold;

/// Endings of what Python loads as a module.
const MODULE_ENDINGS: [&[u8]; 4] = [b".py", b".pyc", b".so", b".pyd"];

/// How a path is meant.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Meant {
    /// The path and all below it.
    Path,
    /// Files of that name with an ending: `clean.py` for `clean`.
    WithEnding,
    /// New modules in this directory: they come before those of the same name elsewhere.
    NewModules,
}

/// The paths of the host that settings name. The workspace may be in one of them, or contain it.
#[derive(Debug)]
pub(super) struct NamedPaths {
    workspace: PathBuf,
    /// Folded, as a file system without letter case would have it.
    names: BTreeSet<(Vec<Vec<u8>>, Meant)>,
}

impl NamedPaths {
    pub(super) fn of(workspace: &Path) -> NamedPaths {
        NamedPaths { workspace: workspace.to_owned(), names: BTreeSet::new() }
    }

    /// Takes an absolute path. One that contains all of `top` names nothing in it: `.` in a command.
    pub(super) fn add(&mut self, path: &Path, meant: Meant, top: &Path) {
        let Some(path) = plain(path) else { return };
        if !top.starts_with(&path) || meant == Meant::NewModules {
            self.names.insert((folded(&path), meant));
        }
    }

    /// Takes what links below the named paths lead to, and links below that.
    pub(super) fn follow_links(&mut self, held: &Held<'_>, survey: &Survey) {
        let mut left: Vec<&RelPath> = survey.links.iter().collect();
        loop {
            let (named, others): (Vec<_>, Vec<_>) =
                left.into_iter().partition(|link| self.mean(link.as_path()));
            let before = self.names.len();
            for target in named.into_iter().flat_map(|link| targets_of(held, link)) {
                self.add(&held.path().join(target), Meant::Path, held.path());
            }
            if self.names.len() == before {
                return;
            }
            left = others;
        }
    }

    /// Whether a path of the workspace is named, or lies in a directory that is.
    pub(super) fn mean(&self, path: &Path) -> bool {
        let path = folded(&self.workspace.join(path));
        self.names.iter().any(|(names, meant)| match meant {
            Meant::Path => path.starts_with(names),
            Meant::WithEnding => has_ending(names, &path),
            Meant::NewModules => false,
        })
    }

    pub(super) fn are_changed_by(&self, change: &Change) -> bool {
        let path = change.path.as_path();
        // A link or file that takes the place of a directory above brings its own content.
        let stays_directory = matches!(change.after, Some(After::Directory { .. }));
        let names = folded(&self.workspace.join(path));
        self.mean(path)
            || self.names.iter().any(|(named, meant)| match meant {
                Meant::Path | Meant::WithEnding => !stays_directory && named.starts_with(&names),
                Meant::NewModules => is_new_module(named, &names, change),
            })
    }
}

/// Whether `path`, or a directory that it is in, has this name with an ending.
fn has_ending(named: &[Vec<u8>], path: &[Vec<u8>]) -> bool {
    let Some((last, above)) = named.split_last() else { return false };
    let Some(rest) = path.strip_prefix(above) else { return false };
    rest.first()
        .and_then(|name| name.strip_prefix(last.as_slice()))
        .is_some_and(|ending| ending.first() == Some(&b'.'))
}

/// `json.py` or `json/__init__.py`, also where the directory was there.
fn is_new_module(directory: &[Vec<u8>], path: &[Vec<u8>], change: &Change) -> bool {
    let Some(rest) = path.strip_prefix(directory) else { return false };
    let file = match rest {
        [file] => file,
        [_, file] if file.starts_with(b"__init__.") => file,
        _ => return false,
    };
    let is_module = MODULE_ENDINGS.iter().any(|ending| file.ends_with(ending))
        || matches!(change.after, Some(After::Symlink { .. }));
    change.before.is_none() && is_module
}

/// Without `.` and `..`, by the text alone.
fn plain(path: &Path) -> Option<PathBuf> {
    let mut plain = PathBuf::new();
    for part in path.components() {
        match part {
            std::path::Component::ParentDir => {
                plain.pop();
            }
            std::path::Component::CurDir => {}
            part => plain.push(part),
        }
    }
    plain.is_absolute().then_some(plain)
}

fn folded(path: &Path) -> Vec<Vec<u8>> {
    path.iter().map(|name| fold(name.as_encoded_bytes())).collect()
}
