//! What an attack did, with checks that show all of it when they fail.

use std::collections::BTreeMap;
use std::fmt;
use std::os::unix::process::ExitStatusExt;
use std::process::Output;

use serde_json::Value;

/// An attack, or a command, that has ended.
pub(crate) struct Outcome {
    pub(crate) line: String,
    pub(crate) code: i32,
    pub(crate) stdout: Vec<u8>,
    pub(crate) stderr: Vec<u8>,
}

impl Outcome {
    pub(crate) fn new(line: String, output: Output) -> Outcome {
        let signal = || 128 + output.status.signal().unwrap_or_default();
        Outcome {
            line,
            code: output.status.code().unwrap_or_else(signal),
            stdout: output.stdout,
            stderr: output.stderr,
        }
    }

    #[track_caller]
    pub(crate) fn exits(&self, code: i32) -> &Self {
        assert_eq!(self.code, code, "wrong exit code\n{self:?}");
        self
    }

    pub(crate) fn out(&self) -> String {
        String::from_utf8_lossy(&self.stdout).into_owned()
    }

    pub(crate) fn err(&self) -> String {
        String::from_utf8_lossy(&self.stderr).into_owned()
    }

    /// Nowhere in what came out.
    #[track_caller]
    pub(crate) fn never_shows(&self, secret: &str) -> &Self {
        let shown = self.out().contains(secret) || self.err().contains(secret);
        assert!(!shown, "{secret:?} got out\n{self:?}");
        self
    }

    /// The control of an attack: without a wall it finds what it looks for.
    #[track_caller]
    pub(crate) fn shows(&self, text: &str) -> &Self {
        assert!(self.out().contains(text), "{text:?} is missing\n{self:?}");
        self
    }

    /// The answers that `try` of the prelude printed, by name: an error number, or 0.
    #[track_caller]
    pub(crate) fn answers(&self) -> BTreeMap<String, i32> {
        let answers: BTreeMap<String, i32> = self
            .out()
            .lines()
            .filter_map(|line| line.strip_prefix("try "))
            .filter_map(|line| line.rsplit_once(' '))
            .map(|(name, number)| (name.to_owned(), number.parse().expect("a number")))
            .collect();
        assert!(!answers.is_empty(), "the attack told nothing\n{self:?}");
        answers
    }

    /// The one answer of that name.
    #[track_caller]
    pub(crate) fn answer(&self, name: &str) -> i32 {
        let answers = self.answers();
        *answers.get(name).unwrap_or_else(|| panic!("no answer for {name:?}\n{self:?}"))
    }

    /// The number on the line `NAME NUMBER`.
    #[track_caller]
    pub(crate) fn number(&self, name: &str) -> u64 {
        let found = self.out().lines().find_map(|line| {
            let rest = line.strip_prefix(name)?.strip_prefix(' ')?;
            rest.parse().ok()
        });
        found.unwrap_or_else(|| panic!("no number {name:?}\n{self:?}"))
    }

    #[track_caller]
    pub(crate) fn json(&self) -> Value {
        serde_json::from_slice(&self.stdout)
            .unwrap_or_else(|error| panic!("not one JSON document: {error}\n{self:?}"))
    }
}

impl fmt::Debug for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "$ {}", self.line)?;
        writeln!(f, "exit code {}", self.code)?;
        writeln!(f, "--- stdout\n{}", self.out())?;
        write!(f, "--- stderr\n{}", self.err())
    }
}
