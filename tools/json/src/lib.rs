//! `json`: queries and transforms JSON with the jq language.

mod program;
mod write;

use std::collections::BTreeMap;
use std::path::Path;

use jaq_json::{Val, read};
use ringwall_tool_sdk::budget::Budget;
use ringwall_tool_sdk::{Failure, files};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

ringwall_tool_sdk::tool! { manifest: "tool.json", call: call }

/// The largest file that is read.
const MAX_FILE_BYTES: u64 = 64 << 20;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Input {
    filter: String,
    /// Kept as text, so that numbers stay as they were written.
    input: Option<Box<RawValue>>,
    text: Option<String>,
    path: Option<String>,
    #[serde(default)]
    vars: BTreeMap<String, Box<RawValue>>,
    #[serde(default)]
    slurp: bool,
    #[serde(default)]
    raw: bool,
    #[serde(default = "default_limit")]
    limit: usize,
    #[serde(default = "default_max_bytes")]
    max_bytes: usize,
}

#[derive(Debug, Serialize)]
pub struct Output {
    #[serde(skip_serializing_if = "Option::is_none")]
    results: Option<Vec<Box<RawValue>>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    text: Option<String>,
    count: usize,
    truncated: bool,
}

fn default_limit() -> usize {
    1_000
}

fn default_max_bytes() -> usize {
    512 << 10
}

pub fn call(input: Input) -> Result<Output, Failure> {
    call_in(Path::new(files::WORK), &input)
}

/// The same below another directory than the granted one.
pub fn call_in(root: &Path, input: &Input) -> Result<Output, Failure> {
    let mut vars = Vec::new();
    for (name, value) in &input.vars {
        let value = parse_one(value.get().as_bytes(), &format!("vars.{name}"))?;
        vars.push((format!("${name}"), value));
    }
    let inputs = inputs(root, input)?;
    let mut budget = Budget::new(input.limit, input.max_bytes);
    let mut results = Vec::new();
    program::run(&input.filter, vars, inputs, |value| {
        let text = match (input.raw, &value) {
            (true, Val::TStr(bytes)) => String::from_utf8_lossy(bytes).into_owned(),
            _ => write::json(&value)?,
        };
        let fits = budget.take(text.len());
        if fits {
            results.push(text);
        }
        Ok(fits)
    })?;
    let mut output =
        Output { results: None, text: None, count: results.len(), truncated: budget.exhausted() };
    if input.raw {
        output.text = Some(results.iter().flat_map(|line| [line.as_str(), "\n"]).collect());
    } else {
        let results: Result<_, _> = results.into_iter().map(RawValue::from_string).collect();
        output.results = Some(results.map_err(|error| Failure::new("internal", error))?);
    }
    Ok(output)
}

fn inputs(root: &Path, input: &Input) -> Result<Vec<Val>, Failure> {
    let values = match (&input.input, &input.text, &input.path) {
        (Some(value), None, None) => vec![parse_one(value.get().as_bytes(), "input")?],
        (None, Some(text), None) => parse_many(text.as_bytes(), "text")?,
        (None, None, Some(path)) => {
            let bytes = files::read(root, path, MAX_FILE_BYTES)?;
            parse_many(&bytes, &format!("{path:?}"))?
        }
        (None, None, None) => vec![Val::Null],
        _ => return Err(Failure::bad_input("give only one of input, text and path")),
    };
    Ok(if input.slurp { vec![values.into_iter().collect()] } else { values })
}

fn parse_one(bytes: &[u8], what: &str) -> Result<Val, Failure> {
    read::parse_single(bytes).map_err(|error| not_json(what, &error))
}

fn parse_many(bytes: &[u8], what: &str) -> Result<Vec<Val>, Failure> {
    read::parse_many(bytes).collect::<Result<_, _>>().map_err(|error| not_json(what, &error))
}

fn not_json(what: &str, error: &read::Error) -> Failure {
    Failure::bad_input(format_args!("{what} is no JSON: {error}"))
}
