//! Small readings of JSON that somebody else wrote.

use serde_json::Value;

pub(crate) fn text<'a>(value: &'a Value, name: &str) -> &'a str {
    value.get(name).and_then(Value::as_str).unwrap_or_default()
}

pub(crate) fn number(value: &Value, name: &str) -> u64 {
    value.get(name).and_then(Value::as_u64).unwrap_or_default()
}

pub(crate) fn list<'a>(value: &'a Value, name: &str) -> &'a [Value] {
    value.get(name).and_then(Value::as_array).map_or(&[], Vec::as_slice)
}

/// What an error in any of the shapes says.
pub(crate) fn error_message(value: &Value) -> String {
    let error = value.get("error").filter(|error| !error.is_null()).unwrap_or(value);
    match error {
        Value::String(text) => text.clone(),
        error => text(error, "message").to_owned(),
    }
}
