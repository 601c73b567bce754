//! Whether what is about to be booted can have been put there by somebody else.

use std::fs::{self, Metadata};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

#[derive(Debug, thiserror::Error)]
pub enum Distrust {
    #[error("cannot look at {}", path.display())]
    Unreadable { path: PathBuf, source: io::Error },
    #[error(
        "{} belongs to another user, who could put any kernel there; `chown` it to root or to yourself",
        .0.display()
    )]
    Owner(PathBuf),
    #[error(
        "{} can be written by others, who could put any kernel there; run `chmod go-w` on it",
        .0.display()
    )]
    Writable(PathBuf),
    #[error("{} is not a {expected}, or is a link; it must be the thing itself", path.display())]
    Kind { path: PathBuf, expected: &'static str },
}

/// A directory of root's or ours that nobody else can change.
pub(crate) fn directory(path: &Path) -> Result<Metadata, Distrust> {
    check(path, "directory", Metadata::is_dir)
}

/// Likewise a file.
pub(crate) fn file(path: &Path) -> Result<Metadata, Distrust> {
    check(path, "file", Metadata::is_file)
}

fn check(
    path: &Path,
    expected: &'static str,
    is_expected: impl Fn(&Metadata) -> bool,
) -> Result<Metadata, Distrust> {
    let found = fs::symlink_metadata(path)
        .map_err(|source| Distrust::Unreadable { path: path.to_owned(), source })?;
    if !is_expected(&found) {
        return Err(Distrust::Kind { path: path.to_owned(), expected });
    }
    if found.uid() != 0 && found.uid() != rustix::process::geteuid().as_raw() {
        return Err(Distrust::Owner(path.to_owned()));
    }
    if found.mode() & 0o022 != 0 {
        return Err(Distrust::Writable(path.to_owned()));
    }
    Ok(found)
}
