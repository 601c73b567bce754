//! Tables from and to texts.

use std::collections::HashSet;
use std::path::Path;

use ringwall_tool_sdk::budget::Budget;
use ringwall_tool_sdk::{Failure, files};
use serde::Deserialize;
use serde_json::{Map, Value};

use crate::{Table, Target, value};

/// The largest file that is read.
const MAX_FILE_BYTES: u64 = 64 << 20;

/// Where rows come from.
#[derive(Debug, Deserialize)]
pub(crate) struct Source {
    rows: Option<Vec<Value>>,
    text: Option<String>,
    path: Option<String>,
    format: Option<Format>,
    delimiter: Option<char>,
    #[serde(default = "yes")]
    header: bool,
    #[serde(default = "yes")]
    numbers: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Format {
    Csv,
    Tsv,
    Json,
    Jsonl,
}

fn yes() -> bool {
    true
}

impl Source {
    pub(crate) fn read(self, root: &Path) -> Result<Table, Failure> {
        let named = self.path.as_deref().and_then(format_of);
        let text = match (&self.rows, &self.text, &self.path) {
            (Some(_), None, None) => return from_objects(self.rows.unwrap_or_default()),
            (None, Some(text), None) => text.clone(),
            (None, None, Some(path)) => files::read_text(root, path, MAX_FILE_BYTES)?,
            _ => return Err(Failure::bad_input("give one of rows, text and path")),
        };
        let format = self.format.or(named).ok_or_else(|| {
            Failure::bad_input("say in `format` what it is: csv, tsv, json or jsonl")
        })?;
        match format {
            Format::Csv => self.read_csv(&text, ','),
            Format::Tsv => self.read_csv(&text, '\t'),
            Format::Json => {
                let rows = serde_json::from_str(&text).map_err(|error| {
                    Failure::bad_input(format_args!("this is no JSON list of objects: {error}"))
                })?;
                from_objects(rows)
            }
            Format::Jsonl => {
                let lines = text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty());
                let rows = lines.map(|(index, line)| {
                    serde_json::from_str(line).map_err(|error| {
                        Failure::bad_input(format_args!("line {}: no JSON: {error}", index + 1))
                    })
                });
                from_objects(rows.collect::<Result<_, _>>()?)
            }
        }
    }

    fn read_csv(&self, text: &str, delimiter: char) -> Result<Table, Failure> {
        let delimiter = u8::try_from(self.delimiter.unwrap_or(delimiter))
            .map_err(|_| Failure::bad_input("the delimiter must be one ASCII character"))?;
        let mut reader = csv::ReaderBuilder::new()
            .delimiter(delimiter)
            .has_headers(false)
            // A byte order mark is no part of the first column's name.
            .from_reader(text.strip_prefix('\u{feff}').unwrap_or(text).as_bytes());
        let mut table = Table::default();
        for (index, record) in reader.records().enumerate() {
            let record = record
                .map_err(|error| Failure::bad_input(format_args!("this is no table: {error}")))?;
            if index == 0 {
                table.columns = if self.header {
                    record.iter().map(str::to_owned).collect()
                } else {
                    (1..=record.len()).map(|number| format!("c{number}")).collect()
                };
                if self.header {
                    continue;
                }
            }
            let cell = |text| if self.numbers { value::from_text(text) } else { Value::from(text) };
            table.rows.push(record.iter().map(cell).collect());
        }
        unique(&table.columns)?;
        Ok(table)
    }
}

fn format_of(path: &str) -> Option<Format> {
    match Path::new(path).extension()?.to_str()? {
        "csv" => Some(Format::Csv),
        "tsv" | "tab" => Some(Format::Tsv),
        "json" => Some(Format::Json),
        "jsonl" | "ndjson" => Some(Format::Jsonl),
        _ => None,
    }
}

/// Refuses two columns of the same name: nobody could say which one is meant.
pub(crate) fn unique(columns: &[String]) -> Result<(), Failure> {
    let mut seen = HashSet::new();
    match columns.iter().find(|column| !seen.insert(column.as_str())) {
        None => Ok(()),
        Some(twice) => Err(Failure::bad_input(format_args!(
            "the column {twice:?} occurs twice; rename one, or set header to false"
        ))),
    }
}

/// Columns are all keys in the order in which they first occur; what a row lacks is null.
fn from_objects(objects: Vec<Value>) -> Result<Table, Failure> {
    let mut rows = Vec::with_capacity(objects.len());
    let mut columns: Map<String, Value> = Map::new();
    for (index, object) in objects.into_iter().enumerate() {
        let Value::Object(object) = object else {
            return Err(Failure::bad_input(format_args!("row {index} is no object")));
        };
        for key in object.keys() {
            if !columns.contains_key(key) {
                columns.insert(key.clone(), Value::Null);
            }
        }
        rows.push(object);
    }
    let columns: Vec<String> = columns.into_iter().map(|(name, _)| name).collect();
    let cells = |mut row: Map<String, Value>| {
        columns.iter().map(|column| row.remove(column).unwrap_or_default()).collect()
    };
    let rows = rows.into_iter().map(cells).collect();
    Ok(Table { columns, rows })
}

/// What fits of a table.
#[derive(Default)]
pub(crate) struct Written {
    pub(crate) rows: Option<Vec<Map<String, Value>>>,
    pub(crate) text: Option<String>,
    pub(crate) count: usize,
}

pub(crate) fn write(table: &Table, to: Target, max_bytes: usize) -> Result<Written, Failure> {
    let mut budget = Budget::new(usize::MAX, max_bytes);
    let object = |row: &Vec<Value>| -> Map<String, Value> {
        table.columns.iter().cloned().zip(row.iter().cloned()).collect()
    };
    let mut written = Written::default();
    if to == Target::Rows {
        let sizes = |row: &Vec<Value>| {
            let cells = table.columns.iter().zip(row);
            cells.map(|(name, cell)| name.len() + cell.to_string().len() + 4).sum()
        };
        let rows: Vec<_> =
            table.rows.iter().take_while(|row| budget.take(sizes(row))).map(object).collect();
        written.count = rows.len();
        written.rows = Some(rows);
        return Ok(written);
    }
    let mut text = match to {
        Target::Csv | Target::Tsv => line(&table.columns, to)?,
        Target::Markdown => {
            line(&table.columns, to)? + &format!("|{}\n", "---|".repeat(table.columns.len()))
        }
        Target::Rows | Target::Jsonl => String::new(),
    };
    for row in &table.rows {
        let next = if to == Target::Jsonl {
            let text = serde_json::to_string(&object(row));
            text.map_err(|error| Failure::new("internal", error))? + "\n"
        } else {
            line(&row.iter().map(value::to_text).collect::<Vec<_>>(), to)?
        };
        if !budget.take(next.len()) {
            break;
        }
        text += &next;
        written.count += 1;
    }
    written.text = Some(text);
    Ok(written)
}

fn line(cells: &[String], to: Target) -> Result<String, Failure> {
    if to == Target::Markdown {
        let cells = cells.iter().map(|cell| cell.replace('|', "\\|").replace(['\n', '\r'], " "));
        return Ok(format!("| {} |\n", cells.collect::<Vec<_>>().join(" | ")));
    }
    let delimiter = if to == Target::Tsv { b'\t' } else { b',' };
    let mut writer = csv::WriterBuilder::new().delimiter(delimiter).from_writer(Vec::new());
    let failed = |error: &dyn std::fmt::Display| Failure::new("internal", error);
    writer.write_record(cells).map_err(|error| failed(&error))?;
    let bytes = writer.into_inner().map_err(|error| failed(&error))?;
    String::from_utf8(bytes).map_err(|error| failed(&error))
}
