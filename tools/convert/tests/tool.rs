//! `convert`: every pair of formats, and what cannot be converted.
#![allow(clippy::expect_used, reason = "helpers of tests fail by panicking")]

use std::fs;

use ringwall_tool_sdk::{Failure, testing};
use serde_json::{Value, json};
use tool_convert::{call, call_in};

fn try_convert(from: &str, to: &str, text: &str) -> Result<Value, Failure> {
    let input = json!({ "from": from, "to": to, "text": text }).to_string();
    let output = ringwall_tool_sdk::call_with_json(&input, call)?;
    Ok(serde_json::from_str(&output).expect("it is JSON"))
}

fn text(from: &str, to: &str, text: &str) -> String {
    let output = try_convert(from, to, text).expect("it answers");
    output["text"].as_str().expect("a text").to_owned()
}

#[test]
fn the_examples_give_what_the_manifest_says() {
    testing::check(env!("CARGO_MANIFEST_DIR"), call);
}

#[test]
fn a_document_comes_back_the_same_through_every_format() {
    let document = json!({
        "z last": "first", "a": [1, -2, 2.5, true, "x: y # z", "", "no", "1e3", "0x1f", "~"],
        "nested": { "list of tables": [{ "k": "line 1\nline 2\n" }, { "k": "ünïcode \u{1f980}" }] },
        "quoted": "it's \"so\"", "empty": {}, "none": [], "big": i64::MAX, "tab": "\t",
    });
    let source = document.to_string();
    for (via, also) in [("yaml", "toml"), ("toml", "yaml"), ("json", "yaml"), ("yaml", "json")] {
        let back = text(also, "json", &text(via, also, &text("json", via, &source)));
        let back: Value = serde_json::from_str(&back).expect("JSON");
        assert_eq!(back, document, "through {via} and {also}");
    }
}

#[test]
fn keys_keep_their_order() {
    let yaml = text("json", "yaml", r#"{"z":1,"a":2}"#);
    assert!(yaml.find('z') < yaml.find('a'), "{yaml}");
    assert!(text("yaml", "json", &yaml).starts_with("{\n  \"z\""));
}

#[test]
fn nulls_are_refused_for_toml_with_their_path_or_dropped() {
    let source = r#"{"a": {"b/c": [1, null]}}"#;
    let failure = try_convert("json", "toml", source).expect_err("refused");
    assert_eq!(failure.code, "conflict");
    assert!(failure.message.starts_with("/a/b~1c/1: "), "{failure}");
    let input = json!({ "from": "json", "to": "toml", "text": source, "nulls": "drop" });
    let output = ringwall_tool_sdk::call_with_json(&input.to_string(), call).expect("it answers");
    assert!(output.contains("the null at /a/b~1c/1"), "{output}");
}

#[test]
fn malformed_documents_are_refused_with_the_place() {
    for (from, source, place) in [
        ("json", "{\"a\":\n}", "line 2"),
        ("toml", "a = 1\nb = \n", "line 2"),
        ("yaml", "a: 1\nb: [1\n", "line"),
        ("yaml", "a: 1\na: 2\n", "a"),
    ] {
        let failure = try_convert(from, "json", source).expect_err(source);
        assert_eq!(failure.code, "bad-input");
        assert!(failure.message.contains(place), "{failure}");
    }
}

#[test]
fn what_a_format_cannot_hold_is_refused() {
    assert_eq!(try_convert("json", "toml", "[1]").expect_err("refused").code, "conflict");
    assert_eq!(try_convert("toml", "json", "a = nan").expect_err("refused").code, "conflict");
    let large = format!("{{\"a\": {}}}", u64::MAX);
    assert_eq!(try_convert("json", "toml", &large).expect_err("refused").code, "conflict");
}

#[test]
fn yaml_bombs_are_refused() {
    let mut bomb = "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n".to_owned();
    for level in 1..12 {
        let refer = vec![format!("*a{}", level - 1); 10].join(", ");
        bomb += &format!("a{level}: &a{level} [{refer}]\n");
    }
    assert_eq!(try_convert("yaml", "json", &bomb).expect_err("refused").code, "bad-input");
}

#[test]
fn yaml_streams_become_lists() {
    let output = try_convert("yaml", "json", "a: 1\n---\nb: 2\n").expect("it answers");
    let value: Value = serde_json::from_str(output["text"].as_str().expect("text")).expect("JSON");
    assert_eq!(value, json!([{ "a": 1 }, { "b": 2 }]));
    assert_eq!(output["lost"].as_array().map(Vec::len), Some(1));
}

#[test]
fn the_format_of_a_file_is_known_from_its_name() {
    let folder = tempfile::tempdir().expect("a folder");
    fs::write(folder.path().join("a.yml"), "a: 1\n").expect("written");
    let input = json!({ "path": "a.yml", "to": "json" }).to_string();
    let run = |input| call_in(folder.path(), input);
    let output = ringwall_tool_sdk::call_with_json(&input, run).expect("it answers");
    assert!(output.contains("\"from\":\"yaml\""), "{output}");
}
