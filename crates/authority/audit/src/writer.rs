//! The one who appends: under the lock of the log, whole groups of records at a time.

use std::fs::File;
use std::io::{self, Write};
use std::os::unix::fs::MetadataExt;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use ringwall_safekeeping::{
    Access, Content, Directory, FileError, Hold, Lock, Trust, Wait, create_new, if_there, open_for,
};

use crate::event::{Event, Ids, LogRecovered};
use crate::hash::{Hash, hex, sha256};
use crate::keys::{self, AuditPaths, KeyFileError};
use crate::line::{self, Body, MOST_LINE_BYTES};
use crate::merkle::leaf_hash;
use crate::note::Signer;
use crate::position::{Broken, Position};
use crate::state::{self, Found, Kept, StateError};

/// Unacknowledged bytes that are kept for people to look at; more than one group can have.
const MOST_TORN_BYTES: u64 = 64 << 20;

/// So often, while records are written, the disk is made to have them. Older records cannot be lost
/// with the machine, so a log that lacks them was cut.
const SYNC_EVERY: Duration = Duration::from_secs(1);

/// How long to wait for others: one that holds the lock may have been stopped.
pub(crate) const LOCK_PATIENCE: Wait = Wait::For(Duration::from_secs(10));

/// Where a record stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Receipt {
    pub seq: u64,
    pub hash: Hash,
}

/// Why there is no log to write to. A caller who needs one must refuse.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    #[error("the audit log cannot be used")]
    File(#[from] FileError),
    #[error("the audit log cannot be signed")]
    Key(#[from] KeyFileError),
    #[error("how far the audit log goes is not known")]
    State(#[from] StateError),
    #[error(transparent)]
    Broken(#[from] Broken),
    #[error(
        "{path} does not agree with the audit log; check the log with `ringwall audit verify`, then remove this file: it is made anew from the log"
    )]
    Disagrees { path: String },
    #[error("the audit log cannot be written")]
    Append(#[source] AppendError),
}

/// Why a record was not written. What it was about must not be done.
#[derive(Debug, Clone, thiserror::Error)]
pub enum AppendError {
    #[error("the disk that holds the audit log is full; make room")]
    Full,
    #[error("the audit log cannot be written")]
    Write(#[source] Arc<io::Error>),
    #[error("the audit log was removed or replaced while it was open")]
    Replaced,
    #[error("another process has held the audit log for too long; look for a stopped `ringwall`")]
    Busy,
    #[error("a record of {0} bytes is too long; {MOST_LINE_BYTES} are the most")]
    TooLong(usize),
    #[error(transparent)]
    Broken(#[from] Broken),
    #[error("an earlier record could not be made durable; the audit log must be opened anew")]
    Unsure,
}

impl From<AppendError> for OpenError {
    fn from(error: AppendError) -> OpenError {
        match error {
            AppendError::Broken(broken) => OpenError::Broken(broken),
            error => OpenError::Append(error),
        }
    }
}

impl From<io::Error> for AppendError {
    fn from(error: io::Error) -> AppendError {
        match error.kind() {
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => AppendError::Full,
            _ => AppendError::Write(Arc::new(error)),
        }
    }
}

const WENT_DOWN: &str = "the machine went down before its disk had the last records";

/// What outlives what.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Durability {
    /// The end of any process, however sudden.
    Kernel,
    /// The end of the machine too.
    Disk,
}

/// One thing to be recorded.
pub type Record = (Ids, Event);

#[derive(Debug)]
pub(crate) struct Writer {
    paths: AuditPaths,
    file: File,
    signer: Signer,
    position: Position,
    note: Option<String>,
    /// Names this boot of the machine.
    boot: String,
    /// The disk had the log up to here: the good part of it goes at least so far.
    durable: u64,
    /// When that was found out, in milliseconds since 1970. Perhaps another process knows better.
    pub(crate) synced_ms: u64,
    pub(crate) sync_every: Duration,
    /// Set when it is unknown whether the disk has the last records.
    unsure: bool,
}

impl Writer {
    /// Opens the log, begins it where there is none, and puts it right where a crash cut it short.
    pub(crate) fn open(paths: AuditPaths) -> Result<Writer, OpenError> {
        Directory::make(&paths.keys, Trust::Secret)?;
        Directory::make(&paths.directory, Trust::Secret)?;
        let file = match existing(&paths)? {
            Some(file) => file,
            None => begin(&paths)?,
        };
        let empty = file.metadata().map_err(AppendError::from)?.len() == 0;
        let begun = !empty || paths.state().exists();
        let signer = keys::signer(&paths, !begun)?;
        let mut writer = Writer {
            paths,
            file,
            signer,
            position: Position::default(),
            note: None,
            boot: boot_id().map_err(AppendError::from)?,
            durable: 0,
            synced_ms: 0,
            sync_every: SYNC_EVERY,
            unsure: false,
        };
        writer.synchronise()?;
        Ok(writer)
    }

    pub(crate) fn signer(&self) -> &Signer {
        &self.signer
    }

    /// Finds the end of the log under its lock, by the state where there is one.
    fn synchronise(&mut self) -> Result<(), OpenError> {
        let file = self.file.try_clone().map_err(AppendError::from)?;
        let locked = Lock::take(&file, Hold::Alone, LOCK_PATIENCE)
            .map_err(AppendError::from)?
            .ok_or(AppendError::Busy)?;
        self.check_place()?;
        let found = state::read(&self.paths.state())?;
        let mut unknown = match &found {
            Found::State(kept) if self.may_be_lost(kept) => Some(WENT_DOWN),
            Found::State(_) => None,
            Found::Missing => Some("the writer's state was missing; the whole log was read"),
            Found::Damaged => Some("the writer's state was damaged; the whole log was read"),
        };
        let mut lost = 0;
        if let Found::State(Kept { position, durable, synced_ms, .. }) = found {
            (self.durable, self.synced_ms) = (durable, synced_ms);
            lost = position.end;
            match self.check_state(&position) {
                Ok(()) => (self.position, unknown) = (position, None),
                // The disk did not get all: what it has is read from its beginning.
                Err(_) if unknown.is_some() => {}
                Err(error) => return Err(error),
            }
        }
        self.catch_up()?;
        let lost = lost.saturating_sub(self.position.end);
        if self.position.edge.size() == 0 {
            keys::publish_verifier(&self.paths, self.signer.verifier())?;
            let event = Event::LogOpened {
                program: "ringwall".into(),
                version: env!("CARGO_PKG_VERSION").into(),
            };
            self.write(vec![(Ids::default(), event)], Durability::Disk)?;
        } else if let Some(reason) = unknown {
            let reason = reason.into();
            let event = LogRecovered { reason, bytes: lost, sha256: None, moved_to: None };
            self.write(vec![(Ids::default(), Event::LogRecovered(event))], Durability::Disk)?;
        }
        drop(locked);
        Ok(())
    }

    /// Whether the machine was started anew since records were written that the disk may lack.
    fn may_be_lost(&self, kept: &Kept) -> bool {
        kept.unsynced.as_ref().is_some_and(|boot| *boot != self.boot)
    }

    fn check_state(&self, position: &Position) -> Result<(), OpenError> {
        let found = self.length()?;
        if found < position.end {
            return Err(Broken::Cut { found, known: position.end }.into());
        }
        if !position.check_end(&self.file, self.signer.verifier())? {
            return Err(OpenError::Disagrees { path: self.paths.state().display().to_string() });
        }
        Ok(())
    }

    /// Appends groups of records, all at once. Each group is written whole or not at all.
    pub(crate) fn append(
        &mut self,
        groups: Vec<Vec<Record>>,
        durability: Durability,
    ) -> Vec<Result<Vec<Receipt>, AppendError>> {
        let count = groups.len();
        match self.append_locked(groups, durability) {
            Ok(results) => results,
            Err(error) => vec![Err(error); count],
        }
    }

    fn append_locked(
        &mut self,
        groups: Vec<Vec<Record>>,
        durability: Durability,
    ) -> Result<Vec<Result<Vec<Receipt>, AppendError>>, AppendError> {
        if self.unsure {
            return Err(AppendError::Unsure);
        }
        let file = self.file.try_clone()?;
        let locked = Lock::take(&file, Hold::Alone, LOCK_PATIENCE)?.ok_or(AppendError::Busy)?;
        self.check_place()?;
        self.catch_up()?;
        let mut results = Vec::with_capacity(groups.len());
        let mut records = Vec::new();
        for group in groups {
            // A group that cannot be written must not take the others with it.
            match group.iter().try_for_each(check_length) {
                Ok(()) => {
                    let first = records.len();
                    records.extend(group);
                    results.push(Ok(first..records.len()));
                }
                Err(error) => results.push(Err(error)),
            }
        }
        let receipts = self.write(records, durability)?;
        drop(locked);
        let of = |range| receipts.get::<std::ops::Range<usize>>(range).unwrap_or_default().to_vec();
        Ok(results.into_iter().map(|result| result.map(of)).collect())
    }

    /// Makes the disk have all older records, if the next ones would have to wait for that. A caller who
    /// is about to write some has this done while it does something else.
    pub(crate) fn freshen(&mut self) -> Result<(), AppendError> {
        if self.unsure {
            return Err(AppendError::Unsure);
        }
        let file = self.file.try_clone()?;
        let locked = Lock::take(&file, Hold::Alone, LOCK_PATIENCE)?.ok_or(AppendError::Busy)?;
        self.check_place()?;
        self.catch_up()?;
        if !self.is_fresh() {
            self.sync()?;
            self.keep_state()?;
        }
        drop(locked);
        Ok(())
    }

    /// The newest checkpoint, with what other processes have written.
    pub(crate) fn checkpoint(&mut self) -> Result<String, AppendError> {
        let file = self.file.try_clone()?;
        let locked = Lock::take(&file, Hold::Alone, LOCK_PATIENCE)?.ok_or(AppendError::Busy)?;
        self.check_place()?;
        self.catch_up()?;
        drop(locked);
        let edge = &self.position.edge;
        // Ed25519 is deterministic: this is the note that stands in the log.
        Ok(self.note.clone().unwrap_or_else(|| self.signer.sign(edge.size(), &edge.root())))
    }

    /// Records in a file that lost its name would never be found.
    fn check_place(&self) -> Result<(), AppendError> {
        let ours = self.file.metadata()?;
        match std::fs::symlink_metadata(self.paths.log()) {
            Ok(named) if (named.dev(), named.ino()) == (ours.dev(), ours.ino()) => Ok(()),
            Ok(_) => Err(AppendError::Replaced),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Err(AppendError::Replaced),
            Err(error) => Err(error.into()),
        }
    }

    fn length(&self) -> Result<u64, AppendError> {
        Ok(self.file.metadata()?.len())
    }

    /// Takes in what other processes wrote, and moves aside what a killed one began to write.
    fn catch_up(&mut self) -> Result<(), AppendError> {
        let found = self.length()?;
        if found < self.position.end {
            return Err(Broken::Cut { found, known: self.position.end }.into());
        }
        if found < self.durable {
            return Err(Broken::Cut { found, known: self.durable }.into());
        }
        if found == self.position.end {
            return Ok(());
        }
        self.position.advance(&self.file, self.signer.verifier())?;
        // Bytes that are no records would make a log that was cut as long as it was.
        if self.position.end < self.durable {
            return Err(Broken::Cut { found: self.position.end, known: self.durable }.into());
        }
        self.note = None;
        // Others have written, and may have made the disk have it.
        if let Ok(Found::State(kept)) = state::read(&self.paths.state()) {
            self.durable = self.durable.max(kept.durable);
            self.synced_ms = self.synced_ms.max(kept.synced_ms);
        }
        if found > self.position.end {
            self.move_aside(found - self.position.end)?;
        }
        Ok(())
    }

    /// What stands behind the last checkpoint was never acknowledged: an acknowledged record has
    /// its checkpoint behind it on the disk. It is kept all the same, and its loss is recorded.
    fn move_aside(&mut self, bytes: u64) -> Result<(), AppendError> {
        use std::os::unix::fs::FileExt;
        let size = self.position.edge.size();
        let kept = bytes.min(MOST_TORN_BYTES);
        let mut torn = vec![0; usize::try_from(kept).unwrap_or_default()];
        self.file.read_exact_at(&mut torn, self.position.end)?;
        let digest = sha256(&[&torn]);
        // The digest in the name: after a crash during this very work the same file is made again.
        let name = format!("torn-{size}-{}", &hex(&digest)[..16]);
        let path = self.paths.directory.join(&name);
        match std::fs::remove_file(&path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error.into()),
            Ok(()) | Err(_) => {}
        }
        create_new(&path, Content::durable(&torn)).map_err(|error| match error {
            FileError::Exists(_) => AppendError::Replaced,
            error => io::Error::from(error).into(),
        })?;
        self.file.set_len(self.position.end)?;
        let event = LogRecovered {
            reason: "a writer was ended while it wrote; what it wrote was not acknowledged".into(),
            bytes,
            sha256: Some(hex(&digest).into()),
            moved_to: Some(name.into()),
        };
        let records = vec![(Ids::default(), Event::LogRecovered(event))];
        self.write(records, Durability::Disk).map(|_| ())
    }

    /// Writes records and their checkpoint at the end. The caller holds the lock.
    fn write(
        &mut self,
        records: Vec<Record>,
        durability: Durability,
    ) -> Result<Vec<Receipt>, AppendError> {
        if records.is_empty() {
            return Ok(Vec::new());
        }
        let mut next = self.position.clone();
        let mut bytes = Vec::with_capacity(records.len() * 512 + 512);
        let mut receipts = Vec::with_capacity(records.len());
        let time = unix_ms();
        for (ids, event) in records {
            let seq = next.edge.size();
            let body = Body { seq, time, ids, event };
            let (line, hash) = line::record(&next.hash, &body).map_err(io::Error::from)?;
            next.last = next.end + bytes.len() as u64;
            next.edge.push(leaf_hash(line.strip_suffix(b"\n").unwrap_or(&line)));
            next.hash = hash;
            receipts.push(Receipt { seq, hash });
            bytes.extend(line);
        }
        let note = self.signer.sign(next.edge.size(), &next.edge.root());
        let checkpoint = line::checkpoint(&note).map_err(io::Error::from)?;
        let text = checkpoint.strip_suffix(b"\n").unwrap_or(&checkpoint);
        next.hash = line::hash_over_checkpoint(&next.hash, text);
        bytes.extend(checkpoint);
        next.end += bytes.len() as u64;
        if let Err(error) = (&self.file).write_all(&bytes) {
            // What got through would be a torn write to the next one.
            self.unsure = self.file.set_len(self.position.end).is_err();
            return Err(error.into());
        }
        let fresh = self.is_fresh();
        self.position = next;
        self.note = Some(note);
        if durability == Durability::Disk || !fresh {
            self.sync()?;
        }
        self.keep_state()?;
        Ok(receipts)
    }

    /// Whether the disk was made to have all that there was not long ago.
    fn is_fresh(&self) -> bool {
        let ago = unix_ms().checked_sub(self.synced_ms);
        ago.is_some_and(|ago| u128::from(ago) < self.sync_every.as_millis())
    }

    /// Makes the disk have all that was written. The caller holds the lock.
    fn sync(&mut self) -> Result<(), AppendError> {
        if let Err(error) = self.file.sync_data() {
            // The kernel may have dropped the pages; reading them back would prove nothing.
            self.unsure = true;
            return Err(error.into());
        }
        (self.durable, self.synced_ms) = (self.position.end, unix_ms());
        Ok(())
    }

    fn keep_state(&self) -> Result<(), AppendError> {
        let Writer { position, durable, synced_ms, .. } = self;
        let unsynced = (*durable < position.end).then(|| self.boot.clone());
        let (position, durable, synced_ms) = (position.clone(), *durable, *synced_ms);
        state::write(&self.paths.state(), &Kept { position, unsynced, durable, synced_ms })?;
        Ok(())
    }
}

fn unix_ms() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

/// A log where there is none, unless there has been one.
fn begin(paths: &AuditPaths) -> Result<File, OpenError> {
    let found = state::read(&paths.state())?;
    // Another process may have been quicker, with the state too.
    if let Some(file) = existing(paths)? {
        return Ok(file);
    }
    match found {
        Found::Missing => {}
        Found::State(Kept { position, .. }) => {
            return Err(Broken::Cut { found: 0, known: position.end }.into());
        }
        Found::Damaged => {
            return Err(StateError::Damaged(paths.state().display().to_string()).into());
        }
    }
    match create_new(&paths.log(), Content::durable(b"")) {
        Ok(()) | Err(FileError::Exists(_)) => {}
        Err(error) => return Err(error.into()),
    }
    existing(paths)?.ok_or(OpenError::Append(AppendError::Replaced))
}

fn boot_id() -> io::Result<String> {
    Ok(std::fs::read_to_string("/proc/sys/kernel/random/boot_id")?.trim().to_owned())
}

fn existing(paths: &AuditPaths) -> Result<Option<File>, FileError> {
    if_there(open_for(&paths.log(), Trust::Secret, Access::Append))
}

/// Whether the line of a record will be short enough, wherever it will stand.
fn check_length((ids, event): &Record) -> Result<(), AppendError> {
    let longest = line::longest(ids, event).map_err(io::Error::from)?;
    if longest < MOST_LINE_BYTES { Ok(()) } else { Err(AppendError::TooLong(longest)) }
}
