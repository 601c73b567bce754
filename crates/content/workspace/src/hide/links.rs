//! Links with hidden names: what they lead to is hidden, too.
//!
//! With `.aws` a link to `secrets/aws`, the keys are there by both names. With `.docker` a link to
//! `docker`, the file `docker/config.json` is the one that a rule calls `.docker/config.json`. So what
//! such a link leads to is judged by the link's path as well as by its own.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use rustix::fs::{FileType, Stat};

use super::{HideError, Place, Search, may_contain};
use crate::beneath;
use crate::follow::follow;
use crate::path::RelPath;
use crate::pattern::Folded;

/// More links with such names are in no workspace that people made. Each of them is followed again
/// when something changes on its way.
const MAX_HIDDEN_LINKS: usize = 4096;

/// Knows the links of one directory that were followed.
#[derive(Debug, Default)]
pub(super) struct Links {
    /// Each link that was followed, with the path by which it was judged.
    followed: BTreeSet<(RelPath, Folded)>,
    /// What decides where they lead: the ends, and the links and directories on the way.
    on_the_way: BTreeSet<PathBuf>,
    /// The other paths of directories, as far as they matter.
    names: BTreeMap<Option<RelPath>, BTreeSet<Folded>>,
    /// The files that were hidden by a link, as they were then.
    targets: BTreeMap<PathBuf, (u64, u64)>,
}

impl Links {
    /// Whether some link may lead elsewhere, when something happens to this path.
    pub(super) fn lead_by(&self, path: &RelPath) -> bool {
        self.on_the_way.contains(path.as_path())
    }

    pub(super) fn names_of(&self, directory: Option<&RelPath>) -> Vec<Folded> {
        let names = self.names.get(&directory.cloned());
        names.into_iter().flatten().cloned().collect()
    }
}

impl Search<'_> {
    /// Whether a link is hidden by its name. What it leads to is looked at, where that matters.
    pub(super) fn link(&mut self, path: &RelPath, named: &Folded) -> Result<bool, HideError> {
        let by_rule = |directory| !self.rules.meaning(named, directory).is_empty();
        let is_hidden = by_rule(false) || by_rule(true);
        if is_hidden || self.rules.leading_end(named).is_some() {
            self.links.followed.insert((path.clone(), named.clone()));
            if self.links.followed.len() > MAX_HIDDEN_LINKS {
                return Err(HideError::TooManyLinks { max: MAX_HIDDEN_LINKS });
            }
            self.follow(path, named);
        }
        Ok(is_hidden)
    }

    /// Looks again where the links lead that were followed before.
    pub(super) fn follow_again(&mut self) {
        for (path, named) in self.links.followed.clone() {
            self.follow(&path, &named);
        }
    }

    /// Hides what a link leads to, if a rule means the link's path, and searches it for what a rule means
    /// below that path.
    fn follow(&mut self, link: &RelPath, named: &Folded) {
        let followed = follow(self.workspace, &self.rules.directory, link.as_path());
        for path in followed.through.iter().chain(&followed.end) {
            self.links.on_the_way.extend(path.ancestors().map(Path::to_owned));
        }
        if let Some(end) = followed.end {
            self.lead(&end, named);
        }
    }

    /// Judges the file or directory at `end` by another name that it has.
    pub(super) fn lead(&mut self, end: &Path, named: &Folded) {
        let leading_end = self.rules.leading_end(named);
        let Ok(target) = RelPath::new(end) else {
            // The workspace itself cannot be hidden in the workspace.
            if end.as_os_str().is_empty()
                && let Some(end) = leading_end
            {
                self.also_named(None, end);
            }
            return;
        };
        if let Ok(above) = beneath::open_dir(self.workspace, target.parent().as_ref()) {
            self.visitor.visit(&above, target.parent().as_ref());
        }
        let Ok(Some(stat)) = beneath::stat(self.workspace, target.as_path()) else { return };
        let kind = FileType::from_raw_mode(stat.st_mode);
        let is_dir = kind == FileType::Directory;
        let is_hidden = self.rules.meaning(named, is_dir).iter().any(|rule| {
            kind != FileType::RegularFile
                || may_contain(self.workspace, target.as_path(), &rule.contains)
        });
        if is_hidden {
            self.hide_target(target, &stat);
        } else if is_dir && let Some(end) = leading_end {
            self.also_named(Some(target), end);
        }
    }

    /// Once, until there is another file.
    fn hide_target(&mut self, target: RelPath, stat: &Stat) {
        let path = target.as_path().to_owned();
        let id = (stat.st_dev, stat.st_ino);
        if self.links.targets.insert(path.clone(), id) != Some(id) {
            self.hidden.insert(path);
        }
    }

    /// Searches a directory by another path that it has, unless that was done.
    pub(super) fn also_named(&mut self, path: Option<RelPath>, named: Folded) {
        let known = self.links.names.entry(path.clone()).or_default();
        if known.insert(named.clone()) {
            self.pending.push(Place { path, named: Some(named) });
        }
    }
}
