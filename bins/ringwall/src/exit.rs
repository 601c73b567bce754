//! The one place where errors become exit codes and their one line on standard error.

use std::io::Write;
use std::process::ExitCode;

use ringwall_engine::StartError;

use crate::args::UsageError;
use crate::daemon::Refused;
use crate::report;

/// Ringwall itself failed; as with `env`, `timeout` and container tools.
pub(crate) const OWN_ERROR: u8 = 125;
const NOT_EXECUTABLE: u8 = 126;
const NOT_FOUND: u8 = 127;
/// What a shell reports for a program ended by SIGPIPE: our reader went away.
pub(crate) const BROKEN_PIPE: u8 = 128 + 13;

/// An error that has been reported already, item by item.
#[derive(Debug, Clone, Copy)]
pub(crate) struct AlreadyReported;

impl std::fmt::Display for AlreadyReported {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("not everything worked")
    }
}

impl std::error::Error for AlreadyReported {}

/// Prints `error` and gives its exit code.
pub(crate) fn failed(error: &anyhow::Error) -> ExitCode {
    if is_broken_pipe(error) {
        return ExitCode::from(BROKEN_PIPE);
    }
    if !error.is::<AlreadyReported>() {
        report::note(&line(error));
    }
    ExitCode::from(code(error))
}

/// Prints the requested help, or the fault of the command line.
pub(crate) fn wrong_usage(usage: &UsageError) -> ExitCode {
    match usage {
        UsageError::Asked(help) => {
            // A reader that went away is no reason to complain about help.
            let _ = help.print();
            let _ = std::io::stdout().flush();
            ExitCode::SUCCESS
        }
        UsageError::Wrong(line) => {
            report::note(line);
            ExitCode::from(OWN_ERROR)
        }
    }
}

fn code(error: &anyhow::Error) -> u8 {
    if let Some(refused) = error.downcast_ref::<Refused>() {
        return refused.exit_code();
    }
    match error.downcast_ref::<StartError>() {
        Some(StartError::NotFound { .. }) => NOT_FOUND,
        Some(StartError::NotExecutable { .. }) => NOT_EXECUTABLE,
        _ => OWN_ERROR,
    }
}

/// The whole chain of causes, as one line.
pub(crate) fn line(error: &anyhow::Error) -> String {
    let mut line = String::new();
    for cause in error.chain() {
        let text = cause.to_string();
        // Transparent errors and those that print their source would say things twice.
        if line.contains(&text) {
            continue;
        }
        if !line.is_empty() {
            line.push_str(": ");
        }
        line.push_str(&text);
    }
    line
}

fn is_broken_pipe(error: &anyhow::Error) -> bool {
    error
        .downcast_ref::<std::io::Error>()
        .is_some_and(|error| error.kind() == std::io::ErrorKind::BrokenPipe)
}

#[cfg(test)]
mod tests {
    use super::*;
    use anyhow::Context;

    fn code_of(error: impl Into<anyhow::Error>) -> u8 {
        code(&error.into())
    }

    #[test]
    fn a_missing_program_and_one_that_cannot_run_are_told_apart_as_in_shells() {
        let program = || "x".to_owned();
        assert_eq!(code_of(StartError::NotFound { program: program() }), 127);
        let reason = String::new();
        assert_eq!(code_of(StartError::NotExecutable { program: program(), reason }), 126);
        assert_eq!(code_of(StartError::EmptyCommand), 125);
        assert_eq!(code_of(std::io::Error::other("x")), 125);
    }

    #[test]
    fn a_reader_that_went_away_is_no_error_of_ours() {
        let gone = || std::io::Error::from(std::io::ErrorKind::BrokenPipe);
        assert!(is_broken_pipe(&gone().into()));
        assert!(!is_broken_pipe(&std::io::Error::other("x").into()));
    }

    #[test]
    fn causes_are_told_once_and_on_one_line() {
        let cause = Err::<(), _>(std::io::Error::other("disk on fire"));
        let error = cause.context("the record cannot be written").unwrap_err();
        assert_eq!(line(&error), "the record cannot be written: disk on fire");
        let repeated = anyhow::anyhow!("inner").context("outer: inner");
        assert_eq!(line(&repeated), "outer: inner");
    }
}
