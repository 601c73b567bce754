//! The log's key: made at first use, in a file of its own outside the log.

use std::io::{self, Read};
use std::path::{Path, PathBuf};

use ringwall_safekeeping::{Content, FileError, Trust, create_new, if_there, open, random_array};
use ringwall_spec::SandboxId;

use crate::note::{KeyError, Signer, VerifierKey};

const MOST_BYTES: u64 = 1024;

/// Where a log and what belongs to it are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AuditPaths {
    /// Holds the log, and the ends that were cut off it after crashes.
    pub directory: PathBuf,
    /// Holds the keys and the writer's state.
    pub keys: PathBuf,
}

impl AuditPaths {
    /// In the home of an engine.
    pub fn in_home(home: &Path) -> AuditPaths {
        AuditPaths { directory: home.join("audit"), keys: home.join("keys") }
    }

    pub fn log(&self) -> PathBuf {
        self.directory.join("log")
    }

    /// The secret key: a process that has it can write another history.
    pub fn secret_key(&self) -> PathBuf {
        self.keys.join("audit.key")
    }

    /// The public key. A copy of it that is kept elsewhere is worth more.
    pub fn verifier_key(&self) -> PathBuf {
        self.keys.join("audit.pub")
    }

    pub fn state(&self) -> PathBuf {
        self.keys.join("audit.state")
    }
}

#[derive(Debug, thiserror::Error)]
pub enum KeyFileError {
    #[error(transparent)]
    File(#[from] FileError),
    #[error("{path} cannot be read or written")]
    Io { path: String, source: io::Error },
    #[error("the key in {path} is not usable: {source}")]
    Key { path: String, source: KeyError },
    #[error("the key {0} is missing; without it no record can be written")]
    Missing(String),
}

/// The key that signs, and makes one where `may_make`.
pub(crate) fn signer(paths: &AuditPaths, may_make: bool) -> Result<Signer, KeyFileError> {
    let path = paths.secret_key();
    if let Some(signer) = read_signer(&path)? {
        return Ok(signer);
    }
    if !may_make {
        return Err(KeyFileError::Missing(path.display().to_string()));
    }
    make(paths)?;
    // Another process may have been quicker: there is only one key.
    read_signer(&path)?.ok_or_else(|| KeyFileError::Missing(path.display().to_string()))
}

/// The public key that was written when the log was begun.
pub fn verifier_key(path: &Path) -> Result<VerifierKey, KeyFileError> {
    let text = match std::fs::File::open(path) {
        Ok(file) => text(path, file)?,
        Err(source) => return Err(failed(path)(source)),
    };
    let key = text.trim_end().parse();
    key.map_err(|source| KeyFileError::Key { path: path.display().to_string(), source })
}

fn read_signer(path: &Path) -> Result<Option<Signer>, KeyFileError> {
    let Some(file) = if_there(open(path, Trust::Secret))? else {
        return Ok(None);
    };
    let text = text(path, file)?;
    match Signer::from_secret_text(text.trim_end()) {
        Ok(signer) => Ok(Some(signer)),
        Err(source) => Err(KeyFileError::Key { path: path.display().to_string(), source }),
    }
}

fn text(path: &Path, file: std::fs::File) -> Result<String, KeyFileError> {
    let mut text = String::new();
    file.take(MOST_BYTES).read_to_string(&mut text).map_err(failed(path))?;
    Ok(text)
}

fn make(paths: &AuditPaths) -> Result<(), KeyFileError> {
    let name = SandboxId::from_random(random_array()?);
    let malformed =
        |source| KeyFileError::Key { path: paths.secret_key().display().to_string(), source };
    let signer = Signer::new(&format!("ringwall/{name}"), random_array()?).map_err(malformed)?;
    let secret = format!("{}\n", signer.secret_text());
    match create_new(&paths.secret_key(), Content::durable(secret.as_bytes())) {
        Ok(()) => publish_verifier(paths, signer.verifier()),
        // Another process was quicker.
        Err(FileError::Exists(_)) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

/// Writes the public key, also where a crash kept it from being written.
pub(crate) fn publish_verifier(paths: &AuditPaths, key: &VerifierKey) -> Result<(), KeyFileError> {
    let text = format!("{key}\n");
    let public = Content::durable(text.as_bytes()).with_mode(0o644);
    match create_new(&paths.verifier_key(), public) {
        Ok(()) | Err(FileError::Exists(_)) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

fn failed(path: &Path) -> impl Fn(io::Error) -> KeyFileError {
    let path = path.display().to_string();
    move |source| KeyFileError::Io { path: path.clone(), source }
}
