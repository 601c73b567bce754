//! Runs the statements and gathers what the last one gives.

use fallible_iterator::FallibleIterator as _;
use ringwall_tool_sdk::Failure;
use ringwall_tool_sdk::budget::Budget;
use rusqlite::types::ValueRef;
use rusqlite::{Batch, Connection, Statement};
use serde::Serialize;
use serde_json::{Value, json};

use crate::tables::sql_value;
use crate::{Input, Output, Params, failed};

const ROWS: usize = 1_000;
const MOST_ROWS: usize = 100_000;
const MOST_BYTES: usize = 4 << 20;

/// One step of a query plan, as SQLite numbers and nests them.
#[derive(Debug, PartialEq, Eq, Serialize)]
pub struct PlanStep {
    pub id: i64,
    pub parent: i64,
    pub detail: String,
}

pub(crate) fn run(connection: &Connection, input: &Input) -> Result<Output, Failure> {
    if input.explain {
        return Ok(Output { plan: plan(connection, input)?, ..Output::default() });
    }
    let failed = |error: rusqlite::Error| failed(&error);
    let before = connection.total_changes();
    let mut output = Output::default();
    let mut statements = Batch::new(connection, &input.sql);
    let mut pending = statements.next().map_err(failed)?;
    if pending.is_none() {
        return Err(Failure::bad_input("`sql` holds no statement"));
    }
    while let Some(mut statement) = pending {
        // The next one is prepared after this one ran: it may need the table that this one makes.
        bind(&mut statement, &input.params)?;
        let (columns, rows, truncated) = fetch(&mut statement, input.max_rows)?;
        (output.columns, output.rows, output.truncated) = (columns, rows, truncated);
        drop(statement);
        pending = statements.next().map_err(failed)?;
    }
    output.changes = connection.total_changes() - before;
    Ok(output)
}

fn bind(statement: &mut Statement<'_>, params: &Params) -> Result<(), Failure> {
    for index in 1..=statement.parameter_count() {
        let name = statement.parameter_name(index).map(str::to_owned);
        let value = match (params, &name) {
            (Params::List(list), _) => list.get(index - 1),
            (Params::Named(named), Some(name)) => named.get(&name[1..]).or_else(|| named.get(name)),
            (Params::Named(_), None) => None,
        };
        let Some(value) = value else {
            let which = name.unwrap_or_else(|| format!("number {index}"));
            return Err(Failure::bad_input(format_args!("`params` gives no value for {which}")));
        };
        statement
            .raw_bind_parameter(index, sql_value(Some(value)))
            .map_err(|error| failed(&error))?;
    }
    Ok(())
}

type Fetched = (Vec<String>, Vec<Vec<Value>>, bool);

/// The rows that fit. The statement always runs to its end if it changes something.
fn fetch(statement: &mut Statement<'_>, most: Option<usize>) -> Result<Fetched, Failure> {
    let columns: Vec<String> = statement.column_names().map(str::to_owned).collect();
    let mut budget = Budget::new(most.unwrap_or(ROWS).min(MOST_ROWS), MOST_BYTES);
    let only_reads = statement.readonly();
    let mut found = Vec::new();
    let mut rows = statement.raw_query();
    while let Some(row) = rows.next().map_err(|error| failed(&error))? {
        let mut values = Vec::with_capacity(columns.len());
        let mut bytes = 0;
        for at in 0..columns.len() {
            let value = row.get_ref(at).map_err(|error| failed(&error))?;
            bytes += size(value);
            values.push(json_value(value));
        }
        if budget.take(bytes) {
            found.push(values);
        } else if only_reads {
            break;
        }
    }
    Ok((columns, found, budget.exhausted()))
}

fn size(value: ValueRef<'_>) -> usize {
    match value {
        ValueRef::Text(bytes) => bytes.len() + 3,
        ValueRef::Blob(bytes) => bytes.len() * 2 + 12,
        ValueRef::Null | ValueRef::Integer(_) | ValueRef::Real(_) => 12,
    }
}

/// Blobs are shown in hexadecimal; infinities, which JSON lacks, as texts.
fn json_value(value: ValueRef<'_>) -> Value {
    match value {
        ValueRef::Null => Value::Null,
        ValueRef::Integer(integer) => integer.into(),
        ValueRef::Real(real) if real.is_finite() => real.into(),
        ValueRef::Real(real) => real.to_string().into(),
        ValueRef::Text(text) => String::from_utf8_lossy(text).into(),
        ValueRef::Blob(bytes) => {
            json!({ "hex": bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>() })
        }
    }
}

/// How SQLite would run the one statement that `sql` is.
fn plan(connection: &Connection, input: &Input) -> Result<Vec<PlanStep>, Failure> {
    let mut statement = match connection.prepare(&format!("EXPLAIN QUERY PLAN {}", input.sql)) {
        Err(rusqlite::Error::MultipleStatement) => {
            return Err(Failure::bad_input("`explain` takes one statement"));
        }
        prepared => prepared.map_err(|error| failed(&error))?,
    };
    bind(&mut statement, &input.params)?;
    let step = |row: &rusqlite::Row<'_>| {
        Ok(PlanStep { id: row.get(0)?, parent: row.get(1)?, detail: row.get(3)? })
    };
    statement.raw_query().mapped(step).collect::<Result<_, _>>().map_err(|error| failed(&error))
}
