//! Why a file was not used.

use std::io;
use std::path::{Path, PathBuf};

use crate::trust::Trust;

#[derive(Debug, thiserror::Error)]
pub enum FileError {
    #[error("{} is there already", .0.display())]
    Exists(PathBuf),
    #[error("{} is missing", .0.display())]
    Missing(PathBuf),
    #[error("{} is {found}; {}", path.display(), trust.rule(path))]
    Untrusted { path: PathBuf, found: &'static str, trust: Trust },
    #[error("{} is larger than {most} bytes", .path.display())]
    TooLarge { path: PathBuf, most: u64 },
    #[error("{} cannot be used", .path.display())]
    Use { path: PathBuf, source: io::Error },
    #[error("the system gave no random bytes")]
    Random(#[source] io::Error),
}

impl FileError {
    /// Gives an error of the system the path that it is about.
    pub fn at(path: &Path) -> impl Fn(io::Error) -> FileError + '_ {
        move |source| match source.kind() {
            io::ErrorKind::NotFound => FileError::Missing(path.to_owned()),
            io::ErrorKind::AlreadyExists => FileError::Exists(path.to_owned()),
            _ => FileError::Use { path: path.to_owned(), source },
        }
    }

    pub(crate) fn errno(path: &Path) -> impl Fn(rustix::io::Errno) -> FileError + '_ {
        move |errno| FileError::at(path)(errno.into())
    }
}

/// For callers whose own error names the path.
impl From<FileError> for io::Error {
    fn from(error: FileError) -> io::Error {
        let kind = match error {
            FileError::Use { source, .. } | FileError::Random(source) => return source,
            FileError::Exists(_) => io::ErrorKind::AlreadyExists,
            FileError::Missing(_) => io::ErrorKind::NotFound,
            FileError::Untrusted { .. } => io::ErrorKind::PermissionDenied,
            FileError::TooLarge { .. } => io::ErrorKind::FileTooLarge,
        };
        io::Error::new(kind, error)
    }
}
