//! What is on disk of an approval: the request, the decision, and marks. Each file is made whole or
//! not at all, never changed, and sealed with a key of the engine; a decision also carries the
//! signature of the person who made it.

use std::path::{Path, PathBuf};

use ringwall_grant::{GrantId, PublicKey};
use ringwall_safekeeping::{Content, Directory, FileError, Trust, create_new, hex, random, read};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use zeroize::Zeroizing;

use crate::action::Action;

const MAX_RECORD_BYTES: u64 = 128 << 10;
const SIGNED: &str = "decision on an approval";

/// Names an approval: `apr-` and twelve hexadecimal digits.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub struct ApprovalId(String);

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is no approval; it looks like apr-0123456789ab, see `ringwall approvals ls`")]
pub struct ApprovalIdError(String);

#[derive(Debug, thiserror::Error)]
pub enum RecordError {
    #[error(transparent)]
    File(#[from] FileError),
    #[error("the record {} was edited, forged, or belongs to another approval", .0.display())]
    Forged(PathBuf),
}

/// What was asked for, by whom, and what can come of it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AskedFor {
    pub id: ApprovalId,
    pub action: Action,
    /// The elevation that policy offers for it.
    pub elevation: String,
    pub max_seconds: u64,
    pub single_use: bool,
    pub requester: Requester,
    pub asked_unix: u64,
    /// From then on it cannot be approved any more.
    pub expires_unix: u64,
    /// Stands for the one token that can be elevated.
    pub(crate) token_request: String,
}

/// Who asked.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Requester {
    /// The holder's label in its grant.
    pub holder: String,
    /// Of all blocks of its grant.
    pub grants: Vec<GrantId>,
    /// A key that it is known by, if it is.
    pub key: Option<PublicKey>,
}

/// What a person decided.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Decision {
    pub id: ApprovalId,
    /// Of the action that the person was shown.
    pub action_hash: String,
    pub approved: bool,
    pub approver: String,
    pub key: PublicKey,
    pub reason: String,
    pub decided_unix: u64,
    /// The end of the elevation; the time of the decision if there is none.
    pub until_unix: u64,
    pub once: bool,
    /// The approver's block for the token.
    pub(crate) block: Option<String>,
}

/// Something that happened once: first use, an early end, the return to the old rights.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Mark {
    pub(crate) at_unix: u64,
    pub(crate) note: String,
}

/// The files of one approval.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Request,
    Decision,
    Used,
    Ended,
    Returned,
}

impl Kind {
    pub(crate) const ALL: [Kind; 5] =
        [Kind::Request, Kind::Decision, Kind::Used, Kind::Ended, Kind::Returned];

    pub(crate) fn word(self) -> &'static str {
        match self {
            Kind::Request => "request",
            Kind::Decision => "decision",
            Kind::Used => "used",
            Kind::Ended => "ended",
            Kind::Returned => "returned",
        }
    }
}

/// Signs a record's line.
type Sign<'a> = &'a dyn Fn(&[u8]) -> [u8; 64];

/// The directory of records with the key that seals them.
pub(crate) struct Records {
    pub(crate) directory: PathBuf,
    seal: Zeroizing<[u8; 32]>,
}

/// Below an engine's home.
pub(crate) const DIRECTORY: &str = "approvals";

impl Records {
    /// Opens the records of an engine's home; the key is made at first use.
    pub(crate) fn open(home: &Path) -> Result<Records, RecordError> {
        let (directory, keys) = (home.join(DIRECTORY), home.join("keys"));
        Directory::make(&directory, Trust::Secret)?;
        Directory::make(&keys, Trust::Secret)?;
        let path = keys.join("approvals.seal");
        if !path.exists() {
            let mut fresh = Zeroizing::new([0; 32]);
            random(&mut fresh[..])?;
            match create_new(&path, Content::durable(&fresh[..])) {
                // Somebody else was first.
                Ok(()) | Err(FileError::Exists(_)) => {}
                Err(error) => return Err(error.into()),
            }
        }
        let content = Zeroizing::new(read(&path, Trust::Secret, 32)?);
        let mut seal = Zeroizing::new([0; 32]);
        if content.len() != seal.len() {
            return Err(RecordError::Forged(path));
        }
        seal.copy_from_slice(&content);
        Ok(Records { directory, seal })
    }

    pub(crate) fn path(&self, id: &ApprovalId, kind: Kind) -> PathBuf {
        self.directory.join(format!("{}.{}", id.as_str(), kind.word()))
    }

    pub(crate) fn exists(&self, id: &ApprovalId, kind: Kind) -> bool {
        // What cannot be looked at counts as there: none of these files gives a right by its absence
        // but the marks, which take one away by their presence.
        !matches!(self.path(id, kind).try_exists(), Ok(false))
    }

    /// Writes a record that is not there yet. `false`: it is there.
    pub(crate) fn create(
        &self,
        id: &ApprovalId,
        kind: Kind,
        record: &impl Serialize,
        signature: Option<Sign<'_>>,
    ) -> Result<bool, RecordError> {
        let path = self.path(id, kind);
        let text = serde_json::to_string(record)
            .map_err(|error| FileError::Use { path: path.clone(), source: error.into() })?;
        let mut lines = text + "\n";
        if let Some(sign) = signature {
            let signature = sign(lines.as_bytes());
            lines.push_str(&hex::encode(&signature));
            lines.push('\n');
        }
        let seal = self.seal_of(id, kind, lines.as_bytes());
        lines.push_str(&seal);
        lines.push('\n');
        match create_new(&path, Content::durable(lines.as_bytes())) {
            Ok(()) => Ok(true),
            Err(FileError::Exists(_)) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }

    /// Reads a record whose seal is good.
    pub(crate) fn read<T: DeserializeOwned>(
        &self,
        id: &ApprovalId,
        kind: Kind,
    ) -> Result<T, RecordError> {
        let (text, _) = self.sealed_lines(id, kind)?;
        let line = text.lines().next().unwrap_or_default();
        serde_json::from_str(line).map_err(|_| RecordError::Forged(self.path(id, kind)))
    }

    /// Reads a decision whose seal is good and whose signature is by the key that it names. Whether
    /// that key may decide is another question.
    pub(crate) fn read_decision(&self, id: &ApprovalId) -> Result<Decision, RecordError> {
        let (text, path) = self.sealed_lines(id, Kind::Decision)?;
        let forged = || RecordError::Forged(path.clone());
        let (line, signature) = text.trim_end().split_once('\n').ok_or_else(forged)?;
        let decision: Decision = serde_json::from_str(line).map_err(|_| forged())?;
        let signature = hex::decode_array::<64>(signature).ok_or_else(forged)?;
        let signed = format!("{line}\n");
        if decision.id != *id || !decision.key.verifies(SIGNED, signed.as_bytes(), &signature) {
            return Err(forged());
        }
        Ok(decision)
    }

    pub(crate) fn create_decision(
        &self,
        decision: &Decision,
        key: &ringwall_grant::SecretKey,
    ) -> Result<bool, RecordError> {
        let sign = |line: &[u8]| key.sign(SIGNED, line);
        self.create(&decision.id, Kind::Decision, decision, Some(&sign))
    }

    fn sealed_lines(&self, id: &ApprovalId, kind: Kind) -> Result<(String, PathBuf), RecordError> {
        let path = self.path(id, kind);
        let content = read(&path, Trust::Secret, MAX_RECORD_BYTES)?;
        let forged = || RecordError::Forged(path.clone());
        let text = String::from_utf8(content).map_err(|_| forged())?;
        let body = text.strip_suffix('\n').ok_or_else(forged)?;
        let (lines, seal) = body.split_at(body.rfind('\n').ok_or_else(forged)? + 1);
        if self.seal_is(id, kind, lines.as_bytes(), seal) {
            Ok((lines.to_owned(), path))
        } else {
            Err(forged())
        }
    }

    /// The name of the file is sealed too: a record cannot stand for another.
    fn mac(&self, id: &ApprovalId, kind: Kind, lines: &[u8]) -> blake3::Hash {
        let mut mac = blake3::Hasher::new_keyed(&self.seal);
        mac.update(format!("{} {}\n", kind.word(), id.as_str()).as_bytes());
        mac.update(lines);
        mac.finalize()
    }

    fn seal_of(&self, id: &ApprovalId, kind: Kind, lines: &[u8]) -> String {
        hex::encode(self.mac(id, kind, lines).as_bytes())
    }

    fn seal_is(&self, id: &ApprovalId, kind: Kind, lines: &[u8], seal: &str) -> bool {
        // The comparison takes the same time wherever the difference is.
        hex::decode_array::<32>(seal).is_some_and(|seal| self.mac(id, kind, lines) == seal)
    }

    /// All approvals there are, oldest name first.
    pub(crate) fn ids(&self) -> Result<Vec<ApprovalId>, RecordError> {
        let wrong = |source| FileError::Use { path: self.directory.clone(), source };
        let mut ids = Vec::new();
        for entry in std::fs::read_dir(&self.directory).map_err(wrong)? {
            let name = entry.map_err(wrong)?.file_name();
            let id = name.to_str().and_then(|name| name.strip_suffix(".request")?.parse().ok());
            ids.extend(id);
        }
        ids.sort();
        Ok(ids)
    }
}

impl std::fmt::Debug for Records {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Records").field("directory", &self.directory).finish_non_exhaustive()
    }
}

impl ApprovalId {
    pub(crate) fn fresh() -> Result<ApprovalId, FileError> {
        let mut chance = [0; 6];
        random(&mut chance)?;
        Ok(ApprovalId(format!("apr-{}", hex::encode(&chance))))
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl std::fmt::Display for ApprovalId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::str::FromStr for ApprovalId {
    type Err = ApprovalIdError;

    /// It becomes a file's name: nothing but what [`ApprovalId::fresh`] makes is taken.
    fn from_str(text: &str) -> Result<ApprovalId, ApprovalIdError> {
        let digits = text.strip_prefix("apr-").and_then(hex::decode_array::<6>);
        match digits {
            Some(_) => Ok(ApprovalId(text.to_owned())),
            None => Err(ApprovalIdError(text.chars().take(64).collect())),
        }
    }
}

impl From<ApprovalId> for String {
    fn from(id: ApprovalId) -> String {
        id.0
    }
}

impl TryFrom<String> for ApprovalId {
    type Error = ApprovalIdError;

    fn try_from(text: String) -> Result<ApprovalId, ApprovalIdError> {
        text.parse()
    }
}
