//! The side that makes and ends grants: root keys, minting, revoking, and the record of what was
//! minted. It works on the engine's home, which no ring can reach.

use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use ringwall_safekeeping::{Directory, FileError, Hold, Lock, Trust};

use crate::keys::{KeyError, PublicKey, SecretKey};
use crate::records::{self, Record};
use crate::revocations::{self, Revocations, RevocationsError};
use crate::rights::Rights;
use crate::token::{GrantId, Token, TokenError};
use crate::verify::Verifier;

/// How long a grant lives unless told otherwise: about as long as a task.
pub const DEFAULT_LIFETIME: Duration = Duration::from_secs(3600);
/// No grant lives longer.
pub const MAX_LIFETIME: Duration = Duration::from_secs(7 * 24 * 3600);

const KEYS: &str = "keys";
const GRANTS: &str = "grants";
/// Tokens signed with either are good, so that a key can be replaced while tokens are out.
const ACTIVE_KEYS: usize = 2;

#[derive(Debug, thiserror::Error)]
pub enum AuthorityError {
    #[error(transparent)]
    Key(#[from] KeyError),
    #[error(transparent)]
    File(#[from] FileError),
    #[error(transparent)]
    Token(#[from] TokenError),
    #[error(transparent)]
    Revocations(#[from] RevocationsError),
    #[error("a grant cannot live for {asked} seconds; {} are the most", MAX_LIFETIME.as_secs())]
    Lifetime { asked: u64 },
    #[error("there is no key for grants yet: make a grant first")]
    NoKey,
    #[error("no grant has the id {0}; `ringwall grant ls` shows those that were made")]
    Unknown(GrantId),
}

/// The keys and files of one engine's grants.
#[derive(Debug)]
pub struct Authority {
    keys_directory: PathBuf,
    grants: PathBuf,
    /// By number, the newest last. At least one.
    keys: Vec<(u32, SecretKey)>,
}

/// A fresh grant.
#[derive(Debug, Clone)]
pub struct Minted {
    pub token: Token,
    pub record: Record,
}

impl Authority {
    /// Opens the authority of an engine's home. Its first key is made at first use.
    pub fn open(home: &Path) -> Result<Authority, AuthorityError> {
        let (keys_directory, grants) = (home.join(KEYS), home.join(GRANTS));
        Directory::make(&keys_directory, Trust::Secret)?;
        Directory::make(&grants, Trust::Secret)?;
        let _lock = lock(&grants)?;
        let mut keys = load_keys(&keys_directory)?;
        if keys.is_empty() {
            let key = SecretKey::generate()?;
            // The list first: once there is a key there can be tokens, and a list that went missing
            // must not be begun anew.
            revocations::begin(&grants, (1, &key), unix(SystemTime::now()))?;
            key.store_new(&key_file(&keys_directory, 1))?;
            keys.push((1, key));
        }
        Ok(Authority { keys_directory, grants, keys })
    }

    /// Opens it only if there is one already.
    pub fn open_existing(home: &Path) -> Result<Authority, AuthorityError> {
        let keys_directory = home.join(KEYS);
        let there = keys_directory.is_dir() && !load_keys(&keys_directory)?.is_empty();
        if there { Authority::open(home) } else { Err(AuthorityError::NoKey) }
    }

    /// Makes a grant and records it. The token is kept nowhere.
    pub fn mint(&self, rights: &Rights, lifetime: Duration) -> Result<Minted, AuthorityError> {
        if lifetime > MAX_LIFETIME {
            return Err(AuthorityError::Lifetime { asked: lifetime.as_secs() });
        }
        let now = unix(SystemTime::now());
        let expires = now + lifetime.as_secs();
        let (number, key) = self.newest()?;
        let token = Token::mint(key, number, rights, expires)?;
        let record = Record {
            id: token.ids()?.last().copied().ok_or(TokenError::Malformed("it has no block"))?,
            parent: None,
            task: rights.task.as_str().to_owned(),
            tenant: rights.tenant.as_str().to_owned(),
            holder: rights.holder.as_str().to_owned(),
            minted_unix: now,
            expires_unix: expires,
        };
        let _lock = lock(&self.grants)?;
        records::append(&self.grants, &record, now)?;
        Ok(Minted { token, record })
    }

    /// Records a grant that was narrowed here, so that it can be found and revoked by its id.
    pub fn record_narrowed(&self, record: &Record) -> Result<(), AuthorityError> {
        let _lock = lock(&self.grants)?;
        Ok(records::append(&self.grants, record, unix(SystemTime::now()))?)
    }

    /// Ends these grants and all that were made from them, at every enforcement point, before it
    /// returns. Gives how many were not revoked before.
    pub fn revoke(&self, ids: &[GrantId]) -> Result<u64, AuthorityError> {
        let _lock = lock(&self.grants)?;
        let now = unix(SystemTime::now());
        let key = self.newest()?;
        Ok(revocations::append(self.places(), &self.public_keys(), key, ids, now)?)
    }

    /// Signs the list of revoked grants anew, for copies of it that must be fresh.
    pub fn confirm_revocations(&self) -> Result<(), AuthorityError> {
        self.revoke(&[]).map(|_| ())
    }

    /// Makes a new key. Tokens of the one before stay good until the next time.
    pub fn rotate(&mut self) -> Result<u32, AuthorityError> {
        let _lock = lock(&self.grants)?;
        self.keys = load_keys(&self.keys_directory)?;
        let number = self.newest()?.0 + 1;
        let key = SecretKey::generate()?;
        key.store_new(&key_file(&self.keys_directory, number))?;
        self.keys.push((number, key));
        let now = unix(SystemTime::now());
        revocations::append(self.places(), &self.public_keys(), self.newest()?, &[], now)?;
        // Only now that the list is under the new key.
        while self.keys.len() > ACTIVE_KEYS {
            let (old, _) = self.keys.remove(0);
            let path = key_file(&self.keys_directory, old);
            std::fs::remove_file(&path).map_err(|source| FileError::Use { path, source })?;
        }
        Ok(number)
    }

    /// What was minted or narrowed here, oldest first.
    pub fn records(&self) -> Result<Vec<Record>, AuthorityError> {
        Ok(records::read(&self.grants)?)
    }

    /// An enforcement point of this home.
    pub fn verifier(&self) -> Verifier {
        Verifier::new(self.public_keys(), self.revocations())
    }

    pub fn revocations(&self) -> Revocations {
        Revocations::new(&self.grants, self.public_keys()).kept_beside(&self.keys_directory)
    }

    /// By number.
    pub fn public_keys(&self) -> Vec<(u32, PublicKey)> {
        self.keys.iter().map(|(number, key)| (*number, key.public())).collect()
    }

    /// Where the list is, and where it is kept how far it went.
    fn places(&self) -> (&Path, &Path) {
        (&self.grants, &self.keys_directory)
    }

    fn newest(&self) -> Result<(u32, &SecretKey), AuthorityError> {
        self.keys.last().map(|(number, key)| (*number, key)).ok_or(AuthorityError::NoKey)
    }
}

pub(crate) fn unix(time: SystemTime) -> u64 {
    time.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}

fn lock(grants: &Path) -> Result<Lock, FileError> {
    ringwall_safekeeping::lock(&grants.join("lock"), Hold::Alone)
}

fn key_file(directory: &Path, number: u32) -> PathBuf {
    directory.join(format!("grant-{number}.key"))
}

fn load_keys(directory: &Path) -> Result<Vec<(u32, SecretKey)>, AuthorityError> {
    let wrong = |source| FileError::Use { path: directory.to_owned(), source };
    let mut numbers = Vec::new();
    for entry in std::fs::read_dir(directory).map_err(wrong)? {
        let name = entry.map_err(wrong)?.file_name();
        let number = name.to_str().and_then(|name| {
            name.strip_prefix("grant-")?.strip_suffix(".key")?.parse::<u32>().ok()
        });
        numbers.extend(number);
    }
    numbers.sort_unstable();
    let newest = numbers.len().saturating_sub(ACTIVE_KEYS);
    let load = |number: &u32| Ok((*number, SecretKey::load(&key_file(directory, *number))?));
    numbers[newest..].iter().map(load).collect()
}
