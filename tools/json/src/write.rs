//! Writes values of the jq language as JSON; that language knows more than JSON does.

use jaq_json::{Num, Val};
use ringwall_tool_sdk::Failure;

/// Compact JSON. NaN becomes null and infinity the largest number, as jq does it.
pub(crate) fn json(value: &Val) -> Result<String, Failure> {
    let mut text = String::new();
    write(value, &mut text)?;
    Ok(text)
}

fn write(value: &Val, out: &mut String) -> Result<(), Failure> {
    match value {
        Val::Null => out.push_str("null"),
        Val::Bool(true) => out.push_str("true"),
        Val::Bool(false) => out.push_str("false"),
        Val::Num(Num::Float(number)) if number.is_nan() => out.push_str("null"),
        Val::Num(Num::Float(number)) => {
            let number = number.clamp(f64::MIN, f64::MAX);
            out.push_str(&Num::Float(number).to_string());
        }
        Val::Num(number) => out.push_str(&number.to_string()),
        Val::TStr(bytes) | Val::BStr(bytes) => string(&String::from_utf8_lossy(bytes), out)?,
        Val::Arr(items) => {
            out.push('[');
            for (index, item) in items.iter().enumerate() {
                if index > 0 {
                    out.push(',');
                }
                write(item, out)?;
            }
            out.push(']');
        }
        Val::Obj(fields) => {
            out.push('{');
            for (index, (key, field)) in fields.iter().enumerate() {
                if index > 0 {
                    out.push(',');
                }
                let Val::TStr(key) = key else {
                    return Err(Failure::new(
                        "filter-failed",
                        format_args!("an object has the key {key}, which is no text"),
                    ));
                };
                string(&String::from_utf8_lossy(key), out)?;
                out.push(':');
                write(field, out)?;
            }
            out.push('}');
        }
    }
    Ok(())
}

fn string(text: &str, out: &mut String) -> Result<(), Failure> {
    let quoted = serde_json::to_string(text).map_err(|error| Failure::new("internal", error))?;
    out.push_str(&quoted);
    Ok(())
}
