//! What was reserved and is not settled yet, also where whoever reserved it is gone by then.

use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use ringwall_safekeeping::{Content, Directory, FileError, Trust, read, replace};
use serde::{Deserialize, Serialize};

use super::{Account, Cost, SpendError, Spending};
use crate::authority::MAX_LIFETIME;
use crate::rights::Budget;

/// A chain of grants has a budget each.
const MOST_HELD_BYTES: u64 = 64 << 10;

/// What was taken from budgets, until it is known what was used.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reserved {
    #[serde(rename = "budgets")]
    pub accounts: Vec<(Account, Budget)>,
    pub cost: Cost,
}

impl Reserved {
    /// Gives back what was not used.
    pub fn settle(&self, spending: &Spending, used: Cost) -> Result<(), SpendError> {
        spending.settle(&self.accounts, self.cost, used)
    }
}

/// What sandboxes that live on hold of their grants, until they end: words of whoever holds them.
#[derive(Debug)]
pub struct Held {
    directory: PathBuf,
}

impl Held {
    pub fn open(home: &Path) -> Result<Held, SpendError> {
        let directory = home.join("grants").join("held");
        Directory::make(&directory, Trust::Secret)?;
        Ok(Held { directory })
    }

    pub fn put(&self, sandbox: &str, words: &[u8]) -> Result<(), SpendError> {
        forget_old(&self.directory);
        Ok(replace(&self.directory.join(sandbox), Content::durable(words))?)
    }

    pub fn read(&self, sandbox: &str) -> Result<Option<Vec<u8>>, SpendError> {
        match read(&self.directory.join(sandbox), Trust::Secret, MOST_HELD_BYTES) {
            Ok(words) => Ok(Some(words.to_vec())),
            Err(FileError::Missing(_)) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    /// To be settled by the caller, once.
    pub fn take(&self, sandbox: &str) -> Result<Option<Vec<u8>>, SpendError> {
        let words = self.read(sandbox)?;
        // Whoever removes it settles it.
        Ok(words.filter(|_| std::fs::remove_file(self.directory.join(sandbox)).is_ok()))
    }
}

/// No grant lives so long that these could count. What cannot be removed stays.
pub(super) fn forget_old(directory: &Path) {
    let Ok(list) = std::fs::read_dir(directory) else { return };
    let old = |entry: &std::fs::DirEntry| {
        let written = entry.metadata().and_then(|metadata| metadata.modified());
        let age = written.map(|at| SystemTime::now().duration_since(at).unwrap_or_default());
        age.is_ok_and(|age| age > MAX_LIFETIME + Duration::from_secs(3600))
    };
    for entry in list.flatten().filter(|entry| entry.file_name() != "lock").filter(old) {
        let _ = std::fs::remove_file(entry.path());
    }
}
