//! Values that fit and do not, and schemas that mean harm.

use std::time::Instant;

use proptest::prelude::*;
use serde_json::{Map, Value, json};

use super::*;

fn check(schema: &Value, value: Value) -> Result<Value, Misfit> {
    let bytes = value.to_string().len();
    Schema::compile(schema).unwrap().check(value, bytes)
}

fn told(schema: &Value, value: Value) -> String {
    check(schema, value).unwrap_err().to_string()
}

fn refused(schema: Value) -> String {
    Schema::compile(&schema).unwrap_err().to_string()
}

#[test]
fn a_value_that_does_not_fit_is_told_where_and_what_was_expected() {
    let schema = json!({
        "type": "object", "required": ["a"], "additionalProperties": false,
        "properties": {
            "a": { "type": "integer", "minimum": 3 },
            "b": { "type": "array", "items": { "type": ["string", "null"], "pattern": "^x" } },
            "c": { "enum": ["red", "green"] }
        }
    });
    assert_eq!(told(&schema, json!({})), "at its top: \"a\" is missing");
    assert_eq!(told(&schema, json!({ "a": "1" })), "at /a: expected integer, found string");
    assert!(told(&schema, json!({ "a": 1 })).starts_with("at /a: 1 is less than"));
    assert!(told(&schema, json!({ "a": 3, "b": ["x", "y"] })).starts_with("at /b/1: \"y\""));
    let types = told(&schema, json!({ "a": 3, "b": [1] }));
    assert!(types.contains("expected null or string, found number"), "{types}");
    let choice = told(&schema, json!({ "a": 3, "c": "blue" }));
    assert!(choice.contains("\"red\"") && choice.contains("\"green\""), "{choice}");
    assert_eq!(told(&schema, json!({ "a": 3, "d/e": 1 })), "at /d~1e: nothing has this name");
    let fits = json!({ "a": 3, "b": ["x", null], "c": "red" });
    assert_eq!(check(&schema, fits.clone()), Ok(fits));
}

#[test]
fn all_problems_of_a_small_value_are_told_but_not_without_end() {
    let schema = json!({ "items": { "type": "string" } });
    let misfit = check(&schema, json!(vec![1; 100])).unwrap_err();
    assert_eq!(misfit.problems().count(), MOST_PROBLEMS);
    let large = check(&schema, json!(vec![1; 100_000])).unwrap_err();
    assert_eq!(large.problems().count(), 1);
    let long = told(&json!({ "const": "x" }), json!("y".repeat(100_000)));
    assert!(long.len() < 2 * MOST_SHOWN, "{}", long.len());
}

#[test]
fn a_schema_that_is_none_is_refused_with_its_place() {
    assert!(refused(json!({ "type": "objct" })).contains("at /type"));
    assert!(
        refused(json!({ "properties": { "a": { "minimum": "x" } } })).contains("/properties/a")
    );
    assert!(refused(json!({ "pattern": "[" })).contains("/pattern"));
    assert!(refused(json!(3)).contains("its top"));
}

#[test]
fn nothing_is_fetched_and_nothing_means_another_place_than_it_says() {
    for reference in
        ["https://example.com/x", "file:///etc/passwd", "other.json", "#/nope", "#name"]
    {
        let told = refused(json!({ "properties": { "a": { "$ref": reference } } }));
        assert!(told.contains("/properties/a/$ref") && told.contains("leads nowhere"), "{told}");
    }
    assert!(refused(json!({ "items": { "$dynamicRef": "#x" } })).contains("not supported"));
    assert!(refused(json!({ "items": { "$id": "x" } })).contains("only the top"));
    let old = json!({ "$schema": "http://json-schema.org/draft-07/schema#" });
    assert!(refused(old).contains("/$schema"));
}

#[test]
fn a_schema_may_refer_to_itself_for_what_is_inside_a_value() {
    let tree = json!({
        "type": "object", "required": ["name"],
        "properties": { "name": { "type": "string" }, "parts": { "type": "array", "items": { "$ref": "#" } } }
    });
    let value = json!({ "name": "a", "parts": [{ "name": "b", "parts": [{ "name": 1 }] }] });
    assert_eq!(told(&tree, value), "at /parts/0/parts/0/name: expected string, found number");
}

#[test]
fn a_schema_that_refers_to_itself_in_place_is_refused() {
    let rings = [
        json!({ "$ref": "#" }),
        json!({ "allOf": [{ "$ref": "#" }] }),
        json!({ "$ref": "#/$defs/a", "$defs": { "a": { "not": { "$ref": "#/$defs/a" } } } }),
    ];
    for ring in rings {
        assert!(refused(ring.clone()).contains("refers to itself"), "{ring}");
    }
    let chain: Map<String, Value> = (0..5000)
        .map(|n| (format!("d{n}"), json!({ "$ref": format!("#/$defs/d{}", (n + 1) % 5000) })))
        .collect();
    assert!(refused(json!({ "$ref": "#/$defs/d0", "$defs": chain })).contains("refers to itself"));
}

/// Each definition applies the next one twice: a few lines of schema, and two to the power of that many
/// checks.
fn doubling(times: usize, deeper: bool) -> Value {
    let next = |n: usize| {
        let one = json!({ "$ref": format!("#/$defs/d{}", n + 1) });
        let both = json!({ "allOf": [one, one] });
        if deeper { json!({ "properties": { "x": both } }) } else { both }
    };
    let mut definitions: Map<String, Value> =
        (0..times).map(|n| (format!("d{n}"), next(n))).collect();
    let last = if deeper { json!({ "$ref": "#/$defs/d0" }) } else { json!({ "type": "string" }) };
    definitions.insert(format!("d{times}"), last);
    json!({ "$ref": "#/$defs/d0", "$defs": definitions })
}

#[test]
fn a_check_that_would_take_forever_is_given_up_once_and_not_begun_again() {
    let mut value = json!({});
    for _ in 0..100 {
        value = json!({ "x": value });
    }
    let schema = Schema::compile(&doubling(60, true)).unwrap();
    let misfit = schema.check(value.clone(), 1000).unwrap_err().to_string();
    assert!(misfit.contains("takes more than"), "{misfit}");
    let begun = Instant::now();
    assert!(schema.check(value, 1000).unwrap_err().to_string().contains("takes more than"));
    assert!(begun.elapsed() < PATIENCE, "the check was begun again");
}

/// The value is one that takes every branch, for as long as a check could last.
fn check_of(schema: Value, value: &Value) -> Result<u64, cost::TooMuch> {
    Schema::compile(&schema).unwrap();
    cost::steps(&schema, value, MOST_STEPS)
}

#[test]
fn a_long_list_of_options_counts_with_every_value_that_it_is_searched_for() {
    let options: Vec<Value> =
        std::iter::once(json!(0.5)).chain((60_000..99_999).map(Value::from)).collect();
    let schema = json!({ "properties": { "a": { "items": { "enum": options } } } });
    let value = json!({ "a": vec![99_998; 150_000] });
    assert_eq!(check_of(schema.clone(), &value), Err(cost::TooMuch));
    let bytes = value.to_string().len();
    let misfit = Schema::compile(&schema).unwrap().check(value, bytes).unwrap_err();
    assert!(misfit.to_string().contains("takes more than"), "{misfit}");
}

#[test]
fn whatever_is_searched_again_for_each_part_of_a_value_is_counted() {
    let names: Vec<String> = (0..8_000).map(|number| format!("n{number}")).collect();
    let large = json!(vec![json!({ "x": "y" }); 2_000]);
    let objects = json!(vec![large.clone(); 300]);
    let many = json!(vec![json!({}); 300_000]);
    let costly = [
        (json!({ "items": { "const": vec![1; 20_000] } }), json!(vec![1; 200_000])),
        (json!({ "items": { "required": names } }), many.clone()),
        (json!({ "items": { "dependentRequired": { "a": names } } }), many),
        (json!({ "items": { "allOf": vec![json!({ "uniqueItems": true }); 200] } }), objects),
        (json!({ "pattern": "^(a{60}|b{60}){60}$" }), json!("a".repeat(1 << 20))),
    ];
    for (schema, value) in costly {
        let shown: String = schema.to_string().chars().take(60).collect();
        assert_eq!(check_of(schema, &value), Err(cost::TooMuch), "{shown}");
    }
}

#[test]
fn asking_in_place_what_was_evaluated_counts_for_each_level() {
    let mut schema = json!({ "type": "object" });
    for _ in 0..20 {
        schema = json!({ "allOf": [schema], "unevaluatedProperties": false });
    }
    assert_eq!(check_of(schema, &json!({})), Err(cost::TooMuch));
}

#[test]
fn usual_schemas_of_large_values_are_checked() {
    let schema = json!({
        "type": "object", "required": ["matches"], "additionalProperties": false,
        "properties": { "matches": { "type": "array", "items": {
            "type": "object", "required": ["path", "line"], "properties": {
                "path": { "type": "string", "pattern": "^[^/].*$" },
                "line": { "type": "integer", "minimum": 1 },
                "kind": { "enum": ["file", "link", null] },
            }
        } } }
    });
    let one = json!({ "path": "src/some/where/file.rs", "line": 12, "kind": "file" });
    let value = json!({ "matches": vec![one; 10_000] });
    let bytes = value.to_string().len();
    assert!(check_of(schema.clone(), &value).unwrap() < MOST_STEPS / 10);
    assert_eq!(Schema::compile(&schema).unwrap().check(value.clone(), bytes), Ok(value));
}

#[test]
fn a_schema_has_a_bounded_number_of_patterns() {
    let patterns: Map<String, Value> =
        (0..=MOST_PATTERNS).map(|n| (format!("^a{n}$"), json!({ "type": "string" }))).collect();
    assert!(refused(json!({ "patternProperties": patterns })).contains("patterns"));
    let properties: Map<String, Value> =
        (0..=MOST_PATTERNS).map(|n| (format!("a{n}"), json!({ "pattern": "x" }))).collect();
    assert!(refused(json!({ "properties": properties })).contains("patterns"));
}

#[test]
fn what_is_applied_too_often_to_one_value_is_refused_or_costly_but_never_a_hang() {
    // Twenty doublings in place: a million checks of one text, still within patience or given up.
    match Schema::compile(&doubling(20, false)) {
        Ok(schema) => drop(schema.check(json!("x"), 3)),
        Err(error) => assert!(!error.problem.is_empty()),
    }
}

#[test]
fn values_nested_as_deep_as_json_may_be_are_checked() {
    let schema =
        json!({ "anyOf": [{ "type": "string" }, { "type": "array", "items": { "$ref": "#" } }] });
    let mut value = json!("end");
    for _ in 0..120 {
        value = json!([value]);
    }
    assert!(check(&schema, value).is_ok());
}

/// Words that mean something in schemas.
const KEYWORDS: [&str; 16] = [
    "type",
    "$ref",
    "allOf",
    "anyOf",
    "not",
    "if",
    "items",
    "properties",
    "pattern",
    "$defs",
    "minimum",
    "required",
    "enum",
    "a",
    "prefixItems",
    "additionalProperties",
];
const TEXTS: [&str; 7] = ["#", "#/a", "object", "string", "^a", "[", "(?=x)"];

fn any_json() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(json!(null)),
        any::<bool>().prop_map(Value::from),
        any::<i32>().prop_map(Value::from),
        prop::sample::select(&TEXTS[..]).prop_map(Value::from),
    ];
    leaf.prop_recursive(4, 40, 4, |inner| {
        let keyword = prop::sample::select(&KEYWORDS[..]).prop_map(str::to_owned);
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::vec((keyword, inner), 0..4)
                .prop_map(|entries| Value::Object(entries.into_iter().collect())),
        ]
    })
}

proptest! {
    #[test]
    fn any_schema_and_any_value_end_in_an_answer(schema in any_json(), value in any_json()) {
        if let Ok(schema) = Schema::compile(&schema) {
            let _ = schema.check(value, 100);
        }
    }
}
