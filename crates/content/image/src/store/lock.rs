//! Keeps processes that add to the store and processes that delete from it apart.

use std::time::Duration;

use ringwall_safekeeping::{Hold, Lock, Wait, lock_within};

use super::{Store, StoreError};

/// How long to wait for others: longer than any change takes, shorter than a person's patience.
const PATIENCE: Duration = Duration::from_secs(10);

impl Store {
    /// For adding: many processes may add at once, and what they add appears by rename.
    pub(super) fn lock_for_adding(&self) -> Result<Lock, StoreError> {
        self.lock(Hold::Shared)
    }

    /// For deleting: nobody adds meanwhile, so what nothing refers to is really unused.
    pub(super) fn lock_for_deleting(&self) -> Result<Lock, StoreError> {
        self.lock(Hold::Alone)
    }

    fn lock(&self, how: Hold) -> Result<Lock, StoreError> {
        self.make_layout()?;
        let path = self.root.join("lock");
        match lock_within(&path, how, Wait::For(PATIENCE)) {
            Ok(lock) => lock.ok_or(StoreError::Busy),
            Err(error) => Err(StoreError::io("lock", &path)(error.into())),
        }
    }
}
