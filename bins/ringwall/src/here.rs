//! Whether the current directory becomes the workspace where the command names none.
//!
//! Only a project does: a directory below the caller's home or in a repository. It is seen
//! copy-on-write, like any workspace, and whatever cannot be a workspace is not taken.

use std::io::{self, IsTerminal};
use std::os::unix::fs::MetadataExt;
use std::path::{Component, Path, PathBuf};

use ringwall_engine::{EngineConfig, own_state_in};
use ringwall_workspace::check_workspace;

use crate::args::SandboxArgs;
use crate::report;

/// What came of the current directory.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) enum Here {
    /// A workspace was named, or none is wanted.
    #[default]
    NotAsked,
    Taken,
    /// No project, and it does not look like one.
    Elsewhere(String),
    /// It could be meant, but cannot be one.
    Refused(String),
}

/// Makes the current directory the workspace, where no flag says anything about it. Under a grant the
/// workspace is named.
pub(crate) fn take(args: &mut SandboxArgs) -> anyhow::Result<()> {
    let named = args.workspace.is_some() || args.workspace_rw.is_some() || args.no_workspace;
    if named || args.policy.grant.is_some() {
        return Ok(());
    }
    let home = EngineConfig::from_environment()?.home;
    match project(&home) {
        Ok(path) => {
            args.workspace = Some(path);
            args.here = Here::Taken;
        }
        Err(reason) => args.here = reason,
    }
    Ok(())
}

/// Says on a terminal that there is no workspace, where that may surprise.
pub(crate) fn warn(args: &SandboxArgs) {
    if let Here::Refused(reason) = &args.here
        && io::stderr().is_terminal()
    {
        report::note(reason);
    }
}

/// Says after a failure that there was no workspace: that may be why.
pub(crate) fn explain_failure(args: &SandboxArgs) {
    let on_terminal = io::stderr().is_terminal();
    match &args.here {
        Here::Refused(reason) if !on_terminal => report::note(reason),
        Here::Elsewhere(reason) if on_terminal => report::note(reason),
        _ => {}
    }
}

fn project(state: &Path) -> Result<PathBuf, Here> {
    let current = std::env::current_dir();
    let current = current.map_err(|error| {
        Here::Refused(format!("the command has no workspace: no current directory: {error}"))
    })?;
    let user_home = std::env::var_os("HOME").map(PathBuf::from);
    let user_home = user_home.and_then(|home| home.canonicalize().ok());
    judge(&current, user_home.as_deref(), state)
}

/// `home` is the caller's, `state` where Ringwall keeps its own.
fn judge(current: &Path, home: Option<&Path>, state: &Path) -> Result<PathBuf, Here> {
    let refused = |why: &str| {
        Here::Refused(format!(
            "the command has no workspace: {current:?} {why}; change to a project, or give --workspace DIR or --no-workspace"
        ))
    };
    if home.is_some_and(|home| home.starts_with(current)) {
        return Err(refused("is your home directory, or contains it"));
    }
    let below_home = home.and_then(|home| current.strip_prefix(home).ok());
    if below_home.is_none() && !is_in_repository(current) {
        return Err(Here::Elsewhere(format!(
            "the command has no workspace: {current:?} is neither below your home nor in a repository; give --workspace . if it needs these files"
        )));
    }
    let is_hidden = |part: Component<'_>| part.as_os_str().as_encoded_bytes().starts_with(b".");
    if below_home.is_some_and(|path| path.components().any(is_hidden)) {
        return Err(refused("is in a hidden directory of your home"));
    }
    let path = match check_workspace(current) {
        Ok(checked) => checked.path().to_owned(),
        Err(error) => return Err(refused(&format!("cannot be one ({error})"))),
    };
    let owner = path.metadata().map(|found| found.uid()).ok();
    if owner != Some(rustix::process::geteuid().as_raw()) {
        return Err(refused("belongs to another user"));
    }
    if own_state_in(state, &path).is_some() {
        return Err(refused("holds Ringwall's own state"));
    }
    Ok(path)
}

fn is_in_repository(path: &Path) -> bool {
    path.ancestors().any(|above| above.join(".git").symlink_metadata().is_ok())
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn projects_are_taken_and_nothing_else() {
        let top = tempfile::tempdir().unwrap();
        let top = top.path().canonicalize().unwrap();
        let home = top.join("home");
        for path in ["home/code/app", "home/.ssh/x", "home/a/.b", "srv/repo/.git", "srv/repo/sub"] {
            fs::create_dir_all(top.join(path)).unwrap();
        }
        fs::create_dir_all(top.join("state/.git")).unwrap();
        fs::create_dir_all(top.join("plain")).unwrap();
        let judged = |path: &str| judge(&top.join(path), Some(&home), &top.join("state/own"));
        for taken in ["home/code", "home/code/app", "srv/repo", "srv/repo/sub"] {
            assert_eq!(judged(taken), Ok(top.join(taken)));
        }
        for refused in ["home", "", "home/.ssh", "home/.ssh/x", "home/a/.b", "state"] {
            assert!(matches!(judged(refused), Err(Here::Refused(_))), "{refused}");
        }
        assert!(matches!(judged("plain"), Err(Here::Elsewhere(_))));
        assert!(matches!(judge(Path::new("/"), Some(&home), &top), Err(Here::Refused(_))));
    }

    #[test]
    fn a_directory_of_another_user_is_not_taken() {
        let others = Path::new("/proc/1");
        let judged = judge(others, Some(Path::new("/proc")), Path::new("/nowhere"));
        assert!(matches!(judged, Err(Here::Refused(_))), "{judged:?}");
    }
}
