//! `table`: reads rows from CSV, TSV, JSON or JSON lines, transforms them, writes any of these.

mod group;
mod source;
mod steps;
mod value;

use std::path::Path;

use ringwall_tool_sdk::{Failure, files};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use source::Source;
use steps::Step;

ringwall_tool_sdk::tool! { manifest: "tool.json", call: call }

/// The schema refuses unknown fields; serde cannot beside a flattened part.
#[derive(Debug, Deserialize)]
pub struct Input {
    #[serde(flatten)]
    source: Source,
    #[serde(default)]
    steps: Vec<Step>,
    #[serde(default)]
    to: Target,
    #[serde(default = "default_limit")]
    limit: usize,
    #[serde(default = "default_max_bytes")]
    max_bytes: usize,
}

/// How rows come back.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Target {
    /// Objects in `rows`.
    #[default]
    Rows,
    Csv,
    Tsv,
    Jsonl,
    /// A table for people, in `text`.
    Markdown,
}

#[derive(Debug, Serialize)]
pub struct Output {
    columns: Vec<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    rows: Option<Vec<Map<String, Value>>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    text: Option<String>,
    /// Rows returned, and rows there are.
    count: usize,
    total: usize,
    truncated: bool,
}

/// Rows of equal length under named columns.
#[derive(Debug, Clone, Default)]
pub(crate) struct Table {
    pub(crate) columns: Vec<String>,
    pub(crate) rows: Vec<Vec<Value>>,
}

impl Table {
    pub(crate) fn column(&self, name: &str) -> Result<usize, Failure> {
        self.columns.iter().position(|column| column == name).ok_or_else(|| {
            Failure::bad_input(format_args!(
                "there is no column {name:?}; there are: {}",
                self.columns.join(", ")
            ))
        })
    }

    pub(crate) fn columns(&self, names: &[String]) -> Result<Vec<usize>, Failure> {
        names.iter().map(|name| self.column(name)).collect()
    }
}

fn default_limit() -> usize {
    1_000
}

fn default_max_bytes() -> usize {
    512 << 10
}

pub fn call(input: Input) -> Result<Output, Failure> {
    call_in(Path::new(files::WORK), input)
}

/// The same below another directory than the granted one.
pub fn call_in(root: &Path, input: Input) -> Result<Output, Failure> {
    let mut table = input.source.read(root)?;
    for (index, step) in input.steps.into_iter().enumerate() {
        table = step.apply(table, root).map_err(|failure| {
            Failure::new(&failure.code, format_args!("steps[{index}]: {}", failure.message))
        })?;
    }
    let total = table.rows.len();
    table.rows.truncate(input.limit);
    let written = source::write(&table, input.to, input.max_bytes)?;
    Ok(Output {
        columns: table.columns,
        rows: written.rows,
        text: written.text,
        count: written.count,
        total,
        truncated: written.count < total,
    })
}
