//! Command lines made from JSON.

use serde_json::json;

use super::*;

fn schema() -> Value {
    let names = ["pattern", "paths", "max", "quiet", "text"];
    let properties: Map<String, Value> =
        names.iter().map(|name| ((*name).to_owned(), json!({}))).collect();
    json!({ "properties": properties })
}

fn template(args: Value, stdin: Option<&str>) -> Template {
    let shape = json!({ "args": args, "stdin": stdin });
    Template::parse(&serde_json::from_value(shape).unwrap(), &schema()).unwrap()
}

fn line(args: Value, input: Value) -> Vec<String> {
    template(args, None).fill(&input).unwrap().0
}

fn refused(args: Value) -> (String, TemplateError) {
    let shape = serde_json::from_value(json!({ "args": args })).unwrap();
    Template::parse(&shape, &schema()).unwrap_err()
}

#[test]
fn values_take_their_place_as_one_argument_each() {
    let args = json!(["--json", "--max={max}", "--", "{pattern}"]);
    let input = json!({ "pattern": "a b; rm -rf $HOME", "max": 3 });
    assert_eq!(line(args, input), ["--json", "--max=3", "--", "a b; rm -rf $HOME"]);
}

#[test]
fn a_list_becomes_an_argument_for_each_item() {
    let args = json!(["{paths}", "--in={paths}"]);
    let input = json!({ "paths": ["a", "b c"] });
    assert_eq!(line(args.clone(), input), ["a", "b c", "--in=a", "--in=b c"]);
    assert!(line(args, json!({ "paths": [] })).is_empty());
}

#[test]
fn what_is_absent_or_null_takes_its_argument_and_its_group_with_it() {
    let args = json!(["--max={max}", ["-n", "{max}"], "{pattern}"]);
    assert_eq!(line(args.clone(), json!({ "pattern": "x" })), ["x"]);
    assert_eq!(line(args.clone(), json!({ "pattern": "x", "max": null })), ["x"]);
    assert_eq!(line(args, json!({ "pattern": "x", "max": 2 })), ["--max=2", "-n", "2", "x"]);
}

#[test]
fn a_condition_keeps_a_flag_or_drops_it() {
    let args = json!(["{?quiet}-q"]);
    assert_eq!(line(args.clone(), json!({ "quiet": true })), ["-q"]);
    assert!(line(args.clone(), json!({ "quiet": false })).is_empty());
    assert!(line(args, json!({})).is_empty());
}

#[test]
fn braces_can_be_written_and_the_whole_input_named() {
    assert_eq!(line(json!(["{{{max}}}"]), json!({ "max": 1 })), ["{1}"]);
    assert_eq!(line(json!(["{}"]), json!({ "max": 1 })), ["{\"max\":1}"]);
    assert_eq!(line(json!([""]), json!({})), [""]);
}

#[test]
fn standard_input_is_text_or_json() {
    let filled = |stdin, input| template(json!([]), Some(stdin)).fill(&input).unwrap().1;
    assert_eq!(filled("{text}", json!({ "text": "a\nb" })), b"a\nb");
    assert_eq!(filled("{paths}", json!({ "paths": ["a"] })), b"[\"a\"]");
    assert_eq!(filled("{}", json!([1])), b"[1]");
    assert_eq!(filled("{text}", json!({})), b"");
}

#[test]
fn names_that_the_schema_lacks_and_torn_braces_are_refused_where_they_are() {
    let (at, error) = refused(json!(["ok", "{nope}"]));
    assert_eq!(at, "/command/args/1");
    assert!(error.to_string().contains("\"nope\", which is no property"), "{error}");
    for torn in ["{max", "max}", "{"] {
        assert!(matches!(refused(json!([torn])).1, TemplateError::Brace(_)), "{torn}");
    }
}

#[test]
fn floods_and_nul_characters_do_not_become_arguments() {
    let flood = json!({ "paths": vec!["x"; MOST_ARGUMENTS + 1] });
    let told = template(json!(["{paths}"]), None).fill(&flood).unwrap_err();
    assert!(told.contains("at most 4096"), "{told}");
    assert!(template(json!(["{text}"]), None).fill(&json!({ "text": "a\0b" })).is_err());
}
