//! What a change is by its nature: what programs on the host would do with it, whatever its name.
//!
//! The list of protected names can never be complete. So every change is ranked, people are shown the
//! rank, and `apply --strict` takes only plain changes unasked.

mod names;

use std::fmt;
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

use crate::apply::is_protected;
use crate::manifest::{After, Before, Change, Changes};
use crate::path::RelPath;
use crate::show::quoted;
use names::by_name;

/// From harmless to what the host obeys without being asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Nature {
    /// Sources, documents and data: they take effect only when a person opens or builds them.
    Plain,
    /// A symbolic link.
    Link,
    /// Below a directory at the top of the workspace whose name begins with a dot.
    DotDirectory,
    /// Settings or instructions that a tool reads, and build files.
    Configuration,
    /// A file that became executable, or machine code.
    Executable,
    /// In a directory of hooks, or with the name of a hook.
    Hook,
    /// One of the paths that `apply` never writes unless they are named.
    Protected,
}

/// A change that is not plain.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ranked {
    pub path: RelPath,
    pub nature: Nature,
}

/// Changes that are not plain, for a message: the most dangerous first, and cut after a few.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RankedList(pub Vec<Ranked>);

/// What programs that people write mean to be executed.
const MACHINE_CODE: [&[u8]; 5] =
    [b"\x7fELF", b"MZ", b"\0asm", b"\xca\xfe\xba\xbe", b"\xcf\xfa\xed\xfe"];
impl Nature {
    pub fn words(self) -> &'static str {
        match self {
            Nature::Plain => "plain",
            Nature::Link => "link",
            Nature::DotDirectory => "dot-directory",
            Nature::Configuration => "configuration",
            Nature::Executable => "new executable",
            Nature::Hook => "hook",
            Nature::Protected => "protected",
        }
    }
}

impl Changes {
    /// What a change of these is by its nature.
    pub fn nature_of(&self, change: &Change) -> Nature {
        let path = change.path.as_path();
        if change.hidden || is_protected(&self.workspace(), path) {
            return Nature::Protected;
        }
        let is_directory = match (&change.before, &change.after) {
            (_, Some(after)) => matches!(after, After::Directory { .. }),
            (before, None) => matches!(before, Some(Before::Directory { .. })),
        };
        // A directory shows its nature by its entries.
        if is_directory {
            return Nature::Plain;
        }
        let by_content = match &change.after {
            Some(After::Symlink { .. }) => Nature::Link,
            Some(After::File { mode, .. }) if self.becomes_executable(change, *mode) => {
                Nature::Executable
            }
            _ => Nature::Plain,
        };
        let by_path = match by_name(path) {
            Nature::Plain => by_name(&self.below_project().join(path)),
            known => known,
        };
        by_content.max(by_path)
    }

    /// The workspace's path from the top of the repository that it is in. A file at the top of a workspace
    /// `.tool` is in a dot-directory. Without a repository the workspace's own name has to do.
    fn below_project(&self) -> PathBuf {
        let workspace = self.workspace();
        let is_top =
            |directory: &&Path| [".git", ".hg"].iter().any(|it| directory.join(it).exists());
        let top = workspace.ancestors().find(is_top).or(workspace.parent());
        let below = top.and_then(|top| workspace.strip_prefix(top).ok());
        below.map(Path::to_owned).unwrap_or_default()
    }

    /// All changes that are not plain.
    pub fn ranked<'c>(&self, changes: impl IntoIterator<Item = &'c Change>) -> RankedList {
        let ranked = changes
            .into_iter()
            .map(|change| Ranked { path: change.path.clone(), nature: self.nature_of(change) });
        RankedList(ranked.filter(|ranked| ranked.nature != Nature::Plain).collect())
    }

    fn becomes_executable(&self, change: &Change, mode: u32) -> bool {
        let was = match &change.before {
            Some(Before::File { mode, .. }) => mode & 0o111 != 0,
            _ => false,
        };
        (mode & 0o111 != 0 && !was) || self.is_machine_code(change)
    }

    fn is_machine_code(&self, change: &Change) -> bool {
        let Some(path) = self.content_of(change) else { return false };
        let mut start = Vec::new();
        let read = File::open(path).and_then(|file| file.take(4).read_to_end(&mut start));
        // What cannot be read is not applied either.
        read.is_ok() && MACHINE_CODE.iter().any(|magic| start.starts_with(magic))
    }
}

impl RankedList {
    const SHOWN: usize = 10;

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl fmt::Display for RankedList {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut ranked: Vec<&Ranked> = self.0.iter().collect();
        ranked.sort_by(|a, b| (b.nature, &a.path).cmp(&(a.nature, &b.path)));
        for (index, Ranked { path, nature }) in ranked.iter().take(Self::SHOWN).enumerate() {
            let comma = if index == 0 { "" } else { ", " };
            write!(f, "{comma}{} ({})", quoted(path.as_path()), nature.words())?;
        }
        match ranked.len().saturating_sub(Self::SHOWN) {
            0 => Ok(()),
            more => write!(f, " and {more} more"),
        }
    }
}
