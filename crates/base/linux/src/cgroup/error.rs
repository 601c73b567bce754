//! What can go wrong with a control group, in words a person can act on.

use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::Controller;

#[derive(Debug, thiserror::Error)]
pub enum CgroupError {
    #[error(
        "{0:?} is not a group name; use 1 to 63 characters of a-z, 0-9, '-', '_' and '.', starting with a letter or digit"
    )]
    BadName(String),
    #[error("the control group {0:?} already exists; `ringwall gc` removes what a crash left")]
    NameTaken(PathBuf),
    #[error("no control group can be made: {reason}; {fix}")]
    NotUsable { reason: String, fix: String },
    #[error("the {controller} controller is not usable here; {fix}")]
    ControllerMissing { controller: Controller, fix: String },
    #[error("cannot {doing} {path:?}: {source}")]
    Io { doing: &'static str, path: PathBuf, source: io::Error },
    #[error("the kernel's {path:?} reads {text:?}, which is not a number that Ringwall knows")]
    Unreadable { path: PathBuf, text: String },
    #[error(
        "the control group {path:?} still has living processes after {waited:?}; kill the processes listed in its cgroup.procs"
    )]
    StillBusy { path: PathBuf, waited: Duration },
}

impl CgroupError {
    pub(super) fn io(doing: &'static str, path: &Path, source: impl Into<io::Error>) -> Self {
        CgroupError::Io { doing, path: path.to_owned(), source: source.into() }
    }
}
