//! The journal of one agent: a file that only grows, one line for each thing that was said or done.
//!
//! Each line begins with a hash of itself and the line before it, so that an edit shows. A line that
//! was cut by a crash is the last one and counts as never written.

use std::fmt;
use std::fs::{self, File};
use std::io::{self, BufRead, BufReader, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::time::{SystemTime, UNIX_EPOCH};

use ringwall_agent_model::{Tokens, Turn};
use ringwall_safekeeping::{Access, Directory, Hold, Trust, Wait, hold, new_file, random_name};
use ringwall_spec::Wall;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::bounds::{Bounds, Spent, Stop};
use crate::options::Options;
use crate::output::Place;

/// Below Ringwall's home.
const DIRECTORY: &str = "agents";
const SUFFIX: &str = "journal";
/// Results are bounded, so no line of ours is longer.
const MAX_LINE_BYTES: u64 = 32 << 20;
const HASH_DIGITS: usize = 32;

#[derive(Debug, thiserror::Error)]
pub enum JournalError {
    #[error("no agent {0}; `ringwall agent ls` lists them")]
    NotFound(AgentId),
    #[error("agent {0} is running; it can be shown, and resumed once it has stopped")]
    Running(AgentId),
    #[error("the journal {path:?} cannot be read or written")]
    Io { path: PathBuf, source: io::Error },
    #[error(
        "the journal {path:?} was damaged or edited at line {line}, so nothing goes on from it"
    )]
    Damaged { path: PathBuf, line: u64 },
}

/// The name of an agent: `agt-` and twelve hexadecimal digits.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub struct AgentId(String);

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is no agent; write agt- and twelve hexadecimal digits, as `ringwall agent ls` does")]
pub struct AgentIdError(String);

impl AgentId {
    pub fn fresh() -> io::Result<AgentId> {
        Ok(AgentId(format!("agt-{}", random_name::<6>()?)))
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for AgentId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl FromStr for AgentId {
    type Err = AgentIdError;

    fn from_str(text: &str) -> Result<AgentId, AgentIdError> {
        let digits = text.strip_prefix("agt-").unwrap_or_default();
        let lower = |byte: u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte);
        match digits.len() == 12 && digits.bytes().all(lower) {
            true => Ok(AgentId(text.to_owned())),
            false => Err(AgentIdError(text.to_owned())),
        }
    }
}

impl TryFrom<String> for AgentId {
    type Error = AgentIdError;

    fn try_from(text: String) -> Result<AgentId, AgentIdError> {
        text.parse()
    }
}

impl From<AgentId> for String {
    fn from(id: AgentId) -> String {
        id.0
    }
}

/// What can be in a journal.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case")]
pub enum Entry {
    Begun {
        options: Box<Options>,
        /// Of a sub-agent: whose, and by which step.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        parent: Option<(AgentId, u64)>,
        /// The id of its grant.
        grant: String,
        /// The policy files that counted, with their digests.
        policy: Vec<String>,
    },
    /// It goes on, with these limits.
    Resumed {
        bounds: Bounds,
        grant: String,
    },
    /// A ring was raised for the brain.
    Brain {
        sandbox: String,
        wall: Wall,
    },
    /// A sandbox for what the model wants done, and from which one the changes were taken over.
    Sandbox {
        id: String,
        wall: Wall,
        why: String,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        from: Option<String>,
    },
    /// The model answered.
    Turn {
        turn: Turn,
        tokens: Tokens,
        money_micros: u64,
        active_ms: u64,
    },
    /// The model was asked without a turn of the agent: by a reader, or in vain.
    Read {
        tokens: Tokens,
        money_micros: u64,
    },
    /// Time went by without an answer.
    Waited {
        active_ms: u64,
    },
    /// From here until its end nobody knows whether a call was done.
    CallBegun {
        step: u64,
        id: String,
        tool: String,
        input: Value,
    },
    CallEnded {
        step: u64,
        /// As the model is told.
        content: String,
        failed: bool,
        /// Why it was refused, by policy, grant or taint.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        refused: Option<String>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        place: Option<Place>,
        ms: u64,
        active_ms: u64,
    },
    /// What strangers wrote has come in.
    Tainted {
        step: u64,
        source: String,
    },
    Planned {
        step: u64,
        plan: Vec<String>,
    },
    Phase {
        step: u64,
        to: String,
    },
    /// A person was asked.
    Asked {
        step: u64,
        approval: String,
        elevation: String,
    },
    /// A person said yes.
    Elevated {
        step: u64,
        approval: String,
        elevation: String,
        until_unix: u64,
    },
    /// A sub-agent was started by this step.
    Child {
        step: u64,
        id: AgentId,
    },
    /// What a sub-agent has used, so far.
    ChildSpent {
        step: u64,
        id: AgentId,
        spent: Spent,
        tainted: Option<String>,
    },
    Stopped {
        stop: Stop,
    },
    Finished {
        text: String,
    },
}

/// One entry with when it was written.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Line {
    pub n: u64,
    pub at_unix_ms: u64,
    #[serde(flatten)]
    pub entry: Entry,
}

/// A journal that is being written; nobody else can write it meanwhile.
#[derive(Debug)]
pub struct Journal {
    pub id: AgentId,
    path: PathBuf,
    file: File,
    last: String,
    lines: u64,
}

fn path_of(home: &Path, id: &AgentId) -> PathBuf {
    home.join(DIRECTORY).join(format!("{id}.{SUFFIX}"))
}

impl Journal {
    /// Begins a journal for a new agent.
    pub fn create(home: &Path, id: AgentId) -> Result<Journal, JournalError> {
        let path = path_of(home, &id);
        let wrong = |source| JournalError::Io { path: path.clone(), source };
        let made = Directory::make(&home.join(DIRECTORY), Trust::Own)
            .and_then(|_| new_file(&path, Access::Append));
        let file = made.map_err(|error| wrong(error.into()))?;
        lock(&file, &id, &path)?;
        Ok(Journal { id, path, file, last: String::new(), lines: 0 })
    }

    /// Goes on with one, after its last whole line.
    pub fn open(home: &Path, id: AgentId) -> Result<(Journal, Vec<Line>), JournalError> {
        let path = path_of(home, &id);
        let wrong = |source| JournalError::Io { path: path.clone(), source };
        let file = match File::options().read(true).append(true).open(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                return Err(JournalError::NotFound(id));
            }
            file => file.map_err(wrong)?,
        };
        lock(&file, &id, &path)?;
        let read = read_lines(&file, &path)?;
        file.set_len(read.bytes).map_err(wrong)?;
        let lines = read.lines.len() as u64;
        Ok((Journal { id, path, file, last: read.last, lines }, read.lines))
    }

    /// All whole lines of an agent's journal, also while it runs.
    pub fn read(home: &Path, id: &AgentId) -> Result<Vec<Line>, JournalError> {
        let path = path_of(home, id);
        match File::open(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                Err(JournalError::NotFound(id.clone()))
            }
            Err(source) => Err(JournalError::Io { path, source }),
            Ok(file) => Ok(read_lines(&file, &path)?.lines),
        }
    }

    /// How long it is, in bytes: whoever has read it so far need not read it again.
    pub fn length(home: &Path, id: &AgentId) -> io::Result<u64> {
        Ok(fs::metadata(path_of(home, id))?.len())
    }

    /// Whether somebody writes it at this moment.
    pub fn is_running(home: &Path, id: &AgentId) -> bool {
        let free = |file: File| hold(&file, Hold::Shared, Wait::Never).is_ok_and(|free| free);
        File::open(path_of(home, id)).is_ok_and(|file| !free(file))
    }

    /// All agents of a home, the newest last.
    pub fn list(home: &Path) -> Result<Vec<AgentId>, JournalError> {
        let path = home.join(DIRECTORY);
        let wrong = |source| JournalError::Io { path: path.clone(), source };
        let entries = match fs::read_dir(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            entries => entries.map_err(wrong)?,
        };
        let mut found = Vec::new();
        for entry in entries {
            let entry = entry.map_err(wrong)?;
            let name = entry.file_name();
            let id = name.to_str().and_then(|name| name.strip_suffix(SUFFIX)?.strip_suffix('.'));
            if let Some(id) = id.and_then(|id| id.parse::<AgentId>().ok()) {
                let changed = entry.metadata().and_then(|status| status.modified());
                found.push((changed.unwrap_or(UNIX_EPOCH), id));
            }
        }
        found.sort();
        Ok(found.into_iter().map(|(_, id)| id).collect())
    }

    /// Writes an entry. Whoever is killed right after it has written it; only what is `durable` also
    /// waits for the disk.
    pub fn append(&mut self, entry: &Entry, durable: bool) -> Result<(), JournalError> {
        let wrong = |source| JournalError::Io { path: self.path.clone(), source };
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let at_unix_ms = u64::try_from(since.as_millis()).unwrap_or(u64::MAX);
        let line = Line { n: self.lines + 1, at_unix_ms, entry: entry.clone() };
        let text = serde_json::to_string(&line).map_err(|error| wrong(error.into()))?;
        let hash = hash(&self.last, text.as_bytes());
        self.file.write_all(format!("{hash} {text}\n").as_bytes()).map_err(wrong)?;
        if durable {
            self.file.sync_data().map_err(wrong)?;
        }
        self.last = hash;
        self.lines += 1;
        Ok(())
    }
}

fn lock(file: &File, id: &AgentId, path: &Path) -> Result<(), JournalError> {
    match hold(file, Hold::Alone, Wait::Never) {
        Ok(true) => Ok(()),
        Ok(false) => Err(JournalError::Running(id.clone())),
        Err(source) => Err(JournalError::Io { path: path.to_owned(), source }),
    }
}

fn hash(before: &str, text: &[u8]) -> String {
    let mut hasher = blake3::Hasher::new();
    hasher.update(before.as_bytes());
    hasher.update(text);
    hasher.finalize().to_hex().chars().take(HASH_DIGITS).collect()
}

struct ReadLines {
    lines: Vec<Line>,
    last: String,
    /// Where the last whole line ends.
    bytes: u64,
}

fn read_lines(file: &File, path: &Path) -> Result<ReadLines, JournalError> {
    let wrong = |source| JournalError::Io { path: path.to_owned(), source };
    let mut reader = BufReader::new(file);
    reader.seek(SeekFrom::Start(0)).map_err(wrong)?;
    let mut read = ReadLines { lines: Vec::new(), last: String::new(), bytes: 0 };
    let mut text = Vec::new();
    loop {
        text.clear();
        let length =
            reader.by_ref().take(MAX_LINE_BYTES).read_until(b'\n', &mut text).map_err(wrong)?;
        if length == 0 || text.last() != Some(&b'\n') {
            // Nothing more, or what a crash left of a line.
            return Ok(read);
        }
        let line = read.lines.len() as u64 + 1;
        let (hash, entry) = whole(&read.last, &text)
            .ok_or(JournalError::Damaged { path: path.to_owned(), line })?;
        read.lines.push(entry);
        read.last = hash;
        read.bytes += length as u64;
    }
}

fn whole(last: &str, text: &[u8]) -> Option<(String, Line)> {
    let text = text.strip_suffix(b"\n")?;
    let (found, rest) = text.split_at_checked(HASH_DIGITS)?;
    let json = rest.strip_prefix(b" ")?;
    let expected = hash(last, json);
    let line = serde_json::from_slice(json).ok()?;
    (found == expected.as_bytes()).then_some((expected, line))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn note(step: u64) -> Entry {
        Entry::Tainted { step, source: "a test".to_owned() }
    }

    fn written(home: &Path, count: u64) -> AgentId {
        let id = AgentId::fresh().unwrap();
        let mut journal = Journal::create(home, id.clone()).unwrap();
        for step in 0..count {
            journal.append(&note(step), step % 2 == 0).unwrap();
        }
        id
    }

    #[test]
    fn what_was_written_is_read_and_gone_on_with() {
        let home = tempfile::tempdir().unwrap();
        let id = written(home.path(), 3);
        let (mut journal, lines) = Journal::open(home.path(), id.clone()).unwrap();
        assert_eq!(lines.len(), 3);
        journal.append(&note(3), true).unwrap();
        let lines = Journal::read(home.path(), &id).unwrap();
        assert_eq!(lines.iter().map(|line| line.n).collect::<Vec<_>>(), [1, 2, 3, 4]);
        assert_eq!(Journal::list(home.path()).unwrap(), std::slice::from_ref(&id));
        assert!(Journal::is_running(home.path(), &id));
        assert!(matches!(Journal::open(home.path(), id.clone()), Err(JournalError::Running(_))));
        drop(journal);
        assert!(!Journal::is_running(home.path(), &id));
    }

    #[test]
    fn a_tail_that_was_cut_anywhere_is_as_if_it_had_never_been_written() {
        let home = tempfile::tempdir().unwrap();
        let id = written(home.path(), 3);
        let path = path_of(home.path(), &id);
        let whole = fs::read(&path).unwrap();
        let third = whole.iter().take(whole.len() - 1).rposition(|byte| *byte == b'\n').unwrap();
        for cut in third + 1..whole.len() {
            fs::write(&path, &whole[..cut]).unwrap();
            let (mut journal, lines) = Journal::open(home.path(), id.clone()).unwrap();
            assert_eq!(lines.len(), 2, "cut at {cut}");
            journal.append(&note(9), true).unwrap();
            drop(journal);
            assert_eq!(Journal::read(home.path(), &id).unwrap().len(), 3, "cut at {cut}");
        }
    }

    #[test]
    fn an_edit_shows_wherever_it_is() {
        let home = tempfile::tempdir().unwrap();
        let id = written(home.path(), 3);
        let path = path_of(home.path(), &id);
        let whole = fs::read_to_string(&path).unwrap();
        let lines: Vec<&str> = whole.lines().collect();
        let edited = whole.replacen("a test", "A test", 1);
        let without = format!("{}\n{}\n", lines[0], lines[2]);
        let swapped = format!("{}\n{}\n{}\n", lines[1], lines[0], lines[2]);
        for text in [edited, without, swapped] {
            fs::write(&path, text).unwrap();
            let read = Journal::read(home.path(), &id);
            assert!(matches!(read, Err(JournalError::Damaged { .. })), "{read:?}");
        }
    }

    #[test]
    fn names_of_agents_have_one_form() {
        assert!("agt-0123456789ab".parse::<AgentId>().is_ok());
        for text in ["", "agt-", "agt-0123456789AB", "agt-../../../../x", "x-0123456789ab"] {
            assert!(text.parse::<AgentId>().is_err(), "{text:?}");
        }
    }
}
