//! Runs other programs with their output in a log, whose end is shown when one fails.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Lines of the log that go into an error.
const SHOWN: usize = 12;

#[derive(Debug, thiserror::Error)]
pub enum CommandError {
    #[error("cannot run {program}")]
    Start { program: String, source: io::Error },
    #[error("{program} failed; the whole log is {}, and ends with:\n{end}", log.display())]
    Failed { program: String, log: PathBuf, end: String },
    #[error("{program} failed: {message}")]
    Asked { program: String, message: String },
    #[error("cannot write the log {}", path.display())]
    Log { path: PathBuf, source: io::Error },
}

/// Where the output of a build goes.
#[derive(Debug)]
pub(super) struct Log {
    path: PathBuf,
}

impl Log {
    pub(super) fn new(path: &Path) -> Result<Log, CommandError> {
        let log = Log { path: path.to_owned() };
        File::create(path).map_err(|source| log.error(source))?;
        Ok(log)
    }

    pub(super) fn run(
        &self,
        program: &str,
        arguments: &[&dyn AsRef<OsStr>],
    ) -> Result<(), CommandError> {
        let mut command = plain(program);
        for argument in arguments {
            command.arg(argument);
        }
        self.run_command(&mut command)
    }

    pub(super) fn run_command(&self, command: &mut Command) -> Result<(), CommandError> {
        let output =
            File::options().append(true).open(&self.path).map_err(|source| self.error(source))?;
        let errors = output.try_clone().map_err(|source| self.error(source))?;
        let program = command.get_program().to_string_lossy().into_owned();
        let status = command.stdin(Stdio::null()).stdout(output).stderr(errors).status();
        let status =
            status.map_err(|source| CommandError::Start { program: program.clone(), source })?;
        if status.success() {
            return Ok(());
        }
        let text = fs::read(&self.path).unwrap_or_default();
        Err(CommandError::Failed { program, log: self.path.clone(), end: end_of(&text) })
    }

    fn error(&self, source: io::Error) -> CommandError {
        CommandError::Log { path: self.path.clone(), source }
    }
}

/// What a program prints.
pub(super) fn ask(program: &str, arguments: &[&str]) -> Result<String, CommandError> {
    let output = plain(program)
        .args(arguments)
        .stdin(Stdio::null())
        .output()
        .map_err(|source| CommandError::Start { program: program.to_owned(), source })?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    let program = format!("{program} {}", arguments.join(" "));
    Err(CommandError::Asked { program, message: end_of(&output.stderr) })
}

/// In a language whose words can be relied on, and without the makefile that may have started us.
pub(super) fn plain(program: &str) -> Command {
    let mut command = Command::new(program);
    command.env("LC_ALL", "C");
    for variable in ["MAKEFLAGS", "MFLAGS", "MAKELEVEL", "ARCH", "CROSS_COMPILE", "KBUILD_OUTPUT"] {
        command.env_remove(variable);
    }
    command
}

fn end_of(text: &[u8]) -> String {
    let text = String::from_utf8_lossy(text);
    let lines: Vec<&str> = text.lines().collect();
    lines[lines.len().saturating_sub(SHOWN)..].join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failed_program_shows_the_end_of_what_it_wrote() {
        let directory = tempfile::tempdir().unwrap();
        let log = Log::new(&directory.path().join("log")).unwrap();
        log.run("sh", &[&"-c", &"echo fine"]).unwrap();
        let script = "i=0; while [ $i -lt 40 ]; do i=$((i+1)); echo line $i; done; exit 3";
        let error = log.run("sh", &[&"-c", &script]).unwrap_err().to_string();
        assert!(error.ends_with("line 39\nline 40") && !error.contains("line 20\n"), "{error}");
        assert!(
            fs::read_to_string(directory.path().join("log")).unwrap().starts_with("fine\nline")
        );
    }

    #[test]
    fn a_program_that_is_not_there_is_named() {
        let error = ask("ringwall-no-such-program", &[]).unwrap_err();
        assert_eq!(error.to_string(), "cannot run ringwall-no-such-program");
    }
}
