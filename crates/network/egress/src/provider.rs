//! Opens the place from which a secret is read, and hands on the descriptor: whoever opens it does not
//! look at the secret.

use std::fs::File;
use std::io::{self, Write};
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use rustix::fs::{Mode, OFlags};
use thiserror::Error;

use crate::secret::Provider;

const COMMAND_PATIENCE: Duration = Duration::from_secs(30);
/// A pipe takes this much without a reader.
const LONGEST_VARIABLE: usize = 16 * 1024;

#[derive(Debug, Error)]
pub enum ProviderError {
    #[error("cannot read {path}")]
    Read { path: PathBuf, source: io::Error },
    #[error("{0} is no regular file")]
    NotAFile(PathBuf),
    #[error("{0} belongs to somebody else")]
    Foreign(PathBuf),
    #[error("others can read or write {0}: chmod 600 it")]
    Readable(PathBuf),
    #[error("the environment has no variable {0}, or it is too long")]
    NoVariable(String),
    #[error("the command for the secret is empty")]
    NoCommand,
    #[error("{program} gave no secret: {reason}")]
    Command { program: String, reason: String },
    #[error("the descriptor of this secret is already open; this is an error in Ringwall")]
    Opened,
}

impl Provider {
    /// What the secret can be read from; may block.
    pub fn open(&self) -> Result<OwnedFd, ProviderError> {
        match self {
            Self::File(path) => open_file(path),
            Self::Environment(name) => {
                let missing = || ProviderError::NoVariable(name.clone());
                let value = std::env::var_os(name).ok_or_else(missing)?;
                let (reads, mut writes) = io::pipe().map_err(|_| missing())?;
                if value.len() > LONGEST_VARIABLE {
                    return Err(missing());
                }
                writes.write_all(value.as_bytes()).map_err(|_| missing())?;
                Ok(reads.into())
            }
            Self::Command(words) => run(words),
            Self::Beside(_) => Err(ProviderError::Opened),
        }
    }
}

fn open_file(path: &Path) -> Result<OwnedFd, ProviderError> {
    let unread = |source| ProviderError::Read { path: path.to_owned(), source };
    // Neither a link nor a pipe that nobody writes to.
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC | OFlags::NONBLOCK;
    let opened = rustix::fs::open(path, flags, Mode::empty());
    let file = File::from(opened.map_err(|error| unread(error.into()))?);
    let status = file.metadata().map_err(unread)?;
    if !status.is_file() {
        return Err(ProviderError::NotAFile(path.to_owned()));
    }
    if status.uid() != rustix::process::geteuid().as_raw() {
        return Err(ProviderError::Foreign(path.to_owned()));
    }
    if status.mode() & 0o077 != 0 {
        return Err(ProviderError::Readable(path.to_owned()));
    }
    Ok(file.into())
}

/// Its output waits in a pipe; a program that says more than fits there does not end.
fn run(words: &[String]) -> Result<OwnedFd, ProviderError> {
    let [program, arguments @ ..] = words else {
        return Err(ProviderError::NoCommand);
    };
    let failed = |reason: String| ProviderError::Command { program: program.clone(), reason };
    let mut child = Command::new(program)
        .args(arguments)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .map_err(|error| failed(error.to_string()))?;
    let output = child.stdout.take().ok_or_else(|| failed("it has no output".into()))?;
    let end = Instant::now() + COMMAND_PATIENCE;
    let status = loop {
        match child.try_wait() {
            Ok(Some(status)) => break status,
            Ok(None) if Instant::now() < end => std::thread::sleep(Duration::from_millis(5)),
            Ok(None) | Err(_) => {
                // It may have ended just now; either way it is not waited for any longer.
                let _ = child.kill();
                let _ = child.wait();
                return Err(failed("it did not end in time".into()));
            }
        }
    };
    if status.success() { Ok(output.into()) } else { Err(failed(status.to_string())) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read;
    use std::os::unix::fs::{PermissionsExt, symlink};

    fn read(provider: &Provider) -> Result<String, ProviderError> {
        let mut text = String::new();
        File::from(provider.open()?).read_to_string(&mut text).unwrap();
        Ok(text)
    }

    #[test]
    fn a_file_must_be_ours_alone() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("key");
        std::fs::write(&path, "hush\n").unwrap();
        let provider = Provider::File(path.clone());
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o640)).unwrap();
        assert!(matches!(read(&provider), Err(ProviderError::Readable(_))));
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).unwrap();
        assert_eq!(read(&provider).unwrap(), "hush\n");
        let link = directory.path().join("link");
        symlink(&path, &link).unwrap();
        assert!(matches!(read(&Provider::File(link)), Err(ProviderError::Read { .. })));
        let here = Provider::File(directory.path().into());
        assert!(matches!(read(&here), Err(ProviderError::NotAFile(_))));
    }

    #[test]
    fn a_command_gives_its_output_or_nothing() {
        let command = |words: &[&str]| Provider::Command(words.iter().map(|&w| w.into()).collect());
        assert_eq!(read(&command(&["echo", "hush"])).unwrap(), "hush\n");
        assert!(matches!(read(&command(&["false"])), Err(ProviderError::Command { .. })));
        assert!(matches!(read(&command(&[])), Err(ProviderError::NoCommand)));
    }

    #[test]
    fn a_variable_is_read_or_missing() {
        assert!(read(&Provider::Environment("PATH".into())).is_ok());
        let missing = Provider::Environment("RINGWALL_NO_SUCH_VARIABLE".into());
        assert!(matches!(read(&missing), Err(ProviderError::NoVariable(_))));
    }
}
