//! Makes tables in memory of CSV text or JSON rows.

use std::collections::BTreeMap;

use ringwall_tool_sdk::Failure;
use rusqlite::{Connection, params_from_iter};
use serde::Deserialize;
use serde_json::Value;

use crate::failed;

/// SQLite's own limit is 2000; nobody writes more by hand.
const MOST_COLUMNS: usize = 1_000;

#[derive(Debug, Deserialize)]
#[serde(rename_all = "lowercase", deny_unknown_fields)]
pub enum Table {
    /// With a header line. Columns that hold only numbers become numbers; empty fields are NULL.
    Csv(String),
    /// Objects; a column for each key, in the order in which keys appear.
    Rows(Vec<serde_json::Map<String, Value>>),
}

struct Content {
    columns: Vec<String>,
    rows: Vec<Vec<rusqlite::types::Value>>,
}

pub(crate) fn load(
    connection: &Connection,
    tables: &BTreeMap<String, Table>,
) -> Result<(), Failure> {
    for (name, table) in tables {
        let content = match table {
            Table::Csv(text) => of_csv(name, text)?,
            Table::Rows(rows) => of_rows(rows),
        };
        if content.columns.is_empty() || content.columns.len() > MOST_COLUMNS {
            return Err(Failure::bad_input(format_args!(
                "table {name:?} has {} columns; 1 to {MOST_COLUMNS} are possible",
                content.columns.len()
            )));
        }
        create(connection, name, &content).map_err(|error| failed(&error))?;
    }
    Ok(())
}

fn create(connection: &Connection, name: &str, content: &Content) -> rusqlite::Result<()> {
    let columns: Vec<String> = content.columns.iter().map(|column| quoted(column)).collect();
    connection.execute(&format!("CREATE TABLE {} ({})", quoted(name), columns.join(", ")), [])?;
    let places = vec!["?"; columns.len()].join(", ");
    let sql = format!("INSERT INTO {} VALUES ({places})", quoted(name));
    connection.execute_batch("BEGIN")?;
    let mut insert = connection.prepare(&sql)?;
    for row in &content.rows {
        insert.execute(params_from_iter(row))?;
    }
    connection.execute_batch("COMMIT")
}

fn quoted(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}

fn of_csv(name: &str, text: &str) -> Result<Content, Failure> {
    let refused = |error: csv::Error| Failure::bad_input(format_args!("table {name:?}: {error}"));
    let mut reader = csv::Reader::from_reader(text.as_bytes());
    let columns: Vec<String> =
        reader.headers().map_err(refused)?.iter().map(str::to_owned).collect();
    let records = reader.records().collect::<Result<Vec<_>, _>>().map_err(refused)?;
    let is_number: Vec<bool> = (0..columns.len())
        .map(|at| {
            records.iter().all(|record| record[at].is_empty() || number(&record[at]).is_some())
        })
        .collect();
    let value = |at: usize, field: &str| match (field.is_empty(), is_number[at]) {
        (true, _) => rusqlite::types::Value::Null,
        (false, true) => number(field).unwrap_or(rusqlite::types::Value::Null),
        (false, false) => field.to_owned().into(),
    };
    let rows = records
        .iter()
        .map(|record| record.iter().enumerate().map(|(at, field)| value(at, field)).collect())
        .collect();
    Ok(Content { columns, rows })
}

/// A number, unless writing it differently would change it: `007` and `1e5` are texts.
fn number(field: &str) -> Option<rusqlite::types::Value> {
    let digits = field.strip_prefix('-').unwrap_or(field);
    let plain = digits.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.');
    if !plain || (digits.len() > 1 && digits.starts_with('0') && !digits.starts_with("0.")) {
        return None;
    }
    let integer = field.parse::<i64>().map(rusqlite::types::Value::from);
    integer.or_else(|_| field.parse::<f64>().map(rusqlite::types::Value::from)).ok()
}

fn of_rows(rows: &[serde_json::Map<String, Value>]) -> Content {
    let mut columns: Vec<String> = Vec::new();
    for key in rows.iter().flat_map(|row| row.keys()) {
        if !columns.contains(key) {
            columns.push(key.clone());
        }
    }
    let rows = rows
        .iter()
        .map(|row| columns.iter().map(|column| sql_value(row.get(column))).collect())
        .collect();
    Content { columns, rows }
}

/// Lists and objects are stored as JSON text, which SQLite's JSON functions understand.
pub(crate) fn sql_value(value: Option<&Value>) -> rusqlite::types::Value {
    match value {
        None | Some(Value::Null) => rusqlite::types::Value::Null,
        Some(Value::Bool(truth)) => i64::from(*truth).into(),
        Some(Value::Number(number)) => match number.as_i64() {
            Some(integer) => integer.into(),
            None => number.as_f64().map_or(rusqlite::types::Value::Null, Into::into),
        },
        Some(Value::String(text)) => text.clone().into(),
        Some(nested) => nested.to_string().into(),
    }
}
