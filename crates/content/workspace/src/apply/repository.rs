//! What the host's own repositories name: a hook directory, a filter, an alias, an included file. Git
//! and Mercurial run or obey those, wherever they are, so `apply` does not write them unasked.
//!
//! Which settings name a program is not a list here: every word of every value counts that could be
//! a path of the workspace, but for settings that hold nothing but names of branches and the like.

mod config;

use std::collections::BTreeSet;
use std::io;
use std::path::{Path, PathBuf};

use super::ApplyError;
use super::held::Held;
use crate::manifest::{After, Change};
use crate::path::RelPath;
use crate::pattern::fold;
use crate::show::quoted;
use config::{Config, Setting};

/// Configuration files of one repository, those that they include counted.
const MAX_FILES: usize = 64;
const MAX_CONFIG_BYTES: u64 = 1 << 20;
/// A `.git` file, or one that names a directory.
const MAX_POINTER_BYTES: u64 = 8 << 10;

/// A path of the workspace that a setting names.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Named {
    /// Folded, as a file system without letter case would have it.
    names: Vec<Vec<u8>>,
}

/// A repository on the host: where its files are checked out, and what it is configured by.
struct Repository {
    top: PathBuf,
    configs: Vec<PathBuf>,
}

/// The paths among `changes` that the host's repositories name, and `allowed` does not.
pub(super) fn named(
    changes: &[&Change],
    held: &Held<'_>,
    allowed: &[RelPath],
) -> Result<Vec<RelPath>, ApplyError> {
    let mut all = BTreeSet::new();
    for repository in repositories(changes, held)? {
        collect(&repository, held, &mut all)?;
    }
    let is_below = |path: &Path| {
        let path = folded(path);
        all.iter().any(|named| path.starts_with(&named.names))
    };
    // A link or file that takes the place of a directory above brings its own content.
    let replaces = |change: &Change| {
        let path = folded(change.path.as_path());
        !matches!(change.after, Some(After::Directory { .. }))
            && all.iter().any(|named| named.names.starts_with(&path))
    };
    // Naming an ordinary directory allows nothing below it.
    let is_allowed = |path: &RelPath| {
        allowed
            .iter()
            .any(|it| it == path || (path.is_within(it.as_path()) && is_below(it.as_path())))
    };
    let found = changes.iter().filter(|change| is_below(change.path.as_path()) || replaces(change));
    Ok(found.map(|change| change.path.clone()).filter(|path| !is_allowed(path)).collect())
}

/// The repository that the workspace is in, and those inside it that changes are in.
fn repositories(changes: &[&Change], held: &Held<'_>) -> Result<Vec<Repository>, ApplyError> {
    let mut found = Vec::new();
    for above in held.path().ancestors() {
        if let Some(repository) = Repository::at(above, held)? {
            found.push(repository);
            break;
        }
    }
    let directories: BTreeSet<&Path> =
        changes.iter().flat_map(|change| change.path.ancestors()).collect();
    for directory in directories {
        found.extend(Repository::at(&held.path().join(directory), held)?);
    }
    Ok(found)
}

impl Repository {
    /// The repository whose files are checked out in this directory, if there is one.
    fn at(top: &Path, held: &Held<'_>) -> Result<Option<Repository>, ApplyError> {
        let mut configs = Vec::new();
        if let Some(git) = git_directory(&top.join(".git"), held)? {
            configs.push(git.join("config.worktree"));
            // A worktree's directory names the one that all worktrees have in common.
            let common = pointer(&git.join("commondir"), held)?;
            configs.push(common.map_or(git.clone(), |common| git.join(common)).join("config"));
            configs.extend(user_configs());
        }
        let mercurial = top.join(".hg");
        if held.reach(&mercurial).is_dir() {
            configs.extend(["hgrc", "hgrc-not-shared"].map(|name| mercurial.join(name)));
            configs.extend(home().map(|home| home.join(".hgrc")));
        }
        let repository = Repository { top: top.to_owned(), configs };
        Ok((!repository.configs.is_empty()).then_some(repository))
    }
}

/// Where a `.git` leads: a directory, or a file that names one.
fn git_directory(git: &Path, held: &Held<'_>) -> Result<Option<PathBuf>, ApplyError> {
    match held.reach(git).metadata() {
        Ok(metadata) if metadata.is_dir() => Ok(Some(git.to_owned())),
        Ok(_) => {
            let target = pointer(git, held)?;
            let directory = git.parent().unwrap_or(Path::new("/"));
            Ok(target.map(|target| directory.join(target)))
        }
        Err(error) if is_absent(&error) => Ok(None),
        Err(source) => Err(unreadable(git, source)),
    }
}

/// The path in a file of one line, after `gitdir:` where that stands there.
fn pointer(file: &Path, held: &Held<'_>) -> Result<Option<PathBuf>, ApplyError> {
    let Some(text) = read(file, held, MAX_POINTER_BYTES)? else { return Ok(None) };
    let line = text.lines().next().unwrap_or_default();
    let path = line.strip_prefix("gitdir:").unwrap_or(line).trim();
    Ok((!path.is_empty()).then(|| PathBuf::from(path)))
}

/// What a person configures for all repositories. It names paths of each of them by `..` and plain
/// words, such as `core.hooksPath = .githooks`.
fn user_configs() -> Vec<PathBuf> {
    let variable = |name| std::env::var_os(name).filter(|value| !value.is_empty());
    let mut configs =
        vec![variable("GIT_CONFIG_SYSTEM").map_or(PathBuf::from("/etc/gitconfig"), PathBuf::from)];
    configs.extend(variable("GIT_CONFIG_GLOBAL").map(PathBuf::from));
    let home = home();
    let xdg = variable("XDG_CONFIG_HOME").map(PathBuf::from);
    configs.extend(
        xdg.or(home.as_ref().map(|home| home.join(".config"))).map(|xdg| xdg.join("git/config")),
    );
    configs.extend(home.map(|home| home.join(".gitconfig")));
    configs
}

fn home() -> Option<PathBuf> {
    std::env::var_os("HOME").filter(|home| !home.is_empty()).map(PathBuf::from)
}

/// Adds whatever the repository's settings name in the workspace.
fn collect(
    repository: &Repository,
    held: &Held<'_>,
    all: &mut BTreeSet<Named>,
) -> Result<(), ApplyError> {
    let mut waiting = repository.configs.clone();
    let mut seen = BTreeSet::new();
    while let Some(file) = waiting.pop() {
        if !seen.insert(file.clone()) {
            continue;
        }
        if seen.len() > MAX_FILES {
            let source = io::Error::other(format!("more than {MAX_FILES} files are included"));
            return Err(unreadable(&file, source));
        }
        let Some(text) = read(&file, held, MAX_CONFIG_BYTES)? else { continue };
        let directory = file.parent().unwrap_or(Path::new("/"));
        let bases = [repository.top.as_path(), directory];
        for setting in Config::new(&text) {
            if setting.is_inclusion() {
                let included = directory.join(expanded(&setting.value));
                waiting.push(included);
            }
            for path in paths_of(&setting, &bases, held) {
                // A link of the user's own leads to the executed file.
                let target = held.reach(&path).canonicalize().ok();
                for path in [Some(path), target].into_iter().flatten() {
                    all.extend(Named::inside(&path, held.path()));
                }
            }
        }
    }
    Ok(())
}

/// Every path that the value could mean, whether it is there or not.
fn paths_of(setting: &Setting, bases: &[&Path], held: &Held<'_>) -> Vec<PathBuf> {
    let mut paths = Vec::new();
    for word in setting.words() {
        let word = expanded(&word);
        // `$(git rev-parse --show-toplevel)/tools/x` leaves `/tools/x`.
        let relative = word.strip_prefix("/").unwrap_or(&word);
        let is_path = word.as_os_str().as_encoded_bytes().iter().any(|b| matches!(b, b'/' | b'.'));
        for base in bases {
            let path = base.join(relative);
            if is_path || setting.is_path() || held.reach(&path).is_file() {
                paths.push(path);
            }
        }
        if word.is_absolute() {
            paths.push(word);
        }
    }
    paths
}

fn expanded(text: &str) -> PathBuf {
    match (text.strip_prefix("~/"), home()) {
        (Some(rest), Some(home)) => home.join(rest),
        _ => PathBuf::from(text),
    }
}

impl Named {
    fn inside(path: &Path, workspace: &Path) -> Option<Named> {
        let relative = plain(path)?.strip_prefix(workspace).ok()?.to_owned();
        let names = folded(&relative);
        // A value that names the workspace itself names nothing in it.
        (!names.is_empty()).then_some(Named { names })
    }
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

/// A configuration's text; a missing file says nothing.
fn read(path: &Path, held: &Held<'_>, max_bytes: u64) -> Result<Option<String>, ApplyError> {
    let file = match std::fs::File::open(held.reach(path)) {
        Ok(file) => file,
        // The file belongs to another user, such as root: programs of this one cannot read it either.
        Err(error) if is_absent(&error) || error.kind() == io::ErrorKind::PermissionDenied => {
            return Ok(None);
        }
        Err(source) => return Err(unreadable(path, source)),
    };
    let bytes = crate::content::read_bounded(file, max_bytes)
        .map_err(|source| unreadable(path, source))?
        .ok_or_else(|| unreadable(path, io::Error::other("it is too large")))?;
    Ok(Some(String::from_utf8_lossy(&bytes).into_owned()))
}

fn is_absent(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory)
}

fn unreadable(path: &Path, source: io::Error) -> ApplyError {
    ApplyError::Repository { path: quoted(path), source }
}
