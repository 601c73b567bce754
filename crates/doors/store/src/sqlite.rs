//! SQLite: one file, one writer, readers beside it.
//!
//! The write-ahead log is handed to the kernel at every commit, so the death of the process loses
//! nothing; a power cut may lose the last commits. What must survive that, too, is in the audit log.

use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use rusqlite::types::ValueRef;
use rusqlite::{Connection, ToSql, TransactionBehavior};

use crate::StoreError;
use crate::database::{Database, Row, Tx, Value, Work};

/// Connections that wait for the next reader.
const MOST_READERS: usize = 8;
/// Another process that looks into the file holds it no longer than that.
const PATIENCE: Duration = Duration::from_secs(5);

#[derive(Debug)]
pub(crate) struct Sqlite {
    path: PathBuf,
    writer: Mutex<Connection>,
    readers: Mutex<Vec<Connection>>,
}

impl Sqlite {
    pub(crate) fn open(path: &Path) -> Result<Sqlite, StoreError> {
        // Made by us, so that nobody else can ever read it.
        let flags =
            rustix::fs::OFlags::CREATE | rustix::fs::OFlags::RDWR | rustix::fs::OFlags::CLOEXEC;
        let mode = rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR;
        let made = rustix::fs::open(path, flags, mode);
        made.map_err(|error| opening(path, std::io::Error::from(error)))?;
        let writer = connect(path).map_err(|error| opening(path, error))?;
        Ok(Sqlite { path: path.to_owned(), writer: Mutex::new(writer), readers: Mutex::default() })
    }
}

fn opening(path: &Path, source: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> StoreError {
    StoreError::Open { place: path.display().to_string(), source: source.into() }
}

fn connect(path: &Path) -> rusqlite::Result<Connection> {
    let connection = Connection::open(path)?;
    connection.busy_timeout(PATIENCE)?;
    connection.pragma_update(None, "journal_mode", "WAL")?;
    connection.pragma_update(None, "synchronous", "NORMAL")?;
    // Taking the log over into the file waits for the disk; that need not be every few calls.
    connection.pragma_update(None, "wal_autocheckpoint", 8192)?;
    connection.pragma_update(None, "foreign_keys", "ON")?;
    connection.pragma_update(None, "trusted_schema", "OFF")?;
    connection.set_prepared_statement_cache_capacity(64);
    Ok(connection)
}

impl Database for Sqlite {
    fn write(&self, work: &mut Work<'_>) -> Result<(), StoreError> {
        run(&mut lock(&self.writer), TransactionBehavior::Immediate, work)
    }

    fn read(&self, work: &mut Work<'_>) -> Result<(), StoreError> {
        let waiting = lock(&self.readers).pop();
        let mut reader = match waiting {
            Some(reader) => reader,
            None => connect(&self.path).map_err(used)?,
        };
        let done = run(&mut reader, TransactionBehavior::Deferred, work);
        let mut readers = lock(&self.readers);
        if readers.len() < MOST_READERS {
            readers.push(reader);
        }
        done
    }

    fn numbering(&self) -> &'static str {
        "INTEGER PRIMARY KEY AUTOINCREMENT"
    }

    fn place(&self) -> String {
        self.path.display().to_string()
    }
}

fn run(
    connection: &mut Connection,
    behavior: TransactionBehavior,
    work: &mut Work<'_>,
) -> Result<(), StoreError> {
    let transaction = connection.transaction_with_behavior(behavior).map_err(used)?;
    work(&mut SqliteTx(&transaction))?;
    transaction.commit().map_err(used)
}

struct SqliteTx<'a>(&'a Connection);

impl Tx for SqliteTx<'_> {
    fn execute(&mut self, statement: &str, parameters: &[Value]) -> Result<u64, StoreError> {
        let mut prepared = self.0.prepare_cached(&numbered(statement)).map_err(used)?;
        let count =
            prepared.execute(rusqlite::params_from_iter(parameters.iter())).map_err(used)?;
        Ok(u64::try_from(count).unwrap_or(u64::MAX))
    }

    fn query(&mut self, statement: &str, parameters: &[Value]) -> Result<Vec<Row>, StoreError> {
        let mut prepared = self.0.prepare_cached(&numbered(statement)).map_err(used)?;
        let columns = prepared.column_count();
        let mut rows = prepared.query(rusqlite::params_from_iter(parameters)).map_err(used)?;
        let mut all = Vec::new();
        while let Some(row) = rows.next().map_err(used)? {
            let values = (0..columns).map(|column| match row.get_ref(column).map_err(used)? {
                ValueRef::Null => Ok(Value::Null),
                ValueRef::Integer(number) => Ok(Value::Number(number)),
                ValueRef::Text(text) => {
                    let text = std::str::from_utf8(text);
                    Ok(Value::from(text.map_err(|_| StoreError::Damaged("text that is none"))?))
                }
                ValueRef::Real(_) | ValueRef::Blob(_) => {
                    Err(StoreError::Damaged("a column of another type"))
                }
            });
            all.push(values.collect::<Result<Row, StoreError>>()?);
        }
        Ok(all)
    }
}

/// SQLite writes numbered parameters with a question mark. None of our statements has a dollar sign
/// in a text.
fn numbered(statement: &str) -> String {
    statement.replace('$', "?")
}

fn used(error: rusqlite::Error) -> StoreError {
    StoreError::Use(error.into())
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl ToSql for Value {
    fn to_sql(&self) -> rusqlite::Result<rusqlite::types::ToSqlOutput<'_>> {
        Ok(match self {
            Value::Null => rusqlite::types::Null.into(),
            Value::Number(number) => (*number).into(),
            Value::Text(text) => text.as_str().into(),
        })
    }
}
