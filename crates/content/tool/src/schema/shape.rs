//! The shape of a schema before it is compiled: what it refers to, how deep, how often.

use std::collections::HashMap;

use serde_json::Value;

use super::{MOST_PATTERNS, SchemaError};

const DIALECT: &str = "https://json-schema.org/draft/2020-12/schema";
/// Subschemas applied to one and the same value, each inside the other.
const MOST_IN_PLACE: usize = 48;
/// Subschemas inside one another, references followed.
const MOST_DEEP: usize = 256;

/// Keywords with one subschema, with a list and with a map of them. The first group of each is
/// applied to the value itself, the second to parts of it.
const ONE: [&[&str]; 2] = [
    &["not", "if", "then", "else"],
    &[
        "additionalProperties",
        "propertyNames",
        "items",
        "contains",
        "unevaluatedItems",
        "unevaluatedProperties",
    ],
];
const LIST: [&[&str]; 2] = [&["allOf", "anyOf", "oneOf"], &["prefixItems"]];
const MAP: [&[&str]; 2] = [&["dependentSchemas"], &["properties", "patternProperties"]];
/// What would make a reference mean something else than the place it names.
const UNSUPPORTED: [&str; 5] =
    ["$dynamicRef", "$dynamicAnchor", "$recursiveRef", "$recursiveAnchor", "$anchor"];

#[derive(Clone, Copy, PartialEq, Eq)]
enum Step {
    InPlace,
    Deeper,
}

/// The subschemas that can be reached from the top, and how.
#[derive(Default)]
struct Graph {
    steps: Vec<Vec<(Step, usize)>>,
    places: Vec<String>,
    patterns: usize,
}

/// Refuses a schema that no check could be bounded for.
pub(super) fn check(schema: &Value) -> Result<(), SchemaError> {
    let graph = Graph::of(schema)?;
    if graph.patterns > MOST_PATTERNS {
        return Err(wrong("", format!("it has more than {MOST_PATTERNS} patterns")));
    }
    let mut known = vec![None; graph.steps.len()];
    for node in 0..graph.steps.len() {
        graph.in_place(node, 0, &mut known)?;
    }
    let mut seen = vec![false; graph.steps.len()];
    graph.descend(0, 0, &mut seen)
}

impl Graph {
    fn of(root: &Value) -> Result<Graph, SchemaError> {
        let mut graph = Graph::default();
        let mut numbers: HashMap<*const Value, usize> = HashMap::new();
        let mut waiting = vec![(root, String::new())];
        numbers.insert(root, 0);
        let mut next = 0;
        while let Some((schema, at)) = waiting.get(next).cloned() {
            let mut steps = Vec::new();
            for (step, child, place) in children(root, schema, &at)? {
                let number = *numbers.entry(child).or_insert_with(|| {
                    waiting.push((child, place));
                    waiting.len() - 1
                });
                steps.push((step, number));
            }
            graph.steps.push(steps);
            graph.patterns += patterns_of(schema);
            graph.places.push(at);
            next += 1;
        }
        Ok(graph)
    }

    /// How many subschemas apply to one value, each inside the other. A value that meets the same
    /// one again and again would never be done.
    fn in_place(
        &self,
        node: usize,
        above: usize,
        known: &mut [Option<usize>],
    ) -> Result<usize, SchemaError> {
        if let Some(depth) = known[node] {
            return Ok(depth);
        }
        let mut depth = 1;
        if above < MOST_IN_PLACE {
            for (_, child) in self.steps[node].iter().filter(|(step, _)| *step == Step::InPlace) {
                depth = depth.max(1 + self.in_place(*child, above + 1, known)?);
            }
        }
        if above + depth > MOST_IN_PLACE {
            let problem = "it refers to itself, or too many subschemas apply to one value";
            return Err(wrong(&self.places[node], problem));
        }
        known[node] = Some(depth);
        Ok(depth)
    }

    fn descend(&self, node: usize, depth: usize, seen: &mut [bool]) -> Result<(), SchemaError> {
        if std::mem::replace(&mut seen[node], true) {
            return Ok(());
        }
        if depth > MOST_DEEP {
            return Err(wrong(&self.places[node], "subschemas are nested too deeply"));
        }
        for (_, child) in &self.steps[node] {
            self.descend(*child, depth + 1, seen)?;
        }
        Ok(())
    }
}

fn patterns_of(schema: &Value) -> usize {
    let names = schema.get("patternProperties").and_then(Value::as_object);
    names.map_or(0, serde_json::Map::len) + usize::from(schema.get("pattern").is_some())
}

type Child<'a> = (Step, &'a Value, String);

fn children<'a>(
    root: &'a Value,
    schema: &'a Value,
    at: &str,
) -> Result<Vec<Child<'a>>, SchemaError> {
    let Value::Object(keywords) = schema else {
        return Ok(Vec::new());
    };
    check_keywords(keywords, at)?;
    let mut found = Vec::new();
    for (step, index) in [(Step::InPlace, 0), (Step::Deeper, 1)] {
        for keyword in ONE[index] {
            found.extend(keywords.get(*keyword).map(|one| (step, one, format!("{at}/{keyword}"))));
        }
        for keyword in LIST[index] {
            let list = keywords.get(*keyword).and_then(Value::as_array).into_iter().flatten();
            let numbered = list.enumerate();
            found.extend(numbered.map(|(n, one)| (step, one, format!("{at}/{keyword}/{n}"))));
        }
        for keyword in MAP[index] {
            let map = keywords.get(*keyword).and_then(Value::as_object).into_iter().flatten();
            found.extend(map.map(|(name, one)| (step, one, format!("{at}/{keyword}/{name}"))));
        }
    }
    if let Some(reference) = keywords.get("$ref") {
        let target = reference.as_str().and_then(|text| text.strip_prefix('#'));
        let target = target.and_then(|pointer| Some((root.pointer(pointer)?, pointer)));
        let Some((target, pointer)) = target else {
            let problem = format!(
                "{reference} leads nowhere; only places in the same schema such as \"#/$defs/name\" can be named"
            );
            return Err(wrong(&format!("{at}/$ref"), problem));
        };
        found.push((Step::InPlace, target, pointer.to_owned()));
    }
    Ok(found)
}

fn check_keywords(keywords: &serde_json::Map<String, Value>, at: &str) -> Result<(), SchemaError> {
    if let Some(keyword) = UNSUPPORTED.iter().find(|keyword| keywords.contains_key(**keyword)) {
        let problem = "it is not supported; use $ref to a place in the same schema";
        return Err(wrong(&format!("{at}/{keyword}"), problem));
    }
    if !at.is_empty() && keywords.contains_key("$id") {
        return Err(wrong(&format!("{at}/$id"), "only the top of a schema may have one"));
    }
    match keywords.get("$schema") {
        Some(dialect) if dialect != DIALECT => {
            Err(wrong(&format!("{at}/$schema"), format!("only {DIALECT:?} is supported")))
        }
        _ => Ok(()),
    }
}

fn wrong(at: &str, problem: impl Into<String>) -> SchemaError {
    SchemaError { at: at.to_owned(), problem: problem.into() }
}
