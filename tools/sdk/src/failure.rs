//! Why a call did not succeed, in words for a program and for a person.

use std::{fmt, io};

/// A refusal or an error of a tool: `code` is kebab-case and stable, `message` says what to do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failure {
    pub code: String,
    pub message: String,
}

impl Failure {
    pub fn new(code: &str, message: impl fmt::Display) -> Self {
        Self { code: code.to_owned(), message: message.to_string() }
    }

    /// The input cannot be right, whatever the files say.
    pub fn bad_input(message: impl fmt::Display) -> Self {
        Self::new("bad-input", message)
    }

    pub fn not_found(message: impl fmt::Display) -> Self {
        Self::new("not-found", message)
    }

    /// The input does not fit what is there.
    pub fn conflict(message: impl fmt::Display) -> Self {
        Self::new("conflict", message)
    }

    /// More was asked for than the tool does in one call.
    pub fn limit(message: impl fmt::Display) -> Self {
        Self::new("limit", message)
    }

    /// An error of the file system about one path.
    pub fn io(path: impl fmt::Display, error: &io::Error) -> Self {
        let code = match error.kind() {
            io::ErrorKind::NotFound => "not-found",
            io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem => "denied",
            _ => "io",
        };
        Self::new(code, format_args!("{path}: {error}"))
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.code, self.message)
    }
}

impl std::error::Error for Failure {}
