//! What a command did, with checks that show all of it when they fail.

use std::fmt;
use std::os::unix::process::ExitStatusExt;
use std::process::{ExitStatus, Output};

use serde_json::Value;

/// A command that has ended.
#[derive(Clone, PartialEq, Eq)]
pub struct Finished {
    pub line: String,
    pub code: i32,
    pub stdout: Vec<u8>,
    pub stderr: Vec<u8>,
}

impl Finished {
    pub fn new(line: String, output: Output) -> Finished {
        Finished { line, code: code(output.status), stdout: output.stdout, stderr: output.stderr }
    }

    #[track_caller]
    pub fn exits(&self, code: i32) -> &Self {
        assert_eq!(self.code, code, "wrong exit code\n{self:?}");
        self
    }

    #[track_caller]
    pub fn prints(&self, text: &str) -> &Self {
        assert_eq!(self.out(), text, "wrong output\n{self:?}");
        self
    }

    /// The errors hold every one of `parts`.
    #[track_caller]
    pub fn says(&self, parts: &[&str]) -> &Self {
        for part in parts {
            assert!(self.err().contains(part), "{part:?} is not said\n{self:?}");
        }
        self
    }

    #[track_caller]
    pub fn says_nothing(&self) -> &Self {
        assert_eq!(self.err(), "", "should be silent\n{self:?}");
        self
    }

    /// As every refusal has to be: code 125, nothing printed, one line `ringwall: what; fix`.
    #[track_caller]
    pub fn is_refused(&self) -> &Self {
        self.exits(125).prints("");
        let line = self.err();
        assert!(line.starts_with("ringwall: ") && line.ends_with('\n'), "{self:?}");
        assert_eq!(line.lines().count(), 1, "more than one line\n{self:?}");
        assert!(!line.trim_end().contains(char::is_control), "{self:?}");
        self
    }

    pub fn out(&self) -> String {
        String::from_utf8_lossy(&self.stdout).into_owned()
    }

    pub fn err(&self) -> String {
        String::from_utf8_lossy(&self.stderr).into_owned()
    }

    /// The output without the newline at its end: an id, for example.
    pub fn word(&self) -> String {
        self.out().trim().to_owned()
    }

    #[track_caller]
    pub fn json(&self) -> Value {
        match serde_json::from_slice(&self.stdout) {
            Ok(document) => document,
            Err(error) => panic!("not one JSON document: {error}\n{self:?}"),
        }
    }
}

/// As a shell reports it.
pub fn code(status: ExitStatus) -> i32 {
    status.code().unwrap_or_else(|| 128 + status.signal().unwrap_or_default())
}

impl fmt::Debug for Finished {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "$ {}", self.line)?;
        writeln!(f, "exit code {}", self.code)?;
        writeln!(f, "--- stdout\n{}", self.out())?;
        write!(f, "--- stderr\n{}", self.err())
    }
}
