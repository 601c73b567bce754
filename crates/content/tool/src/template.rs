//! Command lines made from JSON: `--max={max}`, `{paths}`, `{?quiet}-q`.
//!
//! `{name}` is the value of that property of the input: text as it is, everything else as JSON. An
//! argument with one value that is a list becomes an argument for each item; an argument (or a group
//! of them) with a property that is absent or null is left out. `{?name}` stands for nothing and leaves the argument
//! out unless the property is there and not false. `{}` is the whole input as JSON; `{{` and `}}`
//! are braces. No shell is involved: what a value holds can never become another argument.

use serde_json::{Map, Value};

use crate::manifest::{Argument, CommandShape};

/// A list in the input becomes at most this many arguments, all of them together at most this long.
const MOST_ARGUMENTS: usize = 4096;
const MOST_ARGUMENT_BYTES: usize = 1 << 20;

/// A command line that waits for its input.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Template {
    groups: Vec<Vec<Text>>,
    stdin: Option<Text>,
}

/// Why a template is no template.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TemplateError {
    #[error("{0:?} has a brace without its other half; write {{{{ or }}}} for a brace itself")]
    Brace(String),
    #[error("{text:?} names {name:?}, which is no property of the input schema")]
    Unknown { text: String, name: String },
}

type Text = Vec<Piece>;

#[derive(Debug, Clone, PartialEq, Eq)]
enum Piece {
    Literal(String),
    Value(String),
    Condition(String),
    Whole,
}

impl Template {
    /// Reads the templates; every name must be a property of the input schema. An error comes with
    /// the JSON Pointer of the text in the manifest.
    pub(crate) fn parse(
        shape: &CommandShape,
        input: &Value,
    ) -> Result<Template, (String, TemplateError)> {
        let mut groups = Vec::new();
        for (index, argument) in shape.args.iter().enumerate() {
            let texts = match argument {
                Argument::One(text) => std::slice::from_ref(text),
                Argument::Group(texts) => texts,
            };
            let group = texts.iter().map(|text| parse(text, input)).collect::<Result<_, _>>();
            groups.push(group.map_err(|error| (format!("/command/args/{index}"), error))?);
        }
        let stdin = shape.stdin.as_deref().map(|text| parse(text, input)).transpose();
        let stdin = stdin.map_err(|error| ("/command/stdin".to_owned(), error))?;
        Ok(Template { groups, stdin })
    }

    /// Arguments and standard input for one call.
    pub(crate) fn fill(&self, input: &Value) -> Result<(Vec<String>, Vec<u8>), String> {
        let mut arguments = Vec::new();
        for group in &self.groups {
            let filled: Option<Vec<Vec<String>>> =
                group.iter().map(|text| fill(text, input, true)).collect();
            arguments.extend(filled.into_iter().flatten().flatten());
        }
        let bytes: usize = arguments.iter().map(String::len).sum();
        if arguments.len() > MOST_ARGUMENTS || bytes > MOST_ARGUMENT_BYTES {
            return Err(format!(
                "it becomes {} arguments of {bytes} bytes; at most {MOST_ARGUMENTS} of {MOST_ARGUMENT_BYTES} are passed on",
                arguments.len()
            ));
        }
        if arguments.iter().any(|argument| argument.contains('\0')) {
            return Err("a value that becomes an argument holds a NUL character".to_owned());
        }
        let stdin = self.stdin.as_ref().and_then(|text| fill(text, input, false));
        Ok((arguments, stdin.and_then(|texts| texts.into_iter().next()).unwrap_or_default().into()))
    }
}

fn parse(text: &str, schema: &Value) -> Result<Text, TemplateError> {
    let brace = || TemplateError::Brace(text.to_owned());
    let mut pieces = Vec::new();
    let mut literal = String::new();
    let mut rest = text;
    while let Some(at) = rest.find(['{', '}']) {
        literal.push_str(&rest[..at]);
        let found = &rest[at..];
        if found.starts_with("{{") || found.starts_with("}}") {
            literal.push_str(&found[..1]);
            rest = &found[2..];
            continue;
        }
        let inside = found.strip_prefix('{').ok_or_else(brace)?;
        let (name, after) = inside.split_once('}').ok_or_else(brace)?;
        if !literal.is_empty() {
            pieces.push(Piece::Literal(std::mem::take(&mut literal)));
        }
        pieces.push(piece(name, text, schema)?);
        rest = after;
    }
    literal.push_str(rest);
    if !literal.is_empty() || pieces.is_empty() {
        pieces.push(Piece::Literal(literal));
    }
    Ok(pieces)
}

fn piece(name: &str, text: &str, schema: &Value) -> Result<Piece, TemplateError> {
    if name.is_empty() {
        return Ok(Piece::Whole);
    }
    let (property, condition) = match name.strip_prefix('?') {
        Some(property) => (property, true),
        None => (name, false),
    };
    if schema["properties"].get(property).is_none() {
        return Err(TemplateError::Unknown { text: text.to_owned(), name: property.to_owned() });
    }
    let property = property.to_owned();
    Ok(if condition { Piece::Condition(property) } else { Piece::Value(property) })
}

/// `None` if the text is left out. A list makes several texts of one, if it may.
fn fill(text: &Text, input: &Value, lists: bool) -> Option<Vec<String>> {
    let empty = Map::new();
    let properties = input.as_object().unwrap_or(&empty);
    let values = text.iter().filter(|piece| matches!(piece, Piece::Value(_))).count();
    let mut filled = vec![String::new()];
    for piece in text {
        let given = match piece {
            Piece::Literal(literal) => vec![literal.clone()],
            Piece::Whole => vec![input.to_string()],
            Piece::Condition(name) => match properties.get(name) {
                None | Some(Value::Null | Value::Bool(false)) => return None,
                Some(_) => continue,
            },
            Piece::Value(name) => match properties.get(name) {
                None | Some(Value::Null) => return None,
                Some(Value::Array(items)) if lists && values == 1 => {
                    items.iter().map(plain).collect()
                }
                Some(value) => vec![plain(value)],
            },
        };
        // All but one piece are single, so this grows to the length of the list and no further.
        filled = filled
            .iter()
            .flat_map(|left| given.iter().map(move |right| format!("{left}{right}")))
            .collect();
    }
    Some(filled)
}

fn plain(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests;
