//! What the daemon must not forget: sandboxes, calls, events, requests that may be repeated, budgets.
//!
//! [`Store`] is written once, over the few words of SQL that SQLite and PostgreSQL share; a
//! `Database` is one of the two. SQLite is the default and needs nothing; PostgreSQL is for several
//! engines on one state.
//!
//! Invariants:
//! - what a method has returned survives the death of this process at any later moment;
//! - a change and the event that tells of it are one transaction;
//! - every row belongs to a tenant, and no method gives a tenant the row of another, nor a task that of
//!   another task where a [`OwnTask`] is given.

mod budgets;
mod calls;
mod database;
mod events;
mod idempotency;
mod postgresql;
mod sandboxes;
mod schema;
mod sqlite;

use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

pub use budgets::{Amounts, Dimension, ReserveError, Scope, Spent, sandbox_reservation};
pub use calls::{CallRow, CallState, NewCall};
pub use events::EventRow;
pub use idempotency::{Claim, Reply};
pub use sandboxes::{NewSandbox, SandboxRow, SandboxState};

use database::{Database, Tx};

#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    #[error("the state in {place} could not be opened")]
    Open { place: String, source: Box<dyn std::error::Error + Send + Sync> },
    #[error(
        "the state in {place} was written by a newer Ringwall (version {found}, known {known}); use that one"
    )]
    Newer { place: String, found: i64, known: i64 },
    #[error(
        "{0:?} is not this machine, and the connection to PostgreSQL is not encrypted; name a socket directory or a loopback address"
    )]
    NotLocal(String),
    #[error("the state could not be read or written")]
    Use(#[source] Box<dyn std::error::Error + Send + Sync>),
    #[error("the name {0} is taken; choose another, or delete the sandbox that has it")]
    NameTaken(String),
    #[error("the state holds something that Ringwall does not write: {0}")]
    Damaged(&'static str),
}

/// The state of one daemon, or of several that share a server.
#[derive(Debug)]
pub struct Store {
    database: Box<dyn Database>,
    /// Which engine's rows are this one's.
    engine: String,
}

impl Store {
    /// In one file, made at first use.
    pub fn sqlite(path: &Path, engine: &str) -> Result<Store, StoreError> {
        Store::over(Box::new(sqlite::Sqlite::open(path)?), engine)
    }

    /// In a PostgreSQL database, named as libpq does it: `host=/run/postgresql dbname=ringwall`.
    pub fn postgresql(settings: &str, engine: &str) -> Result<Store, StoreError> {
        Store::over(Box::new(postgresql::Postgresql::open(settings)?), engine)
    }

    fn over(database: Box<dyn Database>, engine: &str) -> Result<Store, StoreError> {
        schema::bring_up_to_date(&*database)?;
        Ok(Store { database, engine: engine.to_owned() })
    }

    /// For an engine that begins: nothing that its predecessor had under way goes on. Calls count as
    /// lost, unanswered requests as unknown, and what was reserved as spent.
    pub fn begin(&self) -> Result<(), StoreError> {
        self.write(|tx| {
            calls::lose_all(tx, &self.engine)?;
            idempotency::lose_all(tx, &self.engine)?;
            budgets::spend_all(tx, &self.engine)
        })
    }

    /// Forgets what ended before then and only shows what was.
    pub fn forget_before(&self, unix_ms: u64) -> Result<(), StoreError> {
        let before = signed(unix_ms);
        self.write(|tx| {
            tx.execute("DELETE FROM calls WHERE ended_ms < $1", &[before.into()])?;
            tx.execute("DELETE FROM sandboxes WHERE ended_ms < $1", &[before.into()])?;
            tx.execute("DELETE FROM events WHERE time_ms < $1", &[before.into()])?;
            tx.execute("DELETE FROM replies WHERE made_ms < $1", &[before.into()])?;
            Ok(())
        })
    }

    fn write<T>(
        &self,
        work: impl FnOnce(&mut dyn Tx) -> Result<T, StoreError>,
    ) -> Result<T, StoreError> {
        let (mut work, mut done) = (Some(work), None);
        self.database.write(&mut |tx| {
            if let Some(work) = work.take() {
                done = Some(work(tx)?);
            }
            Ok(())
        })?;
        done.ok_or(StoreError::Damaged("a transaction that did nothing"))
    }

    fn read<T>(
        &self,
        work: impl FnOnce(&mut dyn Tx) -> Result<T, StoreError>,
    ) -> Result<T, StoreError> {
        let (mut work, mut done) = (Some(work), None);
        self.database.read(&mut |tx| {
            if let Some(work) = work.take() {
                done = Some(work(tx)?);
            }
            Ok(())
        })?;
        done.ok_or(StoreError::Damaged("a transaction that did nothing"))
    }
}

/// Milliseconds since 1970.
pub fn now_ms() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

/// The task of a caller who sees its rows only. Names of tasks are a tenant's own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OwnTask<'a> {
    pub tenant: &'a str,
    pub task: &'a str,
}

/// Makes a condition on the first two parameters of a query. `None` looks at all rows.
fn condition(whose: Option<OwnTask<'_>>) -> (&'static str, [database::Value; 2]) {
    match whose {
        Some(OwnTask { tenant, task }) => {
            ("tenant = $1 AND task = $2", [tenant.into(), task.into()])
        }
        None => ("$1 = 'all' AND $2 = 'all'", ["all".into(), "all".into()]),
    }
}

/// Databases know signed numbers only.
fn signed(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

fn unsigned(number: i64) -> u64 {
    u64::try_from(number).unwrap_or(0)
}

#[cfg(test)]
mod contract;
