//! Between TOML's values and JSON's: what one of them lacks is named with its path, or refused.

use ringwall_tool_sdk::Failure;
use serde_json::{Map, Number, Value};

use crate::Nulls;

pub(crate) fn to_json(value: toml::Value, lost: &mut Vec<String>) -> Result<Value, Failure> {
    convert_to_json(value, &mut String::new(), lost)
}

fn convert_to_json(
    value: toml::Value,
    path: &mut String,
    lost: &mut Vec<String>,
) -> Result<Value, Failure> {
    Ok(match value {
        toml::Value::String(text) => Value::String(text),
        toml::Value::Integer(number) => number.into(),
        toml::Value::Boolean(truth) => truth.into(),
        toml::Value::Float(number) => {
            Number::from_f64(number).map(Value::Number).ok_or_else(|| {
                Failure::conflict(format_args!("{path}: {number} is no number in JSON or YAML"))
            })?
        }
        toml::Value::Datetime(time) => {
            lost.push(format!("the type of the time at {path}: it became a text"));
            Value::String(time.to_string())
        }
        toml::Value::Array(items) => {
            let items = items.into_iter().enumerate();
            let items = items.map(|(index, item)| {
                within(path, &index.to_string(), |path| convert_to_json(item, path, lost))
            });
            Value::Array(items.collect::<Result<_, _>>()?)
        }
        toml::Value::Table(table) => {
            let mut fields = Map::new();
            for (key, field) in table {
                let field = within(path, &key, |path| convert_to_json(field, path, lost))?;
                fields.insert(key, field);
            }
            Value::Object(fields)
        }
    })
}

pub(crate) fn from_json(
    value: Value,
    nulls: Nulls,
    lost: &mut Vec<String>,
) -> Result<toml::Table, Failure> {
    match convert_from_json(value, nulls, &mut String::new(), lost)? {
        Some(toml::Value::Table(table)) => Ok(table),
        _ => Err(Failure::conflict("a TOML document is a table; this is not an object")),
    }
}

fn convert_from_json(
    value: Value,
    nulls: Nulls,
    path: &mut String,
    lost: &mut Vec<String>,
) -> Result<Option<toml::Value>, Failure> {
    Ok(Some(match value {
        Value::Null if nulls == Nulls::Drop => {
            lost.push(format!("the null at {path}"));
            return Ok(None);
        }
        Value::Null => {
            return Err(Failure::conflict(format_args!(
                "{path}: TOML has no null; set nulls to \"drop\" to leave such values out"
            )));
        }
        Value::Bool(truth) => truth.into(),
        Value::String(text) => text.into(),
        Value::Number(number) => match (number.as_i64(), number.as_f64()) {
            (Some(integer), _) => integer.into(),
            (None, Some(float)) if !number.is_u64() => float.into(),
            _ => {
                return Err(Failure::conflict(format_args!(
                    "{path}: {number} does not fit TOML's 64-bit integers"
                )));
            }
        },
        Value::Array(items) => {
            let mut list = Vec::new();
            for (index, item) in items.into_iter().enumerate() {
                let item = within(path, &index.to_string(), |path| {
                    convert_from_json(item, nulls, path, lost)
                })?;
                list.extend(item);
            }
            toml::Value::Array(list)
        }
        Value::Object(fields) => {
            let mut table = toml::Table::new();
            for (key, field) in fields {
                let field = within(path, &key, |path| convert_from_json(field, nulls, path, lost))?;
                if let Some(field) = field {
                    table.insert(key, field);
                }
            }
            toml::Value::Table(table)
        }
    }))
}

/// Runs `inner` one step further down the JSON Pointer.
fn within<T>(path: &mut String, step: &str, inner: impl FnOnce(&mut String) -> T) -> T {
    let length = path.len();
    path.push('/');
    path.push_str(&step.replace('~', "~0").replace('/', "~1"));
    let result = inner(path);
    path.truncate(length);
    result
}
