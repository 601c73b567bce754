//! Groups rows by columns and sums them up.

use std::collections::{HashMap, HashSet};

use ringwall_tool_sdk::Failure;
use serde::Deserialize;
use serde_json::Value;

use crate::source::unique;
use crate::steps::cells;
use crate::{Table, value};

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Group {
    by: Vec<String>,
    #[serde(default)]
    aggregate: Vec<Aggregate>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Aggregate {
    op: Operation,
    column: Option<String>,
    #[serde(rename = "as")]
    name: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Operation {
    Count,
    Sum,
    Mean,
    Min,
    Max,
    First,
    Last,
    /// How many different values.
    Distinct,
    /// All values, as a list.
    List,
}

impl Aggregate {
    /// The name in the result: `as`, or operation and column.
    fn shown(&self) -> String {
        let operation = format!("{:?}", self.op).to_lowercase();
        match (&self.name, &self.column) {
            (Some(name), _) => name.clone(),
            (None, Some(column)) => format!("{operation}_{column}"),
            (None, None) => operation,
        }
    }
}

impl Group {
    /// One row for each group, in the order in which the groups first occur.
    pub(crate) fn apply(&self, table: &Table) -> Result<Table, Failure> {
        let by = table.columns(&self.by)?;
        let mut aggregates = Vec::new();
        for aggregate in &self.aggregate {
            let column = aggregate.column.as_deref().map(|name| table.column(name)).transpose()?;
            if column.is_none() && aggregate.op != Operation::Count {
                return Err(Failure::bad_input("every operation but count needs a column"));
            }
            aggregates.push((aggregate.op, column));
        }
        let mut columns = self.by.clone();
        columns.extend(self.aggregate.iter().map(Aggregate::shown));
        unique(&columns)?;

        let mut places: HashMap<String, usize> = HashMap::new();
        let mut groups: Vec<Vec<&Vec<Value>>> = Vec::new();
        for row in &table.rows {
            let place = *places.entry(value::key(cells(row, &by))).or_insert(groups.len());
            if place == groups.len() {
                groups.push(Vec::new());
            }
            groups[place].push(row);
        }
        let rows = groups.iter().map(|rows| {
            let first = rows.first().map(|row| cells(row, &by).collect()).unwrap_or_default();
            let mut row: Vec<Value> = first;
            for (operation, column) in &aggregates {
                row.push(aggregate(*operation, *column, rows));
            }
            row
        });
        Ok(Table { columns, rows: rows.collect() })
    }
}

/// Empty cells do not count, except where rows are counted.
fn aggregate(operation: Operation, column: Option<usize>, rows: &[&Vec<Value>]) -> Value {
    let Some(column) = column else { return Value::from(rows.len()) };
    let cells = || rows.iter().map(|row| &row[column]).filter(|cell| !value::is_empty(cell));
    let numbers = || cells().filter_map(value::to_number);
    match operation {
        Operation::Count => Value::from(cells().count()),
        Operation::Sum => value::number(numbers().sum()),
        Operation::Mean => match numbers().count() {
            0 => Value::Null,
            #[allow(clippy::cast_precision_loss, reason = "no table has 2^52 rows")]
            count => value::number(numbers().sum::<f64>() / count as f64),
        },
        Operation::Min => cells().min_by(|a, b| value::compare(a, b)).cloned().unwrap_or_default(),
        Operation::Max => cells().max_by(|a, b| value::compare(a, b)).cloned().unwrap_or_default(),
        Operation::First => cells().next().cloned().unwrap_or_default(),
        Operation::Last => cells().next_back().cloned().unwrap_or_default(),
        Operation::Distinct => {
            let keys = cells().map(|cell| value::key(std::iter::once(cell.clone())));
            Value::from(keys.collect::<HashSet<_>>().len())
        }
        Operation::List => Value::Array(cells().cloned().collect()),
    }
}
