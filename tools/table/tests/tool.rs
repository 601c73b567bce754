//! `table`: reading, every step, writing, and what is refused.
#![allow(clippy::expect_used, reason = "helpers of tests fail by panicking")]

use std::fs;

use ringwall_tool_sdk::{Failure, testing};
use serde_json::{Value, json};
use tool_table::{call, call_in};

const PEOPLE: &str = "name,age,city\nAda,36,Paris\nBo,7,Rome\nCy,,Paris\nDi,36,Oslo\n";

fn try_table(input: &Value) -> Result<Value, Failure> {
    let output = ringwall_tool_sdk::call_with_json(&input.to_string(), call)?;
    Ok(serde_json::from_str(&output).expect("it is JSON"))
}

/// The rows of `PEOPLE` after some steps, as CSV without its header.
fn after(steps: Value) -> Vec<String> {
    let input = json!({ "format": "csv", "text": PEOPLE, "steps": steps, "to": "csv" });
    let output = try_table(&input).expect("it answers");
    output["text"].as_str().expect("a text").lines().skip(1).map(str::to_owned).collect()
}

#[test]
fn the_examples_give_what_the_manifest_says() {
    testing::check(env!("CARGO_MANIFEST_DIR"), call);
}

#[test]
fn columns_are_chosen_dropped_and_renamed() {
    assert_eq!(after(json!([{ "select": ["age", "name"] }, { "limit": 1 }])), ["36,Ada"]);
    assert_eq!(after(json!([{ "drop": ["age"] }, { "skip": 3 }])), ["Di,Oslo"]);
    let input =
        json!({ "format": "csv", "text": PEOPLE, "steps": [{ "rename": { "age": "years" } }] });
    assert_eq!(try_table(&input).expect("it answers")["columns"], json!(["name", "years", "city"]));
}

#[test]
fn filters_compare_numbers_as_numbers_and_pass_over_empty_cells() {
    let names = |op: &str, value: Value| -> Vec<String> {
        let filter = json!({ "column": "age", "op": op, "value": value });
        after(json!([{ "filter": filter }, { "select": ["name"] }]))
    };
    assert_eq!(names("<", json!(10)), ["Bo"]);
    assert_eq!(names(">=", json!("36")), ["Ada", "Di"]);
    assert_eq!(names("=", json!(36.0)), ["Ada", "Di"]);
    assert_eq!(names("!=", json!(36)), ["Bo", "Cy"]);
    assert_eq!(names("in", json!([7, "x"])), ["Bo"]);
    assert_eq!(names("empty", json!(null)), ["Cy"]);
    assert_eq!(names("starts-with", json!("3")), ["Ada", "Di"]);
}

#[test]
fn sorting_is_stable_and_goes_by_several_columns() {
    let sorted = after(json!([
        { "sort": [{ "column": "age", "descending": true }, { "column": "name", "descending": true }] },
        { "select": ["name"] }
    ]));
    assert_eq!(sorted, ["Di", "Ada", "Bo", "Cy"]);
    let texts = json!([{ "sort": [{ "column": "age" }] }, { "select": ["name"] }]);
    let input = json!({ "format": "csv", "text": "name,age\nx,10\ny,9\nz,8\n", "steps": texts });
    let output = try_table(&input).expect("it answers");
    assert_eq!(output["rows"], json!([{ "name": "z" }, { "name": "y" }, { "name": "x" }]));
}

#[test]
fn every_aggregate_does_what_it_says() {
    let aggregate: Vec<Value> =
        ["count", "sum", "mean", "min", "max", "first", "last", "distinct", "list"]
            .iter()
            .map(|op| json!({ "op": op, "column": "age", "as": op }))
            .collect();
    let steps = json!([{ "group": { "by": [], "aggregate": aggregate } }]);
    let input = json!({ "format": "csv", "text": PEOPLE, "steps": steps });
    let row = &try_table(&input).expect("it answers")["rows"][0];
    let expected = json!({
        "count": 3, "sum": 79, "mean": 79.0 / 3.0, "min": 7, "max": 36, "first": 36, "last": 36,
        "distinct": 2, "list": [36, 7, 36],
    });
    assert_eq!(*row, expected);
}

#[test]
fn joins_multiply_keep_or_look_for_rows_without_partner() {
    let join = |kind: &str| {
        let with = json!({ "rows": [{ "city": "Paris", "river": "Seine" }, { "city": "Paris", "river": "Marne" }] });
        after(json!([{ "join": { "with": with, "on": ["city"], "kind": kind } }]))
    };
    assert_eq!(join("inner").len(), 4);
    assert_eq!(join("left")[2], "Bo,7,Rome,");
    assert_eq!(join("anti"), ["Bo,7,Rome", "Di,36,Oslo"]);
}

#[test]
fn a_join_that_explodes_is_refused() {
    let many: Vec<Value> = (0..1_100).map(|n| json!({ "k": 1, "n": n })).collect();
    let other: Vec<Value> = (0..1_100).map(|n| json!({ "k": 1, "m": n })).collect();
    let steps = json!([{ "join": { "with": { "rows": other }, "on": ["k"] } }]);
    let failure = try_table(&json!({ "rows": many, "steps": steps })).expect_err("refused");
    assert_eq!(failure.code, "limit");
}

#[test]
fn distinct_rows_are_the_first_of_their_kind() {
    let distinct = after(json!([{ "distinct": ["age"] }, { "select": ["name"] }]));
    assert_eq!(distinct, ["Ada", "Bo", "Cy"]);
}

#[test]
fn formats_come_back_the_same() {
    let awkward = "a,b\n\"x, \"\"y\"\"\",\"two\nlines\"\n007,-2.5\n";
    let input = json!({ "format": "csv", "text": awkward, "to": "csv" });
    assert_eq!(try_table(&input).expect("it answers")["text"], awkward);
    let lines = "{\"a\":{\"b\":[1]},\"c\":null}\n";
    let input = json!({ "format": "jsonl", "text": lines, "to": "jsonl" });
    assert_eq!(try_table(&input).expect("it answers")["text"], lines);
    let input = json!({ "format": "csv", "text": "1;2\n3;4\n", "delimiter": ";", "header": false });
    let output = try_table(&input).expect("it answers");
    assert_eq!(output["rows"], json!([{ "c1": 1, "c2": 2 }, { "c1": 3, "c2": 4 }]));
}

#[test]
fn rows_beyond_the_limits_are_counted_but_not_returned() {
    let rows: Vec<Value> = (0..50).map(|n| json!({ "n": n })).collect();
    let few = try_table(&json!({ "rows": rows, "limit": 2 })).expect("it answers");
    assert_eq!(
        (&few["count"], &few["total"], &few["truncated"]),
        (&json!(2), &json!(50), &json!(true))
    );
    let small = try_table(&json!({ "rows": rows, "max_bytes": 30, "to": "csv" })).expect("answers");
    assert_eq!(small["truncated"], true);
    assert!(small["text"].as_str().is_some_and(|text| text.len() <= 32));
}

#[test]
fn mistakes_are_named_with_their_step_and_line() {
    let message = |input: Value| try_table(&input).expect_err("refused").message;
    let step = json!({ "rows": [{ "a": 1 }], "steps": [{ "limit": 1 }, { "select": ["b"] }] });
    assert_eq!(message(step), "steps[1]: there is no column \"b\"; there are: a");
    let ragged = message(json!({ "format": "csv", "text": "a,b\n1\n" }));
    assert!(ragged.contains("line: 2"), "{ragged}");
    assert!(message(json!({ "format": "csv", "text": "a,a\n1,2\n" })).contains("twice"));
    assert!(message(json!({ "format": "jsonl", "text": "{}\nx\n" })).contains("line 2"));
}

#[test]
fn files_are_read_by_the_format_in_their_name() {
    let folder = tempfile::tempdir().expect("a folder");
    fs::write(folder.path().join("a.tsv"), "x\ty\n1\t2\n").expect("written");
    let input = json!({ "path": "a.tsv" }).to_string();
    let output = ringwall_tool_sdk::call_with_json(&input, |input| call_in(folder.path(), input));
    assert!(output.expect("it answers").contains(r#""rows":[{"x":1,"y":2}]"#));
}
