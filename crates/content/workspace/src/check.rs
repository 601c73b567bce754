//! Whether a directory may be a workspace at all.
//!
//! A sandbox sees all of its workspace. Handing it a home directory or a part of the system is
//! nearly always a slip, and a costly one, so it is refused with the fix.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Component, Path, PathBuf};

use rustix::io::Errno;

use crate::beneath;
use crate::content;
use crate::follow::forms_of;
use crate::hide::HideRules;
use crate::pattern::rule_lines;
use crate::show::quoted;

const SYSTEM_DIRECTORIES: &str = include_str!("rules/system-directories.rules");
/// Far more than any password file; more is not read.
const MAX_PASSWD_BYTES: u64 = 4 << 20;

/// A directory that may be a workspace: absolute, without symbolic links, and held open.
#[derive(Debug)]
pub struct CheckedWorkspace {
    path: PathBuf,
    fd: OwnedFd,
}

impl CheckedWorkspace {
    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl AsFd for CheckedWorkspace {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

#[derive(Debug, thiserror::Error)]
pub enum WorkspaceError {
    #[error("the workspace {0} does not exist; create it or give another directory")]
    Missing(String),
    #[error("the workspace {0} is not a directory; give the directory that holds it")]
    NotADirectory(String),
    #[error(
        "the path {given} leads through a link to {target}, outside the link's own directory; give {target} itself if you mean it"
    )]
    LinkOutside { given: String, target: String },
    #[error("the workspace {0} is the whole system; give the directory of one project")]
    Root(String),
    #[error("the workspace {0} is a home directory; give the directory of one project in it")]
    Home(String),
    #[error(
        "the workspace {path} contains the home directory {home}; give the directory of one project"
    )]
    ContainsHome { path: String, home: String },
    #[error(
        "the workspace {0} is, or lies in, a directory of keys, which is hidden from sandboxes; give the directory of one project"
    )]
    Hidden(String),
    #[error("the workspace {0} is a system directory; give the directory of one project")]
    System(String),
    #[error(
        "the path {0} of the workspace has a link in it, which may lead elsewhere than was checked; give the path without links"
    )]
    Replaced(String),
    #[error("the workspace {path} cannot be opened")]
    Open { path: String, source: io::Error },
}

/// Resolves `given` and refuses what should never be a workspace.
pub fn check_workspace(given: &Path) -> Result<CheckedWorkspace, WorkspaceError> {
    let homes = home_directories();
    check_against(given, &homes)
}

/// Opens a path that [`check_workspace`] gave before, and was decided about since. The target of a
/// link was not decided about.
pub fn open_workspace(path: &Path) -> Result<CheckedWorkspace, WorkspaceError> {
    open_against(path.to_owned(), &home_directories())
}

/// Resolves a path of a file or directory to show. Policy and grant judge the path without links, and a link
/// that a command could have made must not choose it.
pub fn resolve_shown(given: &Path) -> Result<PathBuf, WorkspaceError> {
    follow(given, LastLink::OfSystemToo)
}

fn check_against(given: &Path, homes: &[PathBuf]) -> Result<CheckedWorkspace, WorkspaceError> {
    let resolved = resolve(given)?;
    if names_secret(given) {
        return Err(WorkspaceError::Hidden(quoted(given)));
    }
    open_against(resolved, homes)
}

/// Whether a path that a person gave means a secret by the name of a link on its way: `.aws`, where
/// that leads to `secrets/aws`. Once the path is resolved, nothing of that name is left. A path without
/// links is judged where it is opened.
pub fn names_secret(given: &Path) -> bool {
    let Ok(given) = std::path::absolute(given) else { return true };
    let Ok(real) = given.canonicalize() else { return false };
    let is_hidden = |form: &Path| {
        let rules = HideRules::below(form);
        rules.hides_base() || (real.is_file() && rules.hides_content(form, &real))
    };
    forms_of(&given).iter().any(|form| *form != real && is_hidden(form))
}

fn open_against(path: PathBuf, homes: &[PathBuf]) -> Result<CheckedWorkspace, WorkspaceError> {
    let shown = || quoted(&path);
    if path == Path::new("/") {
        return Err(WorkspaceError::Root(shown()));
    }
    if homes.contains(&path) {
        return Err(WorkspaceError::Home(shown()));
    }
    if HideRules::of_directory(&path).hides_base() {
        return Err(WorkspaceError::Hidden(shown()));
    }
    if is_system_directory(&path) {
        return Err(WorkspaceError::System(shown()));
    }
    if let Some(home) = homes.iter().find(|home| home.starts_with(&path)) {
        return Err(WorkspaceError::ContainsHome { path: shown(), home: quoted(home) });
    }
    let fd = beneath::open_root(&path).map_err(|error| match error {
        Errno::LOOP => WorkspaceError::Replaced(shown()),
        Errno::NOENT => WorkspaceError::Missing(shown()),
        Errno::NOTDIR => WorkspaceError::NotADirectory(shown()),
        error => WorkspaceError::Open { path: shown(), source: error.into() },
    })?;
    Ok(CheckedWorkspace { path, fd })
}

fn resolve(given: &Path) -> Result<PathBuf, WorkspaceError> {
    let resolved = follow(given, LastLink::Inside)?;
    if !resolved.is_dir() {
        return Err(WorkspaceError::NotADirectory(quoted(given)));
    }
    Ok(resolved)
}

/// Which links may be the last part of a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum LastLink {
    /// Only one that stays inside its own directory.
    Inside,
    /// Also one of the system's own.
    OfSystemToo,
}

fn follow(given: &Path, last: LastLink) -> Result<PathBuf, WorkspaceError> {
    let shown = || quoted(given);
    let open_error = |source: io::Error| match source.kind() {
        io::ErrorKind::NotFound => WorkspaceError::Missing(shown()),
        io::ErrorKind::NotADirectory => WorkspaceError::NotADirectory(shown()),
        _ => WorkspaceError::Open { path: shown(), source },
    };
    if given.as_os_str().is_empty() {
        return Err(WorkspaceError::Missing("\"\"".to_owned()));
    }
    let absolute = std::env::current_dir().map_err(open_error)?.join(given);
    let mut resolved = PathBuf::from("/");
    let mut parts = absolute.components().peekable();
    while let Some(part) = parts.next() {
        let name = match part {
            Component::Normal(name) => name,
            Component::ParentDir => {
                resolved.pop();
                continue;
            }
            _ => continue,
        };
        let next = resolved.join(name);
        let found = next.symlink_metadata().map_err(open_error)?;
        if !found.is_symlink() {
            resolved = next;
            continue;
        }
        let target = next.canonicalize().map_err(open_error)?;
        let may_be_last = last == LastLink::OfSystemToo || parts.peek().is_some();
        let allowed = may_be_last && is_of_system(&resolved, &found);
        if !target.starts_with(&resolved) && !allowed {
            let target = quoted(&target.join(parts.collect::<PathBuf>()));
            return Err(WorkspaceError::LinkOutside { given: shown(), target });
        }
        resolved = target;
    }
    Ok(resolved)
}

/// Whether a link in this directory is no job's: `/home` or `/tmp`, say. A job that can write to a directory could
/// have put a link there, and `apply` could have. Where the caller is root, such a link is root's, too, so
/// only those in the system's own directories count.
fn is_of_system(directory: &Path, link: &std::fs::Metadata) -> bool {
    let by_root = rustix::process::geteuid().is_root();
    link.uid() == 0 && (!by_root || directory == Path::new("/") || is_system_directory(directory))
}

/// The rule with the longest path decides; `tree` and `allow` also decide about the paths below.
fn is_system_directory(path: &Path) -> bool {
    let mut decided = (0, false);
    for line in rule_lines(SYSTEM_DIRECTORIES) {
        let Some((word, rule)) = line.split_once(' ') else {
            continue;
        };
        let rule = Path::new(rule.trim());
        let (applies, refuses) = match word {
            "exact" => (path == rule, true),
            "tree" => (path.starts_with(rule), true),
            _ => (path.starts_with(rule) && path != rule, false),
        };
        if applies && rule.as_os_str().len() >= decided.0 {
            decided = (rule.as_os_str().len(), refuses);
        }
    }
    decided.1
}

/// The home directory of a user, as the password file has it.
pub(crate) fn home_in_passwd(user: &str) -> Option<PathBuf> {
    passwd().into_iter().find(|(name, _)| name == user.as_bytes()).map(|(_, home)| home)
}

/// Users and their home directories.
fn passwd() -> Vec<(Vec<u8>, PathBuf)> {
    let passwd = std::fs::File::open("/etc/passwd")
        .and_then(|file| content::read_bounded(file, MAX_PASSWD_BYTES))
        .ok()
        .flatten()
        .unwrap_or_default();
    let user = |line: &[u8]| {
        let mut fields = line.split(|byte| *byte == b':');
        let name = fields.next()?.to_vec();
        Some((name, PathBuf::from(beneath::os_bytes(fields.nth(4)?))))
    };
    passwd.split(|byte| *byte == b'\n').filter_map(user).collect()
}

/// Every home directory that is known: the caller's by environment, everybody's by password file.
fn home_directories() -> Vec<PathBuf> {
    let mut homes: Vec<PathBuf> = std::env::var_os("HOME").map(PathBuf::from).into_iter().collect();
    homes.push(PathBuf::from("/root"));
    homes.extend(passwd().into_iter().map(|(_, home)| home));
    homes.retain(|home| home.is_absolute() && home.as_os_str().as_bytes() != b"/");
    let resolved: Vec<PathBuf> = homes.iter().filter_map(|home| home.canonicalize().ok()).collect();
    homes.extend(resolved);
    homes
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    fn check(path: &Path) -> Result<PathBuf, WorkspaceError> {
        check_workspace(path).map(|workspace| workspace.path().to_owned())
    }

    #[test]
    fn an_ordinary_directory_is_accepted_and_canonical() {
        let dir = tempfile::tempdir().unwrap();
        let project = dir.path().canonicalize().unwrap().join("project");
        std::fs::create_dir(&project).unwrap();
        assert_eq!(check(&project.join("../project/.")).unwrap(), project);
    }

    #[test]
    fn what_is_missing_or_a_file_is_refused_with_the_fix() {
        let dir = tempfile::tempdir().unwrap();
        let missing = check(&dir.path().join("nope")).unwrap_err();
        assert!(missing.to_string().ends_with("create it or give another directory"));
        std::fs::write(dir.path().join("file"), "x").unwrap();
        let file = dir.path().join("file");
        assert!(matches!(check(&file), Err(WorkspaceError::NotADirectory(_))));
        assert!(matches!(check(&file.join("x")), Err(WorkspaceError::NotADirectory(_))));
        assert!(matches!(check(Path::new("")), Err(WorkspaceError::Missing(_))));
    }

    #[test]
    fn the_system_and_its_parts_are_refused() {
        assert!(matches!(check(Path::new("/")), Err(WorkspaceError::Root(_))));
        for path in ["/usr", "/usr/bin", "/etc", "/var", "/proc", "/proc/self", "/sys", "/dev"] {
            let error = check(Path::new(path)).unwrap_err();
            assert!(!matches!(error, WorkspaceError::Open { .. }), "{path}: {error}");
        }
        assert!(is_system_directory(Path::new("/var/lib")));
        assert!(is_system_directory(Path::new("/tmp")));
        assert!(is_system_directory(Path::new("/usr/src")));
        for path in ["/usr/src/app", "/var/lib/ci/project", "/tmp/x", "/srv/app", "/dev/shm/x"] {
            assert!(!is_system_directory(Path::new(path)), "{path}");
        }
    }

    #[test]
    fn a_home_directory_and_what_contains_it_are_refused_but_not_projects_in_it() {
        let dir = tempfile::tempdir().unwrap();
        let users = dir.path().canonicalize().unwrap();
        let homes = [users.join("users/ada")];
        std::fs::create_dir_all(homes[0].join("project")).unwrap();
        let check = |path: &Path| check_against(path, &homes);
        assert!(matches!(check(&homes[0]), Err(WorkspaceError::Home(_))));
        assert!(matches!(check(&users), Err(WorkspaceError::ContainsHome { .. })));
        assert!(check(&homes[0].join("project")).is_ok());
    }

    #[test]
    fn a_directory_of_keys_is_no_workspace_by_the_name_of_a_link_either() {
        let dir = tempfile::tempdir().unwrap();
        let base = dir.path().canonicalize().unwrap();
        std::fs::create_dir_all(base.join("secrets/aws/sso")).unwrap();
        std::fs::create_dir_all(base.join("docker")).unwrap();
        std::fs::write(base.join("secrets/key"), "-----BEGIN PRIVATE KEY-----").unwrap();
        std::fs::write(base.join("secrets/cert"), "-----BEGIN CERTIFICATE-----").unwrap();
        for (target, link) in [
            ("secrets/aws", ".aws"),
            (".aws", "chain"),
            ("secrets/key", "server.pem"),
            ("secrets/cert", "ca.pem"),
            ("secrets/key", "plain"),
            ("docker", ".docker"),
        ] {
            symlink(target, base.join(link)).unwrap();
        }
        std::fs::write(base.join("docker/config.json"), "{}").unwrap();
        for path in [".aws", ".aws/sso", "chain", "chain/sso", "docker/../.aws"] {
            let refused = check(&base.join(path));
            assert!(matches!(refused, Err(WorkspaceError::Hidden(_))), "{path}: {refused:?}");
        }
        for path in ["server.pem", "chain/sso", ".docker/config.json"] {
            assert!(names_secret(&base.join(path)), "{path}");
        }
        for path in ["ca.pem", "secrets", "docker", ".docker", "absent"] {
            assert!(!names_secret(&base.join(path)), "{path}");
        }
        assert!(check(&base.join("docker")).is_ok());
    }

    #[test]
    fn a_link_may_lead_deeper_but_not_out() {
        let dir = tempfile::tempdir().unwrap();
        let base = dir.path().canonicalize().unwrap();
        std::fs::create_dir_all(base.join("a/real")).unwrap();
        std::fs::create_dir_all(base.join("elsewhere")).unwrap();
        symlink("real", base.join("a/inside")).unwrap();
        symlink("../elsewhere", base.join("a/outside")).unwrap();
        assert_eq!(check(&base.join("a/inside")).unwrap(), base.join("a/real"));
        let outside = base.join("a/outside");
        assert!(matches!(check(&outside), Err(WorkspaceError::LinkOutside { .. })));
        let with_slash = base.join("a/outside/");
        assert!(matches!(check(&with_slash), Err(WorkspaceError::LinkOutside { .. })));
    }

    #[test]
    fn a_link_on_the_way_that_leads_out_is_refused_unless_it_is_the_systems() {
        let dir = tempfile::tempdir().unwrap();
        let base = dir.path().canonicalize().unwrap();
        std::fs::create_dir_all(base.join("elsewhere/sub")).unwrap();
        std::fs::create_dir_all(base.join("project/real/sub")).unwrap();
        symlink("real", base.join("project/inside")).unwrap();
        symlink("../elsewhere", base.join("project/outside")).unwrap();
        let real = base.join("project/real/sub");
        assert_eq!(check(&base.join("project/inside/sub")).unwrap(), real);
        assert_eq!(check(&base.join("project/inside/../real/./sub/")).unwrap(), real);
        let outside = base.join("project/outside");
        // For root this one is root's, as what root has applied is.
        let refused = [check(&outside.join("sub")), resolve_shown(&outside.join("sub"))];
        for refused in refused.into_iter().chain([resolve_shown(&outside)]) {
            assert!(matches!(refused, Err(WorkspaceError::LinkOutside { .. })), "{refused:?}");
        }
        // On most systems a link to /run.
        let of_system = Path::new("/var/run");
        assert_eq!(resolve_shown(of_system).unwrap(), of_system.canonicalize().unwrap());
        assert_eq!(resolve_shown(&base.join("project/inside")).unwrap(), base.join("project/real"));
    }
}
