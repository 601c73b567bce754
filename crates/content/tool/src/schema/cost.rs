//! What it costs to check one value against one schema, counted before it is done.
//!
//! The count takes every branch, so a check never does more work than was counted. It ends as soon
//! as there is more to count than the caller allows, so counting itself is never costly.

use std::collections::HashMap;

use serde_json::{Map, Value};

/// In-place subschemas of a schema with `unevaluatedItems` or `unevaluatedProperties` are asked again
/// what they have evaluated.
const ASKED_AGAIN: u64 = 4;
/// Items that are compared pairwise, where they must be unique.
const PAIRWISE: u64 = 16;
/// Comparisons of a search in a sorted list.
const SEARCH: u64 = 16;
/// States that a pattern can be in at once. Above, it would be refused for its size.
const MOST_STATES: u64 = 4096;

/// There is more to do than is allowed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct TooMuch;

/// Steps of a check, or [`TooMuch`] if there are more than `most`.
pub(super) fn steps(schema: &Value, value: &Value, most: u64) -> Result<u64, TooMuch> {
    let mut count =
        Count { root: schema, left: most, options: HashMap::new(), sizes: HashMap::new() };
    count.visit(schema, value, 1)?;
    Ok(most - count.left)
}

struct Count<'a> {
    root: &'a Value,
    left: u64,
    /// Of each `enum`, by where it is: it is looked at once, however many values meet it.
    options: HashMap<*const Value, Options>,
    /// Of what is compared as a whole, by where it is.
    sizes: HashMap<*const Value, u64>,
}

/// What an `enum` has.
#[derive(Clone, Copy)]
struct Options {
    only_texts: bool,
    only_integers: bool,
    size: u64,
}

impl Count<'_> {
    fn spend(&mut self, steps: u64, times: u64) -> Result<(), TooMuch> {
        self.left = self.left.checked_sub(steps.saturating_mul(times)).ok_or(TooMuch)?;
        Ok(())
    }

    fn visit(&mut self, schema: &Value, value: &Value, times: u64) -> Result<(), TooMuch> {
        self.spend(1, times)?;
        let Value::Object(keywords) = schema else { return Ok(()) };
        self.spend(keywords.len() as u64, times)?;
        self.compare(keywords, value, times)?;
        self.visit_in_place(keywords, value, times)?;
        match value {
            Value::Object(members) => self.visit_members(keywords, members, times),
            Value::Array(items) => self.visit_items(keywords, items, times),
            Value::String(text) => self.match_text(keywords, text, times),
            _ => Ok(()),
        }
    }

    /// `enum`, `const` and `uniqueItems` look at whole values.
    fn compare(
        &mut self,
        keywords: &Map<String, Value>,
        value: &Value,
        times: u64,
    ) -> Result<(), TooMuch> {
        if let Some(list) = keywords.get("enum") {
            let options = *self.options.entry(list).or_insert_with(|| Options::of(list));
            let found = match value {
                Value::String(text) if options.only_texts => text.len() as u64,
                Value::Number(number) if number.is_i64() && options.only_integers => SEARCH,
                _ => options.size,
            };
            self.spend(found, times)?;
        }
        if let Some(expected) = keywords.get("const") {
            let size = self.size_of(expected);
            self.spend(size, times)?;
        }
        if keywords.get("uniqueItems") == Some(&Value::Bool(true)) && value.is_array() {
            let size = self.size_of(value);
            self.spend(size.saturating_mul(PAIRWISE), times)?;
        }
        Ok(())
    }

    fn size_of(&mut self, value: &Value) -> u64 {
        *self.sizes.entry(value).or_insert_with(|| size(value))
    }

    fn visit_in_place(
        &mut self,
        keywords: &Map<String, Value>,
        value: &Value,
        times: u64,
    ) -> Result<(), TooMuch> {
        let unevaluated = ["unevaluatedItems", "unevaluatedProperties"]
            .iter()
            .any(|name| keywords.contains_key(*name));
        let times = if unevaluated { times.saturating_mul(ASKED_AGAIN) } else { times };
        for keyword in ["not", "if", "then", "else"] {
            if let Some(schema) = keywords.get(keyword) {
                self.visit(schema, value, times)?;
            }
        }
        for keyword in ["allOf", "anyOf", "oneOf"] {
            for schema in list(keywords, keyword) {
                self.visit(schema, value, times)?;
            }
        }
        if let (Some(schemas), Value::Object(members)) = (map(keywords, "dependentSchemas"), value)
        {
            self.spend(schemas.len() as u64, times)?;
            for (_, schema) in schemas.iter().filter(|(name, _)| members.contains_key(*name)) {
                self.visit(schema, value, times)?;
            }
        }
        if let Some(reference) = keywords.get("$ref").and_then(Value::as_str) {
            self.spend(reference.len() as u64, 1)?;
            let target = reference.strip_prefix('#').and_then(|place| self.root.pointer(place));
            // A reference that leads nowhere was refused when the schema was compiled.
            self.visit(target.ok_or(TooMuch)?, value, times)?;
        }
        Ok(())
    }

    fn visit_members(
        &mut self,
        keywords: &Map<String, Value>,
        members: &Map<String, Value>,
        times: u64,
    ) -> Result<(), TooMuch> {
        self.spend(members.len() as u64 + list(keywords, "required").len() as u64, times)?;
        for (_, names) in map(keywords, "dependentRequired").into_iter().flatten() {
            self.spend(1 + names.as_array().map_or(0, Vec::len) as u64, times)?;
        }
        if let Some(properties) = map(keywords, "properties") {
            self.spend(properties.len() as u64, times)?;
            for (name, value) in members {
                if let Some(schema) = properties.get(name) {
                    self.visit(schema, value, times)?;
                }
            }
        }
        for (pattern, schema) in map(keywords, "patternProperties").into_iter().flatten() {
            for (name, value) in members {
                self.spend(matching(pattern, name), times)?;
                self.visit(schema, value, times)?;
            }
        }
        for keyword in ["additionalProperties", "unevaluatedProperties"] {
            if let Some(schema) = keywords.get(keyword) {
                for value in members.values() {
                    self.visit(schema, value, times)?;
                }
            }
        }
        if let Some(schema) = keywords.get("propertyNames") {
            for name in members.keys() {
                self.visit(schema, &Value::String(name.clone()), times)?;
            }
        }
        Ok(())
    }

    fn visit_items(
        &mut self,
        keywords: &Map<String, Value>,
        items: &[Value],
        times: u64,
    ) -> Result<(), TooMuch> {
        for (schema, value) in list(keywords, "prefixItems").iter().zip(items) {
            self.visit(schema, value, times)?;
        }
        for keyword in ["items", "contains", "unevaluatedItems"] {
            if let Some(schema) = keywords.get(keyword) {
                for value in items {
                    self.visit(schema, value, times)?;
                }
            }
        }
        Ok(())
    }

    fn match_text(
        &mut self,
        keywords: &Map<String, Value>,
        text: &str,
        times: u64,
    ) -> Result<(), TooMuch> {
        if keywords.contains_key("minLength") || keywords.contains_key("maxLength") {
            self.spend(text.len() as u64 / 8, times)?;
        }
        match keywords.get("pattern").and_then(Value::as_str) {
            Some(pattern) => self.spend(matching(pattern, text), times),
            None => Ok(()),
        }
    }
}

impl Options {
    fn of(list: &Value) -> Options {
        let options = list.as_array().map_or(&[][..], Vec::as_slice);
        Options {
            only_texts: options.iter().all(Value::is_string),
            only_integers: options.iter().all(Value::is_i64),
            size: size(list),
        }
    }
}

fn list<'a>(keywords: &'a Map<String, Value>, keyword: &str) -> &'a [Value] {
    keywords.get(keyword).and_then(Value::as_array).map_or(&[], Vec::as_slice)
}

fn map<'a>(keywords: &'a Map<String, Value>, keyword: &str) -> Option<&'a Map<String, Value>> {
    keywords.get(keyword).and_then(Value::as_object)
}

/// Steps to match a text: each byte may meet every state of the pattern. Where a pattern repeats a
/// counted number of times, it has its states as often.
fn matching(pattern: &str, text: &str) -> u64 {
    let mut states = pattern.len() as u64;
    for repeated in pattern.split('{').skip(1) {
        let counts = repeated.split('}').next().unwrap_or_default();
        let most = counts.split(',').filter_map(|count| count.trim().parse::<u64>().ok()).max();
        states = states.saturating_mul(most.unwrap_or(1).max(1));
    }
    states.min(MOST_STATES).saturating_mul(text.len() as u64 + 1)
}

/// Parts of a value, and bytes of its texts.
fn size(value: &Value) -> u64 {
    match value {
        Value::String(text) => 1 + text.len() as u64 / 8,
        Value::Array(items) => items.iter().map(size).fold(1, u64::saturating_add),
        Value::Object(members) => members
            .iter()
            .map(|(name, value)| 1 + name.len() as u64 / 8 + size(value))
            .fold(1, u64::saturating_add),
        _ => 1,
    }
}
