//! Finds the files of a workspace that a sandbox must not see: secrets and keys.
//!
//! Fails closed: what cannot be read is hidden, and a workspace too large to be searched is
//! refused rather than half searched.

mod above;
mod foreign;
mod links;
mod shadow;
mod watch;

use std::collections::BTreeSet;
use std::io::Read;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};

use rustix::fs::FileType;
use rustix::io::Errno;

use crate::beneath;
use crate::path::RelPath;
use crate::pattern::{Folded, Pattern, rule_lines};
use crate::show::quoted;
use above::{OtherName, other_names};
use links::Links;

pub use foreign::{Searched, find_hidden_and_foreign, fits};
pub use shadow::ShadowWatch;
pub use watch::HiddenWatch;

const BUILT_IN: &str = include_str!("rules/hidden.rules");
/// How much of a file is read to see whether it holds a secret.
const CONTENT_BYTES: u64 = 64 << 10;
const CACHE_TAG: &str = "CACHEDIR.TAG";
/// The tag alone proves nothing: a job can make one, and once it is applied the next job would see
/// what lies beside it. So it counts only where tools keep caches and people keep no secrets.
const CACHE_NAMES: [&str; 10] = [
    "target",
    ".pytest_cache",
    ".mypy_cache",
    ".ruff_cache",
    ".hypothesis",
    ".tox",
    ".nox",
    ".venv",
    "venv",
    ".ccache",
];
/// From the cache directory tagging specification.
const CACHE_TAG_SIGNATURE: &[u8] = b"Signature: 8a477f597d28d172789f06886806bc55";

/// Which files are hidden, and how large a workspace may be searched.
#[derive(Debug, Clone)]
pub struct HideRules {
    /// The host's path of the directory that is searched: files in a `.docker` are judged as such.
    base: Folded,
    /// Links lead into the directory by this path, which is the same.
    directory: PathBuf,
    /// Links above the directory give it, or something in it, these other names.
    others: Vec<OtherName>,
    /// Paths that are hidden whatever the rules say.
    always: BTreeSet<PathBuf>,
    rules: Vec<Rule>,
    skipped: Vec<Pattern>,
    /// Entries that are looked at before the workspace is refused as too large.
    pub max_entries: u64,
    /// Directories deeper than this are hidden, not searched.
    pub max_depth: usize,
}

#[derive(Debug, Clone)]
struct Rule {
    pattern: Pattern,
    directory: bool,
    /// Lower-case texts of which one must be in the file; none needed when empty.
    contains: Vec<Vec<u8>>,
    exception: bool,
}

#[derive(Debug, thiserror::Error)]
pub enum HideError {
    #[error(
        "a workspace or shown directory has more than {max} files and directories, too many to search for secrets; give a smaller one"
    )]
    TooMany { max: u64 },
    #[error(
        "a workspace or shown directory has more than {max} links with names of secrets, too many to follow; give a smaller one"
    )]
    TooManyLinks { max: usize },
    #[error("cannot search {path} for secrets")]
    Read { path: String, source: std::io::Error },
}

// === impl HideRules ===

impl Default for HideRules {
    /// The built-in rules.
    fn default() -> Self {
        let mut rules = HideRules {
            base: Folded::default(),
            directory: PathBuf::new(),
            others: Vec::new(),
            always: BTreeSet::new(),
            rules: Vec::new(),
            skipped: Vec::new(),
            max_entries: 1_000_000,
            max_depth: 256,
        };
        for line in rule_lines(BUILT_IN) {
            rules.add(line);
        }
        rules
    }
}

impl HideRules {
    /// The built-in rules for the paths below a directory of the host.
    pub fn below(directory: &Path) -> Self {
        let (base, directory) = (Folded::new(directory), directory.to_owned());
        HideRules { base, directory, ..HideRules::default() }
    }

    /// The built-in rules for a directory that is there. Other names that links above it give are judged, too.
    pub fn of_directory(directory: &Path) -> Self {
        let rules = HideRules::below(directory);
        let others = other_names(&rules, directory);
        HideRules { others, ..rules }
    }

    /// The rules that go by names alone, and these paths: for a directory that a job writes to. What it
    /// has made itself, a key for a test perhaps, is not read to find out.
    pub fn by_name(mut self, always: impl IntoIterator<Item = PathBuf>) -> Self {
        self.rules.retain(|rule| rule.exception || rule.contains.is_empty());
        self.always.extend(always);
        self
    }

    /// Whether the directory that the rules are for is hidden itself, or lies in one that is.
    pub fn hides_base(&self) -> bool {
        let mut others = self.others.iter().filter(|other| other.end.as_os_str().is_empty());
        self.is_in_hidden_directory(&self.base)
            || others.any(|other| self.is_in_hidden_directory(&other.named))
    }

    /// Whether a file or link of a directory, which the rules are for, is hidden.
    pub fn hides_file(&self, directory: BorrowedFd<'_>, name: &Path) -> bool {
        let others = self.others.iter();
        let others = others.filter_map(|other| match other.end.as_os_str().is_empty() {
            true => Some(other.named.join(name)),
            false => (other.end == name).then(|| other.named.clone()),
        });
        let is_hidden = |named: &Folded| {
            let mut rules = self.meaning(named, false).into_iter();
            rules.any(|rule| may_contain(directory, name, &rule.contains))
        };
        self.hides_base()
            || [self.base.join(name)].into_iter().chain(others).any(|named| is_hidden(&named))
    }

    /// Whether the file `real`, without links on its path, is hidden when it is found at `path`.
    pub(crate) fn hides_content(&self, path: &Path, real: &Path) -> bool {
        let directory = real.parent().map(beneath::open_root);
        let (Some(Ok(directory)), Some(name)) = (directory, real.file_name()) else { return true };
        self.meaning(&Folded::new(path), false)
            .iter()
            .any(|rule| may_contain(&directory, Path::new(name), &rule.contains))
    }

    /// Whether a directory is full of other people's files, and not searched.
    pub(crate) fn skips(&self, directory: &Path) -> bool {
        let folded = self.base.join(directory);
        self.skipped.iter().any(|skip| skip.matches(&folded))
    }

    /// Adds one rule in the language of the rule file; an exception cancels the rules added before it.
    pub fn add(&mut self, line: &str) {
        if let Some(skipped) = line.strip_prefix("skip ") {
            self.skipped.push(Pattern::parse(skipped.trim().trim_end_matches('/')));
            return;
        }
        let (line, exception) = match line.strip_prefix('!') {
            Some(rest) => (rest, true),
            None => (line, false),
        };
        let (name, contains) = match line.split_once(" contains ") {
            Some((name, texts)) => (name, texts),
            None => (line, ""),
        };
        let name = name.trim();
        self.rules.push(Rule {
            pattern: Pattern::parse(name.trim_end_matches('/')),
            directory: name.ends_with('/'),
            contains: contains
                .split(" | ")
                .filter(|text| !text.trim().is_empty())
                .map(|text| text.trim().to_lowercase().into_bytes())
                .collect(),
            exception,
        });
    }

    /// Whether the name alone makes it a hidden file, or it lies in a hidden directory. Rules
    /// that look at contents do not count: a new certificate is as likely as a new key.
    pub(crate) fn hides_name(&self, path: &Path) -> bool {
        let folded = self.base.join(path);
        self.meaning(&folded, false).iter().any(|rule| rule.contains.is_empty())
            || self.is_in_hidden_directory(&folded)
    }

    /// Whether a rule means the directory at this path or one that it is in.
    fn is_in_hidden_directory(&self, path: &Folded) -> bool {
        let is_in = |path: &Folded| {
            self.rules.iter().any(|rule| rule.directory && rule.pattern.matches_above(path))
        };
        is_in(path) || path.originals().iter().any(is_in)
    }

    /// The rules that mean the path, or a file of which it is a copy.
    fn meaning(&self, path: &Folded, directory: bool) -> Vec<&Rule> {
        let mut rules: Vec<&Rule> = self.exactly_meaning(path, directory).collect();
        for original in path.originals() {
            rules.extend(self.exactly_meaning(&original, directory));
        }
        rules
    }

    /// The rules that mean the path, up to an exception: that cancels only those above it.
    fn exactly_meaning(&self, path: &Folded, directory: bool) -> impl Iterator<Item = &Rule> {
        let matching =
            move |rule: &&Rule| rule.directory == directory && rule.pattern.matches(path);
        self.rules.iter().rev().filter(matching).take_while(|rule| !rule.exception)
    }

    /// How much of the end of this path decides what rules mean something below it.
    fn leading_end(&self, path: &Folded) -> Option<Folded> {
        let names = |path: &Folded| {
            self.rules.iter().filter_map(|rule| rule.pattern.names_led_through(path)).max()
        };
        let of_originals = path.originals().iter().filter_map(names).max();
        names(path).max(of_originals).map(|names| path.end(names))
    }
}

/// The files and directories of `workspace` that a sandbox must not see, in order of path. A
/// hidden directory stands for everything in it. Of symbolic links only those are followed that
/// have a hidden name, and only inside the workspace: what they lead to is hidden, too.
pub fn find_hidden(
    workspace: BorrowedFd<'_>,
    rules: &HideRules,
) -> Result<Vec<PathBuf>, HideError> {
    Search::new(workspace, rules, &mut Unwatched, &mut Links::default()).below(vec![Place::top()])
}

/// Keeps the hidden paths on which something can be mounted to cover them. A link cannot be covered,
/// and need not be: the file that it leads to is hidden.
pub fn without_links(directory: BorrowedFd<'_>, hidden: &[PathBuf]) -> Vec<PathBuf> {
    let is_link = |path: &Path| {
        let found = beneath::stat(directory, path).ok().flatten();
        found.is_some_and(|stat| FileType::from_raw_mode(stat.st_mode) == FileType::Symlink)
    };
    hidden.iter().filter(|path| !is_link(path)).cloned().collect()
}

/// Told of each directory before it is looked at.
trait Visitor {
    fn visit(&mut self, directory: &OwnedFd, path: Option<&RelPath>);

    /// Told of each entry of an open directory that is looked at.
    fn see(&mut self, _directory: BorrowedFd<'_>, _path: &RelPath, _kind: FileType) {}
}

struct Unwatched;

impl Visitor for Unwatched {
    fn visit(&mut self, _: &OwnedFd, _: Option<&RelPath>) {}
}

/// A directory that is to be searched.
#[derive(Debug)]
struct Place {
    /// None is the workspace itself.
    path: Option<RelPath>,
    /// The end of another path that it has through a link. Its entries are then judged by that path
    /// alone, and of those below it only what a rule could mean.
    named: Option<Folded>,
}

impl Place {
    fn top() -> Place {
        Place { path: None, named: None }
    }
}

struct Search<'a> {
    workspace: BorrowedFd<'a>,
    rules: &'a HideRules,
    visitor: &'a mut dyn Visitor,
    links: &'a mut Links,
    left: u64,
    hidden: BTreeSet<PathBuf>,
    pending: Vec<Place>,
}

impl<'a> Search<'a> {
    fn new(
        workspace: BorrowedFd<'a>,
        rules: &'a HideRules,
        visitor: &'a mut dyn Visitor,
        links: &'a mut Links,
    ) -> Search<'a> {
        let (hidden, pending) = (BTreeSet::new(), Vec::new());
        Search { workspace, rules, visitor, links, left: rules.max_entries, hidden, pending }
    }

    /// The hidden paths in these directories, in order of path.
    fn below(mut self, places: Vec<Place>) -> Result<Vec<PathBuf>, HideError> {
        self.pending.extend(places);
        let rules = self.rules;
        for OtherName { end, named } in &rules.others {
            self.lead(end, named);
        }
        self.search_pending()?;
        Ok(self.found())
    }

    fn search_pending(&mut self) -> Result<(), HideError> {
        while let Some(place) = self.pending.pop() {
            self.directory(&place)?;
        }
        Ok(())
    }

    /// A directory stands for all below it, which may have been found by another path.
    fn found(self) -> Vec<PathBuf> {
        let mut found: Vec<PathBuf> = Vec::with_capacity(self.hidden.len());
        for path in self.hidden {
            if !found.last().is_some_and(|above| path.starts_with(above)) {
                found.push(path);
            }
        }
        found
    }

    fn directory(&mut self, place: &Place) -> Result<(), HideError> {
        let path = place.path.as_ref();
        let opened = beneath::open_dir(self.workspace, path);
        let listed = opened.and_then(|dir| {
            self.visitor.visit(&dir, path);
            Ok((beneath::list(&dir, self.left)?, dir))
        });
        let (entries, dir) = match (listed, path) {
            (Ok((Some(entries), dir)), _) => (entries, dir),
            (Ok((None, _)), _) => {
                return Err(HideError::TooMany { max: self.rules.max_entries });
            }
            // Gone since it was listed.
            (Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP), Some(_)) => {
                return Ok(());
            }
            // The overlay may be able to read a directory that the caller cannot. A mount point is hidden
            // too: the sandbox would see the files below it, which cannot be searched.
            (Err(Errno::ACCESS | Errno::PERM | Errno::XDEV), Some(path)) => {
                self.hidden.insert(path.as_path().to_owned());
                return Ok(());
            }
            (Err(error), path) => {
                let path = path.map_or_else(|| ".".to_owned(), |path| quoted(path.as_path()));
                return Err(HideError::Read { path, source: error.into() });
            }
        };
        self.left -= entries.len() as u64;
        let may_be_cache =
            |path: &RelPath| CACHE_NAMES.iter().any(|name| path.file_name() == *name);
        if place.named.is_none() && path.is_some_and(may_be_cache) && is_tagged_cache(&dir) {
            return Ok(());
        }
        for entry in entries {
            let Ok(child) = RelPath::in_dir(path, &entry.name) else {
                // Too long to be whited out by name: hide the directory it is in.
                self.hidden.extend(path.map(|path| path.as_path().to_owned()));
                break;
            };
            let named = place.named.as_ref().map(|named| named.join(Path::new(&entry.name)));
            self.entry(child, entry.kind, &dir, named)?;
        }
        Ok(())
    }

    /// Judges an entry of the open directory `dir`, by its own path or by another that it has.
    fn entry(
        &mut self,
        path: RelPath,
        kind: FileType,
        dir: impl AsFd,
        named: Option<Folded>,
    ) -> Result<(), HideError> {
        let name = Path::new(path.file_name());
        let kind = match kind {
            FileType::Unknown => match beneath::stat(&dir, name) {
                Ok(Some(stat)) => FileType::from_raw_mode(stat.st_mode),
                Ok(None) => return Ok(()),
                Err(source) => {
                    let path = quoted(path.as_path());
                    return Err(HideError::Read { path, source: source.into() });
                }
            },
            known => known,
        };
        let is_always = self.rules.always.contains(path.as_path());
        let by_own_path = named.is_none();
        if by_own_path {
            self.visitor.see(dir.as_fd(), &path, kind);
        }
        let named = named.unwrap_or_else(|| self.rules.base.join(path.as_path()));
        let is_dir = kind == FileType::Directory;
        let is_hidden = match kind {
            FileType::Symlink => self.link(&path, &named)?,
            _ if is_always => true,
            kind => self.rules.meaning(&named, is_dir).iter().any(|rule| {
                kind != FileType::RegularFile || may_contain(&dir, name, &rule.contains)
            }),
        };
        if is_hidden || is_always || (is_dir && path.depth() > self.rules.max_depth) {
            self.hidden.insert(path.as_path().to_owned());
        } else if is_dir && by_own_path {
            if !self.rules.skipped.iter().any(|skip| skip.matches(&named)) {
                let names = self.links.names_of(Some(&path));
                for named in [None].into_iter().chain(names.into_iter().map(Some)) {
                    self.pending.push(Place { path: Some(path.clone()), named });
                }
            }
        } else if is_dir && let Some(end) = self.rules.leading_end(&named) {
            self.also_named(Some(path), end);
        }
        Ok(())
    }
}

fn is_tagged_cache(dir: impl AsFd) -> bool {
    let Ok((file, _)) = beneath::open_file(dir, Path::new(CACHE_TAG)) else {
        return false;
    };
    let mut start = Vec::new();
    let wanted = CACHE_TAG_SIGNATURE.len() as u64;
    file.take(wanted).read_to_end(&mut start).is_ok() && start == CACHE_TAG_SIGNATURE
}

/// Whether the file may hold one of the texts; the doubtful answer is yes.
fn may_contain(dir: impl AsFd, name: &Path, texts: &[Vec<u8>]) -> bool {
    if texts.is_empty() {
        return true;
    }
    let Ok((file, _)) = beneath::open_file(dir, name) else {
        return true;
    };
    match crate::content::read_bounded(file, CONTENT_BYTES) {
        Ok(Some(mut bytes)) => {
            bytes.make_ascii_lowercase();
            texts.iter().any(|text| bytes.windows(text.len()).any(|window| window == text))
        }
        Ok(None) | Err(_) => true,
    }
}

#[cfg(test)]
mod tests;
