//! How cells compare and read as text.

use std::cmp::Ordering;

use serde_json::{Number, Value};

/// A cell of CSV. Only what is written exactly as a number would be becomes one: `007`, `1e3` and
/// `+5` stay texts, so that codes and telephone numbers survive.
pub(crate) fn from_text(text: &str) -> Value {
    let number = text
        .parse::<i64>()
        .map(Number::from)
        .ok()
        .or_else(|| text.parse::<f64>().ok().and_then(Number::from_f64))
        .filter(|number| number.to_string() == text);
    match number {
        Some(number) => Value::Number(number),
        None => Value::String(text.to_owned()),
    }
}

pub(crate) fn to_text(value: &Value) -> String {
    match value {
        Value::Null => String::new(),
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}

pub(crate) fn is_empty(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::String(text) => text.is_empty(),
        _ => false,
    }
}

/// A number, also when it is written as a text.
pub(crate) fn to_number(value: &Value) -> Option<f64> {
    match value {
        Value::Number(number) => number.as_f64(),
        Value::String(text) => text.trim().parse().ok().filter(|number: &f64| number.is_finite()),
        _ => None,
    }
}

/// Empty cells first, then truth values, numbers, texts and the rest: a total order.
pub(crate) fn compare(a: &Value, b: &Value) -> Ordering {
    let rank = |value: &Value| match value {
        _ if is_empty(value) => 0,
        Value::Null => 0,
        Value::Bool(_) => 1,
        Value::Number(_) => 2,
        Value::String(_) => 3,
        Value::Array(_) | Value::Object(_) => 4,
    };
    match (a, b) {
        (Value::Bool(a), Value::Bool(b)) => a.cmp(b),
        (Value::String(a), Value::String(b)) => a.cmp(b),
        (Value::Number(a), Value::Number(b)) => match (a.as_i64(), b.as_i64()) {
            (Some(a), Some(b)) => a.cmp(&b),
            _ => a.as_f64().unwrap_or(0.0).total_cmp(&b.as_f64().unwrap_or(0.0)),
        },
        _ if rank(a) == rank(b) => a.to_string().cmp(&b.to_string()),
        _ => rank(a).cmp(&rank(b)),
    }
}

/// What makes cells equal when rows are grouped or joined: `1` and `1.0` are.
pub(crate) fn key(cells: impl Iterator<Item = Value>) -> String {
    cells
        .map(|cell| match &cell {
            Value::Number(number) if number.as_i64().is_none() => {
                let float = number.as_f64().unwrap_or(0.0);
                let whole = float.fract() == 0.0 && float.abs() < 1e15;
                if whole { format!("{float:.0}") } else { cell.to_string() }
            }
            _ => cell.to_string(),
        })
        .collect::<Vec<_>>()
        .join("\u{0}")
}

/// A number that is shown as an integer where it is one.
pub(crate) fn number(value: f64) -> Value {
    if value.fract() == 0.0 && value.abs() < 9e15 {
        #[allow(clippy::cast_possible_truncation, reason = "it is whole and in range")]
        return Value::from(value as i64);
    }
    Number::from_f64(value).map_or(Value::Null, Value::Number)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn only_texts_that_are_exactly_numbers_become_numbers() {
        assert_eq!(from_text("42"), json!(42));
        assert_eq!(from_text("-2.5"), json!(-2.5));
        for text in ["007", "1e3", "+5", " 1", "1.50", "NaN", "inf", "", "12345678901234567890"] {
            assert_eq!(from_text(text), json!(text));
        }
    }

    #[test]
    fn whole_floats_have_the_key_of_integers() {
        assert_eq!(key([json!(1)].into_iter()), key([json!(1.0)].into_iter()));
        assert_ne!(key([json!(1)].into_iter()), key([json!("1")].into_iter()));
    }
}
