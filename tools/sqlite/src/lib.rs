//! `sqlite`: SQL over a database file, or over tables given with the call.

mod open;
mod query;
mod rules;
mod tables;

use std::collections::BTreeMap;
use std::path::Path;

use ringwall_tool_sdk::{Failure, files};
use serde::{Deserialize, Serialize};
use serde_json::Value;

pub use query::PlanStep;
pub use tables::Table;

ringwall_tool_sdk::tool! { manifest: "tool.json", call: call }

#[derive(Debug, Default, Deserialize)]
pub struct Input {
    pub sql: String,
    /// A file below /work; without it everything happens in memory.
    pub database: Option<String>,
    /// Changes of the file are refused without this.
    #[serde(default)]
    pub write: bool,
    /// Tables made in memory before the statements run.
    #[serde(default)]
    pub tables: BTreeMap<String, Table>,
    #[serde(default)]
    pub params: Params,
    /// Show how the statement would run, and do not run it.
    #[serde(default)]
    pub explain: bool,
    pub max_rows: Option<usize>,
}

/// By position, or by name (`:name`, `@name`, `$name`; written without its sign).
#[derive(Debug, Deserialize)]
#[serde(untagged)]
pub enum Params {
    List(Vec<Value>),
    Named(BTreeMap<String, Value>),
}

impl Default for Params {
    fn default() -> Self {
        Self::List(Vec::new())
    }
}

/// What the last statement gave.
#[derive(Debug, Default, PartialEq, Serialize)]
pub struct Output {
    pub columns: Vec<String>,
    pub rows: Vec<Vec<Value>>,
    /// Rows that all statements together inserted, updated or deleted.
    pub changes: u64,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub plan: Vec<PlanStep>,
    pub truncated: bool,
}

pub fn call(input: Input) -> Result<Output, Failure> {
    run(Path::new(files::WORK), &input)
}

/// Runs the statements; the database file is below `root`.
pub fn run(root: &Path, input: &Input) -> Result<Output, Failure> {
    let mut connection = open::open(root, input)?;
    tables::load(&connection, &input.tables)?;
    rules::enforce(&mut connection)?;
    query::run(&connection, input)
}

pub(crate) fn failed(error: &rusqlite::Error) -> Failure {
    use rusqlite::ErrorCode::{AuthorizationForStatementDenied, ReadOnly};
    match error {
        rusqlite::Error::SqlInputError { msg, sql, offset, .. } => {
            let before = usize::try_from(*offset).ok().and_then(|offset| sql.get(..offset));
            let place = before.map_or_else(String::new, |before| {
                let line = before.matches('\n').count() + 1;
                let column = before.rsplit('\n').next().unwrap_or("").chars().count() + 1;
                format!(" (line {line}, column {column} of the statement)")
            });
            Failure::bad_input(format_args!("SQL: {msg}{place}"))
        }
        rusqlite::Error::SqliteFailure(error, _) if error.code == ReadOnly => Failure::new(
            "denied",
            "the database is opened read-only; say `write: true` and grant its directory rw",
        ),
        rusqlite::Error::SqliteFailure(error, message)
            if error.code == AuthorizationForStatementDenied =>
        {
            let message = message.as_deref().unwrap_or("not authorized");
            Failure::new(
                "denied",
                format_args!(
                    "SQL: {message}; this tool has no ATTACH, no extensions and few pragmas"
                ),
            )
        }
        // A plain error without a code of its own: the SQL does not fit the tables.
        rusqlite::Error::SqliteFailure(
            rusqlite::ffi::Error { extended_code: 1, .. },
            Some(message),
        ) => Failure::bad_input(format_args!("SQL: {message}")),
        other => Failure::new("sql-error", format_args!("SQL: {other}")),
    }
}
