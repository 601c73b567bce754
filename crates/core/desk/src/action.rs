//! What can be asked for in, or with, a sandbox that there is.

use std::collections::BTreeMap;
use std::time::Duration;

use ringwall_approval::command_parameters;
use ringwall_spec::Command;
use ringwall_workspace::Selection;
use sha2::{Digest, Sha256};

/// One thing that a caller wants to do. To make a sandbox is [`crate::Placing`], to call a tool
/// [`crate::CallWish`].
#[derive(Debug, Clone, Copy)]
pub enum Action<'a> {
    Exec(&'a Exec<'a>),
    /// Files inside, read or written.
    Files,
    /// What it changed, shown.
    Diff,
    Apply(&'a Apply<'a>),
    /// A tool in it.
    CallTool,
    /// What a command in it wrote, or how it is getting on.
    Follow,
    Phase(&'a str),
    Stop,
}

/// A command in a sandbox that lives.
#[derive(Debug, Clone, Copy)]
pub struct Exec<'a> {
    /// The kind of work. What a holder does not name is untrusted, and what the owner does not name is that
    /// of the sandbox.
    pub kind: Option<&'a str>,
    pub command: &'a Command,
    pub input: Input<'a>,
    pub timeout: Option<Duration>,
}

/// What a command reads as its standard input.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Input<'a> {
    Nothing,
    /// Known whole before it starts.
    Whole(&'a str),
    /// Comes while it runs; nobody knows it before.
    Streamed,
}

/// Changes that are to be written back.
#[derive(Debug, Clone)]
pub struct Apply<'a> {
    /// Those that are written, and no others.
    pub selection: &'a Selection<'a>,
    /// What was asked for, in the caller's own words.
    pub paths: &'a [String],
    pub except: &'a [String],
    /// Protected paths that are to be written all the same; for the owner only.
    pub allow_protected: &'a [String],
    pub force: bool,
}

impl Action<'_> {
    /// For the record.
    pub(crate) fn name(&self) -> &'static str {
        match self {
            Action::Exec(_) => "exec",
            Action::Files => "files",
            Action::Diff => "diff",
            Action::Apply(_) => "apply",
            Action::CallTool => "call",
            Action::Follow => "follow",
            Action::Phase(_) => "phase",
            Action::Stop => "stop",
        }
    }
}

impl<'a> Input<'a> {
    /// Of a command and what is sent with it. On a terminal everything is typed.
    pub fn of(command: &Command, whole: Option<&'a str>) -> Input<'a> {
        match whole {
            _ if command.terminal.is_some() => Input::Streamed,
            Some(text) => Input::Whole(text),
            None if command.stdin => Input::Streamed,
            None => Input::Nothing,
        }
    }
}

/// Everything that a person allows with a command: its words, variables and directory, what it reads, and
/// whether somebody sits before it.
pub(crate) fn bound(command: Option<&Command>, input: Input<'_>) -> BTreeMap<String, String> {
    let mut parameters = command_parameters(command);
    let Some(command) = command else { return parameters };
    let mut put = |name: &str, value: String| parameters.insert(name.to_owned(), value);
    let read = match input {
        Input::Nothing => "none".to_owned(),
        Input::Streamed => "streamed".to_owned(),
        Input::Whole(text) => {
            put("input text", text.to_owned());
            let hash = Sha256::digest(text.as_bytes());
            let hex: String = hash.iter().map(|byte| format!("{byte:02x}")).collect();
            format!("sha256:{hex}")
        }
    };
    put("input", read);
    let terminal = if command.terminal.is_some() { "yes" } else { "no" };
    put("terminal", terminal.to_owned());
    if command.cwd.is_none() {
        put("directory", "the sandbox's own".to_owned());
    }
    parameters
}

#[cfg(test)]
mod tests {
    use ringwall_spec::TerminalSize;

    use super::*;

    fn sh() -> Command {
        Command { argv: vec!["sh".into()], ..Command::default() }
    }

    #[test]
    fn what_a_command_reads_and_where_it_sits_makes_another_action() {
        let terminal = Some(TerminalSize { rows: 1, columns: 1 });
        let on_terminal = Command { terminal, ..sh() };
        let there = Command { cwd: Some("/tmp".into()), ..sh() };
        let all = [
            bound(Some(&sh()), Input::Nothing),
            bound(Some(&sh()), Input::Streamed),
            bound(Some(&sh()), Input::Whole("")),
            bound(Some(&sh()), Input::Whole("rm -rf .")),
            bound(Some(&on_terminal), Input::Streamed),
            bound(Some(&there), Input::Nothing),
        ];
        for (at, one) in all.iter().enumerate() {
            assert!(all.iter().skip(at + 1).all(|other| other != one), "{one:?}");
        }
    }

    #[test]
    fn what_is_typed_on_a_terminal_is_streamed_whatever_the_client_says() {
        let terminal = Some(TerminalSize { rows: 1, columns: 1 });
        let command = Command { terminal, stdin: false, ..sh() };
        assert_eq!(Input::of(&command, None), Input::Streamed);
        assert_eq!(Input::of(&command, Some("text")), Input::Streamed);
        assert_eq!(Input::of(&Command { stdin: true, ..sh() }, None), Input::Streamed);
        assert_eq!(Input::of(&sh(), None), Input::Nothing);
    }
}
