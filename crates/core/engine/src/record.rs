//! One file per sandbox: who owns it, what it is, how it ended. A directory of the same name beside
//! it, only where it is needed, holds its log, its socket and the changes it left.
//!
//! The owner holds a lock on the record file for as long as it lives. The kernel drops the lock when
//! the owner dies, however that happens, so "abandoned" needs no guessing by process numbers.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::{DirBuilderExt, FileExt};
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use ringwall_safekeeping::{Access, FileError, Hold, Trust, Wait, hold, new_file, open, read};
use ringwall_spec::{
    Decided, Limits, Outcome, SandboxId, SandboxName, SandboxSpec, Wall, WorkspaceSpec,
};
use serde::{Deserialize, Serialize};

use crate::config::Engine;
use crate::gc::CreationLock;
use crate::job::Defaults;
use crate::remove_tree::remove_tree;

/// The longest record that is read back.
const MAX_RECORD_BYTES: u64 = 1 << 20;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum RecordKind {
    /// Lives as long as the `run` that made it.
    Run,
    /// Lives until stopped or expired, in the care of a keeper process.
    Living,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum RecordState {
    Running,
    /// Ended in order; kept for its changes or its log.
    Finished,
    /// Its owner is gone without having settled: `gc` cleans up.
    #[default]
    Abandoned,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Record {
    pub id: SandboxId,
    pub name: Option<SandboxName>,
    pub wall: Wall,
    pub image: Option<String>,
    pub workspace: Option<WorkspaceSpec>,
    pub limits: Limits,
    pub created_unix_ms: u64,
    pub owner_pid: u32,
    pub command: Vec<String>,
    pub kind: RecordKind,
    /// Seen from the lock, not stored.
    #[serde(skip)]
    pub state: RecordState,
    pub outcome: Option<Outcome>,
    /// For commands of attached callers.
    pub(crate) defaults: Defaults,
    /// What policy said of it.
    #[serde(default)]
    pub decided: Option<Decided>,
    /// It was raised ahead, has run nothing, and is nobody's yet.
    #[serde(default)]
    pub ready: bool,
    #[serde(skip)]
    pub(crate) dir: PathBuf,
}

#[derive(Debug, thiserror::Error)]
pub enum RecordError {
    #[error("no sandbox {0:?}; `ringwall ps -a` lists what there is")]
    NotFound(String),
    #[error("{0:?} fits more than one sandbox; give more of the id")]
    Ambiguous(String),
    #[error("the name {0} is taken by sandbox {1}; choose another or `ringwall rm {1}`")]
    NameTaken(SandboxName, SandboxId),
    #[error("the records in {path} could not be used")]
    Io { path: String, source: io::Error },
    #[error("the record {path} cannot be read; `ringwall gc` removes it if its owner is gone")]
    Damaged { path: String, source: serde_json::Error },
}

impl Record {
    pub(crate) fn new(id: SandboxId, spec: &SandboxSpec, kind: RecordKind, home: &Path) -> Record {
        let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Record {
            dir: home.join("sandboxes").join(id.as_str()),
            id,
            name: spec.name.clone(),
            wall: spec.wall.clone(),
            image: spec.image.clone(),
            workspace: spec.workspace.clone(),
            limits: spec.limits.clone(),
            created_unix_ms: u64::try_from(since_epoch.as_millis()).unwrap_or(u64::MAX),
            owner_pid: std::process::id(),
            command: Vec::new(),
            kind,
            state: RecordState::Running,
            outcome: None,
            defaults: Defaults::default(),
            decided: None,
            ready: false,
        }
    }

    /// Whether its owner holds it still.
    pub fn is_held(&self) -> bool {
        is_held(&self.dir)
    }

    /// Where commands begin inside: in the workspace, where there is one.
    pub fn working_directory(&self) -> &Path {
        self.defaults.working_directory()
    }

    /// What the sandbox's background command wrote.
    pub fn log_path(&self) -> PathBuf {
        self.dir.join("log")
    }

    pub(crate) fn changes_dir(&self) -> PathBuf {
        self.dir.join("changes")
    }

    /// What a guest handed over, until its changes have been read from it.
    pub(crate) fn upper_dir(&self) -> PathBuf {
        self.dir.join("upper")
    }

    /// Where the jobs of the sandbox may write.
    pub(crate) fn rights_path(&self) -> PathBuf {
        self.dir.join("rights.json")
    }

    pub(crate) fn socket_path(&self) -> PathBuf {
        self.dir.join("control.sock")
    }

    fn file_path(dir: &Path) -> PathBuf {
        dir.with_extension("json")
    }

    /// Puts the record on disk and takes its lock.
    fn create(self, _creating: &CreationLock) -> Result<HeldRecord, RecordError> {
        let wrong = |source| wrong(&self.dir, source);
        let text = serde_json::to_vec(&self).map_err(|error| wrong(error.into()))?;
        let file = new_file(&Self::file_path(&self.dir), Access::Change)
            .map_err(|error| wrong(error.into()))?;
        // Waits only for those who look whether somebody holds it.
        hold(&file, Hold::Alone, Wait::Forever).map_err(wrong)?;
        file.write_all_at(&text, 0).map_err(wrong)?;
        Ok(HeldRecord { record: self, file })
    }

    pub(crate) fn load(dir: &Path) -> Result<Record, RecordError> {
        let path = Self::file_path(dir);
        let damaged = |source| RecordError::Damaged { path: path.display().to_string(), source };
        let mut tries = 0;
        let mut record: Record = loop {
            let text = read(&path, Trust::Own, MAX_RECORD_BYTES);
            let text = text.map_err(|error| wrong(dir, error.into()))?;
            match serde_json::from_slice(&text) {
                Ok(record) => break record,
                // The owner may be writing it right now.
                Err(_) if tries < 3 && is_held(dir) => tries += 1,
                Err(error) => return Err(damaged(error)),
            }
        };
        record.dir = dir.to_owned();
        record.state = match (is_held(dir), &record.outcome) {
            (true, _) => RecordState::Running,
            (false, Some(_)) => RecordState::Finished,
            (false, None) => RecordState::Abandoned,
        };
        Ok(record)
    }
}

/// Whether a living process holds the record. When in doubt it does: what counts as abandoned is
/// killed.
pub(crate) fn is_held(dir: &Path) -> bool {
    match open(&Record::file_path(dir), Trust::Owned) {
        Ok(file) => !hold(&file, Hold::Shared, Wait::Never).is_ok_and(|free| free),
        Err(error) => !matches!(error, FileError::Missing(_)),
    }
}

fn wrong(path: &Path, source: io::Error) -> RecordError {
    RecordError::Io { path: path.display().to_string(), source }
}

/// In place: a new file would not carry the lock.
pub(crate) fn rewrite(file: &File, text: &[u8]) -> io::Result<()> {
    file.write_all_at(text, 0)?;
    file.set_len(u64::try_from(text.len()).unwrap_or(u64::MAX))
}

/// A record whose sandbox is ours.
#[derive(Debug)]
pub(crate) struct HeldRecord {
    pub(crate) record: Record,
    /// Carries the lock.
    file: File,
}

impl HeldRecord {
    /// Writes the record anew.
    pub(crate) fn save(&self) -> Result<(), RecordError> {
        let dir = &self.record.dir;
        let text = serde_json::to_vec(&self.record).map_err(|error| wrong(dir, error.into()))?;
        rewrite(&self.file, &text).map_err(|error| wrong(dir, error))
    }

    /// Makes the directory for what the sandbox leaves.
    pub(crate) fn make_dir(&self) -> io::Result<()> {
        match fs::DirBuilder::new().mode(0o700).create(&self.record.dir) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
            other => other,
        }
    }

    pub(crate) fn remove(self) -> Result<(), RecordError> {
        delete(&self.record.dir).map_err(|error| wrong(&self.record.dir, error))
    }
}

/// Removes the directory of a sandbox and then its record, as far as they are there.
pub(crate) fn delete(dir: &Path) -> io::Result<()> {
    let gone = |result: io::Result<()>| match result {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        other => other,
    };
    gone(remove_tree(dir))?;
    gone(fs::remove_file(Record::file_path(dir)))
}

impl Engine {
    /// All sandboxes that live or left something to look at, oldest first.
    pub fn records(&self) -> Result<Vec<Record>, RecordError> {
        let sandboxes = self.home.join("sandboxes");
        let mut records = Vec::new();
        for entry in fs::read_dir(&sandboxes).map_err(|error| wrong(&sandboxes, error))? {
            let path = entry.map_err(|error| wrong(&sandboxes, error))?.path();
            if path.extension().is_none_or(|extension| extension != "json") {
                continue;
            }
            let dir = path.with_extension("");
            // A record that vanishes or is being made while we look is not there.
            if let Ok(record) = Record::load(&dir) {
                records.push(record);
            }
        }
        records.sort_by(|a, b| (a.created_unix_ms, &a.id).cmp(&(b.created_unix_ms, &b.id)));
        Ok(records)
    }

    /// Finds by full id, name or unique beginning of an id. An id comes first: nobody else can have it,
    /// and its record is the only one to be read.
    pub fn find(&self, id_or_name: &str) -> Result<Record, RecordError> {
        let known = id_or_name.parse::<SandboxId>().ok();
        let dir = |id: SandboxId| self.home.join("sandboxes").join(id.as_str());
        if let Some(record) = known.and_then(|id| Record::load(&dir(id)).ok()) {
            return Ok(record);
        }
        let records = self.records()?;
        let by_name = |r: &&Record| r.name.as_ref().is_some_and(|n| n.as_str() == id_or_name);
        if let Some(record) = records.iter().find(by_name) {
            return Ok(record.clone());
        }
        let mut fitting = records
            .iter()
            .filter(|r| !id_or_name.is_empty() && r.id.as_str().starts_with(id_or_name));
        match (fitting.next(), fitting.next()) {
            (Some(record), None) => Ok(record.clone()),
            (Some(_), Some(_)) => Err(RecordError::Ambiguous(id_or_name.to_owned())),
            (None, _) => Err(RecordError::NotFound(id_or_name.to_owned())),
        }
    }

    pub(crate) fn create_record(&self, record: Record) -> Result<HeldRecord, RecordError> {
        let sandboxes = self.home.join("sandboxes");
        let failed = |source| wrong(&sandboxes, source);
        if record.name.is_none() {
            return record.create(&CreationLock::shared(&sandboxes).map_err(failed)?);
        }
        // Alone, so that nobody takes the name between the look and the leap.
        let alone = CreationLock::exclusive(&sandboxes).map_err(failed)?;
        self.check_name(record.name.as_ref())?;
        record.create(&alone)
    }

    /// A name belongs to one sandbox at a time.
    fn check_name(&self, name: Option<&SandboxName>) -> Result<(), RecordError> {
        let Some(name) = name else { return Ok(()) };
        match self.records()?.into_iter().find(|record| record.name.as_ref() == Some(name)) {
            Some(other) => Err(RecordError::NameTaken(name.clone(), other.id)),
            None => Ok(()),
        }
    }
}
