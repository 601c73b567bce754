//! What to run inside a sandbox.

use std::ffi::OsString;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

/// One program to start behind a wall. Arguments and environment are bytes, as the kernel sees
/// them: file names need not be UTF-8.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Command {
    /// Program and arguments. Never empty once admitted.
    pub argv: Vec<OsString>,
    /// Added to the ring's own minimal environment; later entries win.
    pub env: Vec<(OsString, OsString)>,
    /// Working directory inside the ring; the ring's default when absent.
    pub cwd: Option<PathBuf>,
    /// Run on a pseudo-terminal of this size.
    pub terminal: Option<TerminalSize>,
    /// Whether the caller will send standard input; closed at once when false.
    pub stdin: bool,
}

impl Command {
    /// The command as people read it; bytes that are not text are replaced.
    pub fn words(&self) -> Vec<String> {
        self.argv.iter().map(|word| word.to_string_lossy().into_owned()).collect()
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct TerminalSize {
    pub rows: u16,
    pub columns: u16,
}
