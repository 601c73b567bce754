//! `convert`: one document between TOML, YAML and JSON.

mod comments;
mod toml_values;

use std::path::Path;

use ringwall_tool_sdk::{Failure, files};
use serde::{Deserialize, Serialize};
use serde_json::Value;

ringwall_tool_sdk::tool! { manifest: "tool.json", call: call }

/// The largest file that is read.
const MAX_FILE_BYTES: u64 = 8 << 20;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Input {
    text: Option<String>,
    path: Option<String>,
    from: Option<Format>,
    to: Format,
    #[serde(default)]
    nulls: Nulls,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Format {
    Toml,
    Yaml,
    Json,
}

/// What to do with nulls, which TOML does not have.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Nulls {
    #[default]
    Refuse,
    Drop,
}

#[derive(Debug, Serialize)]
pub struct Output {
    text: String,
    from: Format,
    /// What the other format cannot say and the text therefore lacks.
    lost: Vec<String>,
}

pub fn call(input: Input) -> Result<Output, Failure> {
    call_in(Path::new(files::WORK), input)
}

/// The same below another directory than the granted one.
pub fn call_in(root: &Path, input: Input) -> Result<Output, Failure> {
    let named = input.path.as_deref().and_then(format_of);
    let text = match (input.text, &input.path) {
        (Some(text), None) => text,
        (None, Some(path)) => files::read_text(root, path, MAX_FILE_BYTES)?,
        _ => return Err(Failure::bad_input("give either text or path")),
    };
    let from = input.from.or(named).ok_or_else(|| {
        Failure::bad_input("say in `from` which format it is: toml, yaml or json")
    })?;
    let mut lost = Vec::new();
    if from != Format::Json && comments::has_any(&text) {
        lost.push("comments".to_owned());
    }
    let value = parse(&text, from, &mut lost)?;
    let text = render(value, input.to, input.nulls, &mut lost)?;
    Ok(Output { text, from, lost })
}

fn format_of(path: &str) -> Option<Format> {
    match Path::new(path).extension()?.to_str()? {
        "toml" => Some(Format::Toml),
        "yaml" | "yml" => Some(Format::Yaml),
        "json" => Some(Format::Json),
        _ => None,
    }
}

fn parse(text: &str, from: Format, lost: &mut Vec<String>) -> Result<Value, Failure> {
    let wrong = |name: &str, error: &dyn std::fmt::Display| {
        Failure::bad_input(format_args!("this is no {name}: {error}"))
    };
    match from {
        Format::Json => serde_json::from_str(text).map_err(|error| wrong("JSON", &error)),
        Format::Toml => {
            let table: toml::Table = text.parse().map_err(|error| wrong("TOML", &error))?;
            toml_values::to_json(toml::Value::Table(table), lost)
        }
        Format::Yaml => {
            let mut documents: Vec<Value> =
                serde_saphyr::from_multiple(text).map_err(|error| wrong("YAML", &error))?;
            Ok(match documents.len() {
                0 => Value::Null,
                1 => documents.remove(0),
                count => {
                    lost.push(format!("the borders of {count} documents: they became one list"));
                    Value::Array(documents)
                }
            })
        }
    }
}

fn render(
    value: Value,
    to: Format,
    nulls: Nulls,
    lost: &mut Vec<String>,
) -> Result<String, Failure> {
    let failed = |error: &dyn std::fmt::Display| Failure::new("internal", error);
    match to {
        Format::Json => {
            let text = serde_json::to_string_pretty(&value).map_err(|error| failed(&error))?;
            Ok(text + "\n")
        }
        Format::Yaml => serde_saphyr::to_string(&value).map_err(|error| failed(&error)),
        Format::Toml => {
            let table = toml_values::from_json(value, nulls, lost)?;
            toml::to_string_pretty(&table).map_err(|error| failed(&error))
        }
    }
}
