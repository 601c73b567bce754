//! `json`: the jq language on values, texts and files, and what it refuses.
#![allow(clippy::expect_used, reason = "helpers of tests fail by panicking")]

use std::fs;
use std::path::Path;

use ringwall_tool_sdk::{Failure, testing};
use serde_json::{Value, json};
use tool_json::{call, call_in};

fn try_query(input: &Value) -> Result<String, Failure> {
    ringwall_tool_sdk::call_with_json(&input.to_string(), call)
}

fn query(input: &Value) -> Value {
    serde_json::from_str(&try_query(input).expect("it answers")).expect("it is JSON")
}

#[test]
fn the_examples_give_what_the_manifest_says() {
    testing::check(env!("CARGO_MANIFEST_DIR"), call);
}

#[test]
fn numbers_keep_all_their_digits() {
    let text = "[123456789012345678901234567890, 1.000000000000000000001, 3.0, 4294967296]";
    let output = try_query(&json!({ "filter": ".", "text": text })).expect("it answers");
    assert!(
        output.contains("[123456789012345678901234567890,1.000000000000000000001,3.0,4294967296]")
    );
}

#[test]
fn the_order_of_keys_stays() {
    let output = try_query(&json!({ "filter": ".", "text": r#"{"z":1,"a":2}"# })).expect("answers");
    assert!(output.contains(r#"{"z":1,"a":2}"#), "{output}");
}

#[test]
fn files_are_read_below_the_granted_directory() {
    let folder = tempfile::tempdir().expect("a folder");
    fs::write(folder.path().join("lines.json"), "{\"a\":1}\n{\"a\":2}\n").expect("written");
    let run = |path: &str| {
        let input = json!({ "filter": ".a", "path": path }).to_string();
        ringwall_tool_sdk::call_with_json(&input, |input| call_in(folder.path(), &input))
    };
    assert_eq!(
        run("lines.json").expect("it answers"),
        r#"{"results":[1,2],"count":2,"truncated":false}"#
    );
    assert_eq!(run("../lines.json").expect_err("refused").code, "bad-input");
    assert_eq!(run("other.json").expect_err("refused").code, "not-found");
}

#[test]
fn endless_results_end_at_the_limit() {
    let output = query(&json!({ "filter": "repeat(1)", "limit": 3 }));
    assert_eq!(output, json!({ "results": [1, 1, 1], "count": 3, "truncated": true }));
    let exactly = query(&json!({ "filter": "1, 2", "limit": 2 }));
    assert_eq!(exactly["truncated"], false);
}

#[test]
fn errors_say_where() {
    let refused = |filter: &str| try_query(&json!({ "filter": filter })).expect_err(filter);
    let malformed = refused(".a |\n  )");
    assert_eq!(malformed.code, "bad-input");
    assert!(malformed.message.contains("line 2, column 3"), "{malformed}");
    let undefined = refused(".a | nosuch(1)");
    assert!(undefined.message.contains("nosuch/1 at line 1, column 6"), "{undefined}");
    let failed = refused("1 | .a");
    assert_eq!(failed.code, "filter-failed", "{failed}");
    let text = try_query(&json!({ "filter": ".", "text": "{\"a\":}" })).expect_err("no JSON");
    assert!(text.message.contains("byte offset 5"), "{text}");
}

#[test]
fn the_outside_is_not_visible_to_filters() {
    for filter in ["env", "now", "$ENV", "input_filename", "input"] {
        let failure = try_query(&json!({ "filter": filter })).expect_err(filter);
        assert_eq!(failure.code, "bad-input", "{filter}: {failure}");
    }
}

#[test]
fn what_json_cannot_say_is_brought_to_json_or_refused() {
    let output = query(&json!({ "filter": "[nan, infinite, -infinite]" }));
    assert_eq!(output["results"][0], json!([null, f64::MAX, f64::MIN]));
    assert_eq!(
        try_query(&json!({ "filter": "{(1): 2}" })).expect_err("refused").code,
        "filter-failed"
    );
    assert_eq!(query(&json!({ "filter": "1, halt, 2" }))["results"], json!([1]));
}

#[test]
fn only_one_source_is_taken() {
    let input = json!({ "filter": ".", "text": "1", "path": "x" });
    assert_eq!(call_in_nowhere(&input).code, "bad-input");
}

fn call_in_nowhere(input: &Value) -> Failure {
    let run = |input| call_in(Path::new("/nowhere"), &input);
    ringwall_tool_sdk::call_with_json(&input.to_string(), run).expect_err("refused")
}
