//! JSON, TOML and YAML: syntax, and keys that are given twice.

use std::collections::HashMap;

use jsonc_parser::ast::Value;
use jsonc_parser::common::Ranged as _;
use jsonc_parser::{CollectOptions, ParseOptions, parse_to_ast};
use saphyr_parser::{Event, Parser, ScalarStyle, Span};

use crate::{Findings, Severity};

/// Nested deeper than this is not written by anyone, and would overflow the stack.
const MOST_DEPTH: usize = 200;

pub(crate) fn json(text: &str, findings: &mut Findings<'_>) {
    let strict = ParseOptions {
        allow_comments: false,
        allow_loose_object_property_names: false,
        allow_trailing_commas: false,
        allow_missing_commas: false,
        allow_single_quoted_strings: false,
        allow_hexadecimal_numbers: false,
        allow_unary_plus_numbers: false,
        allow_bare_decimal_point_numbers: false,
        allow_non_finite_numbers: false,
        allow_extended_string_escapes: false,
    };
    match parse_to_ast(text, &CollectOptions::default(), &strict) {
        Ok(parsed) => match parsed.value {
            Some(value) => json_keys(&value, 0, findings),
            None => {
                findings.add(Severity::Error, "syntax", 0..text.len(), "no JSON value");
            }
        },
        Err(error) => {
            let range = error.range();
            findings.add(Severity::Error, "syntax", range.start..range.end, error.kind());
        }
    }
}

fn json_keys(value: &Value<'_>, depth: usize, findings: &mut Findings<'_>) {
    if depth == MOST_DEPTH {
        return;
    }
    match value {
        Value::Array(array) => {
            for element in &array.elements {
                json_keys(element, depth + 1, findings);
            }
        }
        Value::Object(object) => {
            let mut lines: HashMap<&str, usize> = HashMap::new();
            for property in &object.properties {
                let range = property.name.range();
                let name = property.name.as_str();
                let line = findings.lines.position(range.start).line;
                if let Some(first) = lines.insert(name, line) {
                    duplicate(findings, name, range.start..range.end, first);
                }
                json_keys(&property.value, depth + 1, findings);
            }
        }
        _ => {}
    }
}

fn duplicate(findings: &mut Findings<'_>, key: &str, at: std::ops::Range<usize>, first: usize) {
    let message =
        format!("the key {key:?} is here twice (first on line {first}); one of them is lost");
    findings.add(Severity::Error, "duplicate-key", at, message);
}

pub(crate) fn toml(text: &str, findings: &mut Findings<'_>) {
    let tree = taplo::parser::parse(text);
    for error in &tree.errors {
        let range = usize::from(error.range.start())..usize::from(error.range.end());
        findings.add(Severity::Error, "syntax", range, &error.message);
    }
    if !tree.errors.is_empty() {
        return;
    }
    let Err(errors) = tree.into_dom().validate() else { return };
    for error in errors {
        use taplo::dom::error::Error;
        let (rule, key) = match &error {
            Error::ConflictingKeys { key, .. } => ("duplicate-key", Some(key)),
            Error::ExpectedArrayOfTables { not_array_of_tables: key, .. } => {
                ("conflict", Some(key))
            }
            Error::ExpectedTable { not_table: key, .. } => ("conflict", Some(key)),
            _ => ("invalid", None),
        };
        let range = key.and_then(|key| key.text_ranges().next());
        let range = range.map_or(0..0, |range| range.start().into()..range.end().into());
        findings.add(Severity::Error, rule, range, &error);
    }
}

/// What is open while the events of a YAML text go by.
enum Open {
    Sequence,
    /// The keys so far with their lines, and whether a key comes next.
    Mapping(HashMap<String, usize>, bool),
}

pub(crate) fn yaml(text: &str, findings: &mut Findings<'_>) {
    let mut open: Vec<Open> = Vec::new();
    for event in Parser::new_from_str(text) {
        let (event, span) = match event {
            Ok(event) => event,
            Err(error) => {
                let at = offset(text, error.marker().index());
                findings.add(Severity::Error, "syntax", at..at, error.info());
                return;
            }
        };
        match event {
            Event::Scalar(value, style, ..) => {
                let range = bytes(text, span);
                if let Some(Open::Mapping(keys, true)) = open.last_mut() {
                    let line = findings.lines.position(range.start).line;
                    if let Some(first) = keys.insert(value.to_string(), line) {
                        duplicate(findings, &value, range, first);
                    }
                } else {
                    truthy(&value, style, range, findings);
                }
                turn(&mut open);
            }
            Event::Alias(..) => turn(&mut open),
            Event::SequenceStart(..) => open.push(Open::Sequence),
            Event::MappingStart(..) => open.push(Open::Mapping(HashMap::new(), true)),
            Event::SequenceEnd | Event::MappingEnd => {
                open.pop();
                turn(&mut open);
            }
            _ => {}
        }
    }
}

/// After a key comes its value, after that a key.
fn turn(open: &mut [Open]) {
    if let Some(Open::Mapping(_, key_is_next)) = open.last_mut() {
        *key_is_next = !*key_is_next;
    }
}

fn truthy(
    value: &str,
    style: ScalarStyle,
    at: std::ops::Range<usize>,
    findings: &mut Findings<'_>,
) {
    let lower = value.to_ascii_lowercase();
    if style == ScalarStyle::Plain
        && matches!(lower.as_str(), "yes" | "no" | "on" | "off" | "y" | "n")
    {
        let message = format!(
            "{value:?} is true or false for some programs and a text for others; quote it, or write true or false"
        );
        findings.add(Severity::Warning, "truthy", at.clone(), message);
        findings.fix("quote it", false, [(at, format!("\"{value}\""))]);
    }
}

/// The parser counts characters.
fn offset(text: &str, characters: usize) -> usize {
    text.char_indices().nth(characters).map_or(text.len(), |(at, _)| at)
}

fn bytes(text: &str, span: Span) -> std::ops::Range<usize> {
    offset(text, span.start.index())..offset(text, span.end.index())
}
