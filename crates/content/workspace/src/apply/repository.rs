//! What the host's own repositories name: a hook directory, a filter, an alias, an included file. Git
//! and Mercurial run or obey those, wherever they are, so `apply` does not write them unasked.
//!
//! Which settings name a program is not a list here: every word of every value counts that could be
//! a path of the workspace, but for settings that hold nothing but names of branches and the like.

mod config;
mod modules;
mod named;

use std::collections::BTreeSet;
use std::io;
use std::path::{Path, PathBuf};

use super::ApplyError;
use super::held::Held;
use super::survey::Survey;
use crate::check::home_in_passwd;
use crate::manifest::Change;
use crate::owners::Owners;
use crate::path::RelPath;
use crate::show::quoted;
use config::{Config, Setting};
use named::{Meant, NamedPaths};

/// Configuration files of one repository, those that they include counted.
const MAX_FILES: usize = 64;
const MAX_CONFIG_BYTES: u64 = 1 << 20;
/// A `.git` file, or one that names a directory.
const MAX_POINTER_BYTES: u64 = 8 << 10;

/// A repository on the host: where its files are checked out, and what it is configured by.
struct Repository {
    /// None for what a person configures for all repositories.
    top: Option<PathBuf>,
    configs: Vec<PathBuf>,
}

/// The paths among `changes` that the host's repositories name, and `allowed` does not.
pub(super) fn named(
    changes: &[&Change],
    held: &Held<'_>,
    survey: &Survey,
    allowed: &[RelPath],
) -> Result<Vec<RelPath>, ApplyError> {
    let mut all = NamedPaths::of(held.path());
    for repository in repositories(changes, held, survey)? {
        collect(&repository, held, &mut all)?;
    }
    all.follow_links(held, survey);
    // Naming an ordinary directory allows nothing below it.
    let is_allowed = |path: &RelPath| {
        allowed
            .iter()
            .any(|it| it == path || (path.is_within(it.as_path()) && all.mean(it.as_path())))
    };
    let found = changes.iter().filter(|change| all.are_changed_by(change));
    Ok(found.map(|change| change.path.clone()).filter(|path| !is_allowed(path)).collect())
}

/// The repositories that the workspace is in, those inside it, and what a person configures for all.
fn repositories(
    changes: &[&Change],
    held: &Held<'_>,
    survey: &Survey,
) -> Result<Vec<Repository>, ApplyError> {
    let mut configs = user_configs();
    configs.extend(home().map(|home| home.join(".hgrc")));
    let mut found = vec![Repository { top: None, configs }];
    let owners = Owners::of(held.path());
    // All of them: the repository of a submodule is in another one.
    for above in held.path().ancestors().skip(1) {
        // Git takes no repository of another user either.
        if [".git", ".hg"].iter().any(|name| owners.own(&above.join(name))) {
            found.extend(Repository::at(above, held)?);
        }
    }
    // Directories that the survey leaves out can have a repository, too.
    let changed = changes.iter().flat_map(|change| change.path.ancestors());
    let surveyed = survey.repositories.iter().map(PathBuf::as_path);
    let directories: BTreeSet<&Path> =
        [Path::new("")].into_iter().chain(changed).chain(surveyed).collect();
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
        let top = Some(top.to_owned());
        Ok((!configs.is_empty()).then_some(Repository { top, configs }))
    }

    /// The directory that a value does not name by naming one above it. A person's own configuration names
    /// repositories, which may be the workspace, in settings that hold no path to a file.
    fn top_for<'a>(&'a self, setting: &Setting, held: &'a Held<'_>) -> &'a Path {
        match &self.top {
            Some(top) => top,
            None if setting.is_path() => Path::new("/"),
            None => held.path(),
        }
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
    all: &mut NamedPaths,
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
        // A person's own configuration may be a link to a file of the workspace.
        if let Ok(real) = held.reach(&file).canonicalize() {
            all.add(&real, Meant::Path, held.path());
        }
        let directory = file.parent().unwrap_or(Path::new("/"));
        let bases: Vec<&Path> = repository.top.as_deref().into_iter().chain([directory]).collect();
        for setting in Config::new(&text) {
            if setting.is_inclusion() {
                waiting.extend(expanded(&setting.value).map(|path| directory.join(path)));
            }
            for path in paths_of(&setting, &bases, held) {
                // A link of the user's own leads to the executed file.
                let target = held.reach(&path).canonicalize().ok();
                for path in [Some(path), target].into_iter().flatten() {
                    all.add(&path, Meant::Path, repository.top_for(&setting, held));
                }
            }
            name_modules(&setting, &bases, repository.top_for(&setting, held), all);
        }
    }
    Ok(())
}

/// Every path that the value could mean, whether it is there or not.
fn paths_of(setting: &Setting, bases: &[&Path], held: &Held<'_>) -> Vec<PathBuf> {
    let mut paths = Vec::new();
    let directories = setting.directories();
    let words = setting.words().into_iter().chain(directories.iter().cloned());
    for original in words {
        // A user without a home that we know owns no workspace of ours.
        let Some(word) = expanded(&original) else { continue };
        // `$(git rev-parse --show-toplevel)/tools/x` leaves `/tools/x`.
        let relative = word.strip_prefix("/").unwrap_or(&word);
        let is_path = word.as_os_str().as_encoded_bytes().iter().any(|b| matches!(b, b'/' | b'.'));
        for base in bases {
            let path = base.join(relative);
            let is_meant = is_path || setting.is_path() || directories.contains(&original);
            if is_meant || held.reach(&path).is_file() {
                paths.push(path);
            }
        }
        if word.is_absolute() {
            // `${HOME}/tools/x` leaves the same.
            paths.extend(home().map(|home| home.join(relative)));
            paths.push(word);
        }
    }
    paths
}

/// Adds the files and directories in which an interpreter finds the modules that a value names.
fn name_modules(setting: &Setting, bases: &[&Path], top: &Path, all: &mut NamedPaths) {
    let modules = setting.modules();
    for base in bases {
        for module in &modules.names {
            let mut package = base.to_path_buf();
            let packages = module.split('.').map(|name| {
                package.push(name);
                package.clone()
            });
            let installed =
                ["node_modules", "node_modules/.bin"].map(|it| base.join(it).join(module));
            for path in packages.chain(installed).chain([base.join(module)]) {
                all.add(&path, Meant::Path, top);
                all.add(&path, Meant::WithEnding, top);
            }
        }
        if modules.from_top {
            all.add(base, Meant::NewModules, top);
        }
    }
}

/// Without `~`, `~user` and `$HOME` at its beginning; none if that user is not known.
fn expanded(text: &str) -> Option<PathBuf> {
    // The sign before the name of a variable divides words.
    if let (Some(rest), Some(home)) = (text.strip_prefix("HOME/"), home()) {
        return Some(home.join(rest));
    }
    let Some(rest) = text.strip_prefix('~') else { return Some(PathBuf::from(text)) };
    let (user, rest) = rest.split_once('/').unwrap_or((rest, ""));
    let home = if user.is_empty() { home() } else { home_of(user) };
    home.map(|home| home.join(rest))
}

/// The home directory of another user, by the password file.
fn home_of(user: &str) -> Option<PathBuf> {
    let own =
        ["USER", "LOGNAME"].iter().any(|name| std::env::var(name).is_ok_and(|own| own == user));
    home_in_passwd(user).or_else(|| home().filter(|_| own))
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn homes_are_expanded_however_they_are_written() {
        let own = home().unwrap();
        assert_eq!(expanded("~/tools/x"), Some(own.join("tools/x")));
        assert_eq!(expanded("HOME/tools/x"), Some(own.join("tools/x")));
        assert_eq!(expanded("~"), Some(own));
        assert_eq!(expanded("~root/tools/x"), home_in_passwd("root").map(|it| it.join("tools/x")));
        assert_eq!(expanded("~nobody-has-this-name/x"), None);
        assert_eq!(expanded("tools/x"), Some(PathBuf::from("tools/x")));
    }
}
