//! What a command did, as text, with checks that can be chained.

use std::fmt;
use std::process::Output;

/// A command that has ended.
pub struct Ended {
    line: String,
    code: Option<i32>,
    pub stdout: String,
    pub stderr: String,
}

impl Ended {
    pub fn new(line: String, output: &Output) -> Ended {
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let (stdout, stderr) = (text(&output.stdout), text(&output.stderr));
        Ended { line, code: output.status.code(), stdout, stderr }
    }

    #[track_caller]
    pub fn exits(self, code: i32) -> Ended {
        assert_eq!(self.code, Some(code), "wrong exit code\n{self:?}");
        self
    }

    #[track_caller]
    pub fn fails(self) -> Ended {
        assert!(self.code.is_some_and(|code| code != 0), "should fail\n{self:?}");
        self
    }

    #[track_caller]
    pub fn prints(self, text: &str) -> Ended {
        assert_eq!(self.stdout, text, "wrong output\n{self:?}");
        self
    }

    #[track_caller]
    pub fn holds(self, text: &str) -> Ended {
        let found = self.stdout.contains(text) || self.stderr.contains(text);
        assert!(found, "{text:?} is not there\n{self:?}");
        self
    }

    /// The one word that it printed.
    #[track_caller]
    pub fn word(&self) -> String {
        let word = self.stdout.trim();
        assert!(!word.is_empty() && !word.contains(char::is_whitespace), "{self:?}");
        word.to_owned()
    }
}

impl fmt::Debug for Ended {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{} ended with {:?}", self.line, self.code)?;
        writeln!(f, "--- output\n{}\n--- errors\n{}", self.stdout, self.stderr)
    }
}
