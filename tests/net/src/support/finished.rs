//! What a command did, with checks that show all of it when they fail.

use std::fmt;
use std::process::Output;

/// A command that has ended.
pub(crate) struct Finished {
    line: String,
    code: Option<i32>,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

impl Finished {
    pub(crate) fn new(line: String, output: &Output) -> Finished {
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let (stdout, stderr) = (text(&output.stdout), text(&output.stderr));
        Finished { line, code: output.status.code(), stdout, stderr }
    }

    #[track_caller]
    pub(crate) fn exits(self, code: i32) -> Finished {
        assert_eq!(self.code, Some(code), "wrong exit code\n{self:?}");
        self
    }

    #[track_caller]
    pub(crate) fn fails(self) -> Finished {
        assert!(self.code.is_some_and(|code| code != 0), "should fail\n{self:?}");
        self
    }

    #[track_caller]
    pub(crate) fn prints(self, text: &str) -> Finished {
        assert_eq!(self.stdout, text, "wrong output\n{self:?}");
        self
    }

    #[track_caller]
    pub(crate) fn holds(self, text: &str) -> Finished {
        let found = self.stdout.contains(text) || self.stderr.contains(text);
        assert!(found, "{text:?} is not there\n{self:?}");
        self
    }

    /// The one word that it printed.
    #[track_caller]
    pub(crate) fn word(&self) -> String {
        let word = self.stdout.trim();
        assert!(!word.is_empty() && !word.contains(char::is_whitespace), "{self:?}");
        word.to_owned()
    }
}

impl fmt::Debug for Finished {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{} ended with {:?}", self.line, self.code)?;
        writeln!(f, "--- output\n{}\n--- errors\n{}", self.stdout, self.stderr)
    }
}
