//! Secrets and where they come from. A secret is never printed, and wiped when it is dropped.

use std::io::Read;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use rustix::fs::{FileType, Mode, OFlags};
use serde::{Deserialize, Serialize};
use thiserror::Error;
use zeroize::Zeroizing;

const LONGEST: usize = 16 * 1024;
const COMMAND_PATIENCE: Duration = Duration::from_secs(30);

/// A value that leaves the gateway only in the header that it is bound to.
#[derive(Clone)]
#[expect(missing_debug_implementations, reason = "nothing may print a secret")]
pub struct Secret(Zeroizing<Vec<u8>>);

impl Secret {
    /// Takes a value that can stand in a header; a final line end is dropped.
    pub fn new(mut bytes: Zeroizing<Vec<u8>>) -> Result<Self, NoSecret> {
        while bytes.last().is_some_and(|byte| matches!(byte, b'\n' | b'\r')) {
            bytes.pop();
        }
        if bytes.is_empty() {
            return Err(NoSecret::Empty);
        }
        if bytes.len() > LONGEST {
            return Err(NoSecret::TooLong);
        }
        if !bytes.iter().all(|byte| (b' '..0x7f).contains(byte)) {
            return Err(NoSecret::Unprintable);
        }
        Ok(Self(bytes))
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        &self.0
    }

    /// The value as text; [`Secret::new`] has seen to it that it is.
    pub(crate) fn text(&self) -> &str {
        std::str::from_utf8(&self.0).unwrap_or_default()
    }
}

/// Where the gateway gets a secret. A keyring is read with a command.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Provider {
    /// A regular file of the gateway's own user that nobody else can read.
    File(PathBuf),
    /// A variable of the gateway's own environment.
    Environment(String),
    /// A program and its arguments, without a shell; its output is the secret.
    Command(Vec<String>),
}

#[derive(Debug, Error)]
pub enum NoSecret {
    #[error("the secret is empty")]
    Empty,
    #[error("the secret is longer than {LONGEST} bytes")]
    TooLong,
    #[error("the secret holds bytes that cannot stand in a header")]
    Unprintable,
    #[error("cannot read {path}: {reason}")]
    Read { path: PathBuf, reason: std::io::Error },
    #[error("{0} is no regular file")]
    NotAFile(PathBuf),
    #[error("{0} belongs to somebody else")]
    Foreign(PathBuf),
    #[error("others can read or write {0}: chmod 600 it")]
    Readable(PathBuf),
    #[error("the environment has no variable {0}")]
    NoVariable(String),
    #[error("the command for the secret is empty")]
    NoCommand,
    #[error("{program} gave no secret: {reason}")]
    Command { program: String, reason: String },
}

impl Provider {
    /// Gets the secret; may block.
    pub fn load(&self) -> Result<Secret, NoSecret> {
        match self {
            Self::File(path) => read_file(path),
            Self::Environment(name) => {
                let value =
                    std::env::var_os(name).ok_or_else(|| NoSecret::NoVariable(name.clone()))?;
                Secret::new(Zeroizing::new(std::os::unix::ffi::OsStringExt::into_vec(value)))
            }
            Self::Command(words) => run(words),
        }
    }
}

fn read_file(path: &PathBuf) -> Result<Secret, NoSecret> {
    let unread = |reason: std::io::Error| NoSecret::Read { path: path.clone(), reason };
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC | OFlags::NONBLOCK;
    let file =
        rustix::fs::open(path, flags, Mode::empty()).map_err(|error| unread(error.into()))?;
    let status = rustix::fs::fstat(&file).map_err(|error| unread(error.into()))?;
    if FileType::from_raw_mode(status.st_mode) != FileType::RegularFile {
        return Err(NoSecret::NotAFile(path.clone()));
    }
    if status.st_uid != rustix::process::geteuid().as_raw() {
        return Err(NoSecret::Foreign(path.clone()));
    }
    if status.st_mode & 0o077 != 0 {
        return Err(NoSecret::Readable(path.clone()));
    }
    Secret::new(bounded(std::fs::File::from(file)).map_err(unread)?)
}

/// Reads into one buffer that never moves, so that no copy stays behind in freed memory.
fn bounded(mut from: impl Read) -> std::io::Result<Zeroizing<Vec<u8>>> {
    let mut bytes = Zeroizing::new(vec![0; LONGEST + 2]);
    let mut filled = 0;
    while filled < bytes.len() {
        match from.read(&mut bytes[filled..])? {
            0 => break,
            count => filled += count,
        }
    }
    bytes.truncate(filled);
    Ok(bytes)
}

fn run(words: &[String]) -> Result<Secret, NoSecret> {
    let [program, arguments @ ..] = words else {
        return Err(NoSecret::NoCommand);
    };
    let failed = |reason: String| NoSecret::Command { program: program.clone(), reason };
    let mut child = Command::new(program)
        .args(arguments)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .map_err(|error| failed(error.to_string()))?;
    let Some(output) = child.stdout.take() else {
        return Err(failed("it has no output".into()));
    };
    let reader = std::thread::spawn(move || bounded(output));
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
    if !status.success() {
        return Err(failed(status.to_string()));
    }
    match reader.join() {
        Ok(Ok(bytes)) => Secret::new(bytes),
        _ => Err(failed("its output cannot be read".into())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::{PermissionsExt, symlink};

    #[test]
    fn a_file_must_be_ours_alone() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("key");
        std::fs::write(&path, "hush\n").unwrap();
        let provider = Provider::File(path.clone());
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o640)).unwrap();
        assert!(matches!(provider.load(), Err(NoSecret::Readable(_))));
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).unwrap();
        assert_eq!(provider.load().ok().unwrap().bytes(), b"hush");
        let link = directory.path().join("link");
        symlink(&path, &link).unwrap();
        assert!(matches!(Provider::File(link).load(), Err(NoSecret::Read { .. })));
        let here = Provider::File(directory.path().into());
        assert!(matches!(here.load(), Err(NoSecret::NotAFile(_))));
    }

    #[test]
    fn a_command_gives_its_output_or_nothing() {
        let command = |words: &[&str]| Provider::Command(words.iter().map(|&w| w.into()).collect());
        assert_eq!(command(&["echo", "hush"]).load().ok().unwrap().bytes(), b"hush");
        assert!(matches!(command(&["false"]).load(), Err(NoSecret::Command { .. })));
        assert!(matches!(command(&["true"]).load(), Err(NoSecret::Empty)));
        assert!(matches!(command(&[]).load(), Err(NoSecret::NoCommand)));
        assert!(matches!(command(&["printf", "a\\nb"]).load(), Err(NoSecret::Unprintable)));
    }
}
