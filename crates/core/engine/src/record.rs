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

use ringwall_safekeeping::{
    Access, FileError, Hold, Trust, Wait, hold, new_file, open, read_opened,
};
use ringwall_spec::{
    Decided, Limits, Outcome, SandboxId, SandboxName, SandboxSpec, Wall, WorkspaceSpec,
};
use serde::{Deserialize, Serialize};

use crate::config::Engine;
use crate::gc::CreationLock;
use crate::job::Defaults;
use crate::names::Names;
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
    /// The owner process is gone without having settled: `gc` cleans up.
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
    /// It was raised ahead, has run nothing, and has no user yet.
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
        // Waits only for those who look whether a process holds it.
        hold(&file, Hold::Alone, Wait::Forever).map_err(wrong)?;
        file.write_all_at(&text, 0).map_err(wrong)?;
        Ok(HeldRecord { record: self, file })
    }

    pub(crate) fn load(dir: &Path) -> Result<Record, RecordError> {
        let path = Self::file_path(dir);
        let damaged = |source| RecordError::Damaged { path: path.display().to_string(), source };
        let wrong = |error: FileError| wrong(dir, error.into());
        let file = open(&path, Trust::Own).map_err(wrong)?;
        // Asked first: what an owner that is gone has written is all that there will be.
        let held = is_locked(&file);
        let mut tries = 0;
        let mut record: Record = loop {
            let text = read_opened(&file, &path, MAX_RECORD_BYTES).map_err(wrong)?;
            match serde_json::from_slice(&text) {
                Ok(record) => break record,
                // The owner may be writing it right now.
                Err(_) if held && tries < 3 => tries += 1,
                Err(error) => return Err(damaged(error)),
            }
        };
        record.dir = dir.to_owned();
        record.state = match (held, &record.outcome) {
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
        Ok(file) => is_locked(&file),
        Err(error) => !matches!(error, FileError::Missing(_)),
    }
}

/// The lock is tried for a moment only: it goes with the file.
fn is_locked(file: &File) -> bool {
    !hold(file, Hold::Shared, Wait::Never).is_ok_and(|free| free)
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
        delete(&self.record).map_err(|error| wrong(&self.record.dir, error))
    }
}

/// Removes all that there is of a sandbox: its directory, its record, and then its name.
pub(crate) fn delete(record: &Record) -> io::Result<()> {
    delete_files(&record.dir)?;
    match (&record.name, record.dir.parent()) {
        (Some(name), Some(sandboxes)) => Names::beside(sandboxes).give_back(name, &record.id),
        _ => Ok(()),
    }
}

/// Deletes a record that may be unreadable: the next caller who wants its name then sees whose it was.
pub(crate) fn delete_at(dir: &Path) -> io::Result<()> {
    match Record::load(dir) {
        Ok(record) => delete(&record),
        Err(_) => delete_files(dir),
    }
}

fn delete_files(dir: &Path) -> io::Result<()> {
    let gone = |result: io::Result<()>| match result {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        other => other,
    };
    gone(remove_tree(dir))?;
    gone(fs::remove_file(Record::file_path(dir)))
}

/// Whether a sandbox has a record, in whatever state. When in doubt it has: a name without a record is
/// free for any sandbox.
pub(crate) fn is_there(dir: &Path) -> bool {
    let found = Record::file_path(dir).symlink_metadata();
    !found.is_err_and(|error| error.kind() == io::ErrorKind::NotFound)
}

impl Engine {
    /// All sandboxes that live or left something to look at, oldest first.
    pub fn records(&self) -> Result<Vec<Record>, RecordError> {
        let mut records = self.records_that_begin("")?;
        records.sort_by(|a, b| (a.created_unix_ms, &a.id).cmp(&(b.created_unix_ms, &b.id)));
        Ok(records)
    }

    /// The records whose ids begin so; no other is read.
    fn records_that_begin(&self, with: &str) -> Result<Vec<Record>, RecordError> {
        let sandboxes = self.home.join("sandboxes");
        let mut records = Vec::new();
        for entry in fs::read_dir(&sandboxes).map_err(|error| wrong(&sandboxes, error))? {
            let name = entry.map_err(|error| wrong(&sandboxes, error))?.file_name();
            let id = name.to_str().and_then(|name| name.strip_suffix(".json"));
            let Some(id) = id.filter(|id| id.starts_with(with)) else { continue };
            // A record that vanishes or is being made while we look is not there.
            records.extend(Record::load(&sandboxes.join(id)).ok());
        }
        Ok(records)
    }

    /// Finds by full id, name or unique beginning of an id. An id comes first: no other sandbox can have
    /// it, and its record is the only one to be read.
    pub fn find(&self, id_or_name: &str) -> Result<Record, RecordError> {
        let known = id_or_name.parse::<SandboxId>().ok();
        if let Some(record) = known.and_then(|id| Record::load(&self.dir_of(&id)).ok()) {
            return Ok(record);
        }
        if let Some(record) = self.named(id_or_name) {
            return Ok(record);
        }
        let not_found = || RecordError::NotFound(id_or_name.to_owned());
        if id_or_name.is_empty() {
            return Err(not_found());
        }
        let mut fitting = self.records_that_begin(id_or_name)?.into_iter();
        match (fitting.next(), fitting.next()) {
            (Some(record), None) => Ok(record),
            (Some(_), Some(_)) => Err(RecordError::Ambiguous(id_or_name.to_owned())),
            (None, _) => Err(not_found()),
        }
    }

    /// The sandbox to which a name leads, if it has that name.
    fn named(&self, name: &str) -> Option<Record> {
        let record = Record::load(&self.dir_of(&self.names().look_up(name)?)).ok()?;
        let same = record.name.as_ref().is_some_and(|own| own.as_str() == name);
        same.then_some(record)
    }

    fn names(&self) -> Names {
        Names::beside(&self.home.join("sandboxes"))
    }

    fn dir_of(&self, id: &SandboxId) -> PathBuf {
        self.home.join("sandboxes").join(id.as_str())
    }

    pub(crate) fn create_record(&self, record: Record) -> Result<HeldRecord, RecordError> {
        let sandboxes = self.home.join("sandboxes");
        let creating =
            CreationLock::shared(&sandboxes).map_err(|error| wrong(&sandboxes, error))?;
        let held = record.create(&creating)?;
        match self.take_name(&held.record) {
            Ok(()) => Ok(held),
            Err(error) => {
                held.remove()?;
                Err(error)
            }
        }
    }

    /// A name belongs to one sandbox at a time.
    fn take_name(&self, record: &Record) -> Result<(), RecordError> {
        let Some(name) = &record.name else { return Ok(()) };
        let is_there = |id: &SandboxId| is_there(&self.dir_of(id));
        let taken = self.names().take(name, &record.id, is_there);
        match taken.map_err(|error| wrong(&self.home, error))? {
            Ok(()) => Ok(()),
            Err(other) => Err(RecordError::NameTaken(name.clone(), other)),
        }
    }

    /// Removes the names of sandboxes that have no record. The lock keeps a new one from being made.
    pub(crate) fn sweep_names(&self, _alone: &CreationLock) -> io::Result<()> {
        self.names().sweep(|id| is_there(&self.dir_of(id)))
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use ringwall_spec::RingKind;

    use super::*;
    use crate::config::{EngineConfig, Programs};
    use crate::host::new_id;

    /// An engine that raises nothing.
    fn engine(home: &Path) -> Engine {
        let programs = Programs { launcher: home.join("launcher"), warden: home.join("warden") };
        fs::write(&programs.launcher, "").unwrap();
        fs::write(&programs.warden, "").unwrap();
        Engine::open(EngineConfig { home: home.to_owned(), programs }).unwrap()
    }

    fn make(engine: &Engine, name: Option<&str>) -> Result<HeldRecord, RecordError> {
        let name = name.map(|name| name.parse().unwrap());
        let spec = SandboxSpec { name, ..SandboxSpec::new(Wall::single(RingKind::Process)) };
        engine.create_record(Record::new(new_id(), &spec, RecordKind::Living, &engine.home))
    }

    fn id(found: Result<Record, RecordError>) -> Option<SandboxId> {
        match found {
            Ok(record) => Some(record.id),
            Err(RecordError::NotFound(_)) => None,
            Err(error) => panic!("{error}"),
        }
    }

    #[test]
    fn a_sandbox_is_found_by_its_id_its_name_or_the_beginning_of_its_id() {
        let home = tempfile::tempdir().unwrap();
        let engine = engine(home.path());
        let (web, other) = (make(&engine, Some("web")).unwrap(), make(&engine, None).unwrap());
        for (word, held) in [("web", &web), (web.record.id.as_str(), &web)] {
            assert_eq!(id(engine.find(word)), Some(held.record.id.clone()));
        }
        let beginning = &other.record.id.as_str()[..11];
        assert_eq!(id(engine.find(beginning)), Some(other.record.id.clone()));
        for word in ["", "we", "webs", "../sandboxes/web"] {
            assert_eq!(id(engine.find(word)), None, "{word:?}");
        }
        let first = other.record.id.as_str();
        let last = if first.ends_with('a') { 'b' } else { 'a' };
        let twin = format!("{beginning}{last}");
        fs::copy(
            Record::file_path(&other.record.dir),
            Record::file_path(&engine.home.join("sandboxes").join(twin)),
        )
        .unwrap();
        assert!(matches!(engine.find(beginning), Err(RecordError::Ambiguous(_))));
    }

    #[test]
    fn a_name_leads_only_to_the_sandbox_that_has_it() {
        let home = tempfile::tempdir().unwrap();
        let engine = engine(home.path());
        let web = make(&engine, Some("web")).unwrap();
        symlink(web.record.id.as_str(), home.path().join("names/mine")).unwrap();
        assert_eq!(id(engine.find("mine")), None, "the record has another name");
        match make(&engine, Some("web")) {
            Err(RecordError::NameTaken(_, owner)) => assert_eq!(owner, web.record.id),
            other => panic!("{other:?}"),
        }
        assert_eq!(engine.records().unwrap().len(), 1, "the refused one left its record");
        web.remove().unwrap();
        assert_eq!(id(engine.find("web")), None);
        make(&engine, Some("web")).unwrap();
    }

    #[test]
    fn a_name_that_a_crash_left_is_free() {
        let home = tempfile::tempdir().unwrap();
        let engine = engine(home.path());
        let (one, two) = (make(&engine, Some("one")).unwrap(), make(&engine, Some("two")).unwrap());
        for held in [&one, &two] {
            fs::remove_file(Record::file_path(&held.record.dir)).unwrap();
        }
        assert_eq!(id(engine.find("one")), None);
        let again = make(&engine, Some("one")).unwrap();
        // The first owner, late in cleaning up, takes nothing from the second.
        one.remove().unwrap();
        assert_eq!(id(engine.find("one")), Some(again.record.id.clone()));
        let alone = CreationLock::exclusive(&home.path().join("sandboxes")).unwrap();
        engine.sweep_names(&alone).unwrap();
        let left = fs::read_dir(home.path().join("names")).unwrap();
        assert_eq!(left.map(|name| name.unwrap().file_name()).collect::<Vec<_>>(), ["one"]);
    }

    #[test]
    fn how_a_sandbox_ended_is_read_once_its_owner_has_let_go() {
        let home = tempfile::tempdir().unwrap();
        let engine = engine(home.path());
        let held = make(&engine, None).unwrap();
        let dir = held.record.dir.clone();
        assert_eq!(Record::load(&dir).unwrap().state, RecordState::Running);
        drop(held);
        // A process that another test is about to start has a copy of the lock.
        while is_held(&dir) {
            std::thread::yield_now();
        }
        assert_eq!(Record::load(&dir).unwrap().state, RecordState::Abandoned);
    }
}
