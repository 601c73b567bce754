//! From JSON to a request, and from what came back to an output.

use serde_json::{Value, json};

use super::*;
use crate::testing::{manifest, manifest_with};

const DIGEST: ToolDigest = ToolDigest([7; 32]);

fn tool_of(kind: ToolKind, manifest: &Value) -> Result<Tool, ManifestError> {
    Tool::new(DIGEST, kind, Manifest::parse(manifest.to_string().as_bytes())?)
}

fn tool() -> Tool {
    tool_of(ToolKind::Component, &manifest()).unwrap()
}

fn command(stdout: &str) -> Tool {
    let mut manifest = manifest_with("/kind", json!("command"));
    manifest["command"] = json!({ "args": ["--most={most}"], "stdin": "{text}", "stdout": stdout });
    if stdout == "text" {
        manifest["output"] = json!({ "required": ["stdout", "stderr", "exit_code"] });
        manifest["examples"] = json!([]);
    }
    tool_of(ToolKind::CommandModule, &manifest).unwrap()
}

fn failure(result: Result<Value, Failure>) -> (String, String) {
    let failure = result.unwrap_err();
    (failure.code, failure.message)
}

#[test]
fn input_that_fits_goes_to_the_tool() {
    let request = tool().request(br#" {"text": "a b", "most": 3} "#).unwrap();
    assert_eq!(request, Request::Component { json: br#"{"text":"a b","most":3}"#.to_vec() });
}

#[test]
fn what_was_checked_is_what_the_tool_gets() {
    let twice = br#"{"text": 1, "text": "b"}"#;
    let request = tool().request(twice).unwrap();
    assert_eq!(request, Request::Component { json: br#"{"text":"b"}"#.to_vec() });
}

#[test]
fn input_that_does_not_fit_is_refused_with_its_place() {
    let told = |input: &[u8]| tool().request(input).unwrap_err().to_string();
    assert_eq!(
        told(b"{\"text\": 1}"),
        "bad-input: the input is wrong at /text: expected string, found number"
    );
    assert!(told(b"{").starts_with("bad-input: the input is no JSON: EOF"), "{}", told(b"{"));
}

#[test]
fn a_program_gets_arguments_and_standard_input() {
    let request = command("json").request(br#"{"text": "a b", "most": 3}"#).unwrap();
    let expected = Request::Command { args: vec!["--most=3".to_owned()], stdin: b"a b".to_vec() };
    assert_eq!(request, expected);
}

#[test]
fn output_is_held_against_its_schema() {
    let returned = |output: &[u8]| tool().result(&ToolStatus::Returned, output, b"");
    assert_eq!(returned(b"{\"words\": 2}"), Ok(json!({ "words": 2 })));
    let (code, message) = failure(returned(b"{\"words\": \"2\"}"));
    assert_eq!(code, "bad-output");
    assert!(message.contains("at /words: expected integer, found string"), "{message}");
    assert_eq!(failure(returned(b"words")).0, "bad-output");
}

#[test]
fn a_program_that_prints_json_fails_with_its_exit_code() {
    let exited = |code, output: &[u8]| {
        command("json").result(&ToolStatus::Exited { code }, output, b"no such file\n")
    };
    assert_eq!(exited(0, b"{\"words\": 2}"), Ok(json!({ "words": 2 })));
    let (code, message) = failure(exited(2, b""));
    assert_eq!((code.as_str(), message.as_str()), ("exit", "exit code 2: no such file"));
}

#[test]
fn a_program_that_prints_text_gives_all_it_printed() {
    let output = command("text").result(&ToolStatus::Exited { code: 1 }, b"out\xff", b"err");
    let expected = json!({ "stdout": "out\u{fffd}", "stderr": "err", "exit_code": 1 });
    assert_eq!(output, Ok(expected));
}

#[test]
fn every_other_end_has_a_code() {
    let ended = |status| failure(tool().result(&status, b"", b"")).0;
    assert_eq!(ended(ToolStatus::Timeout), "timeout");
    assert_eq!(ended(ToolStatus::OutOfFuel), "limit");
    assert_eq!(ended(ToolStatus::MemoryLimit), "limit");
    assert_eq!(ended(ToolStatus::Trapped { reason: "unreachable".to_owned() }), "trapped");
    assert_eq!(ended(ToolStatus::Denied { what: "http".to_owned() }), "denied");
    let own = |code: &str| {
        ended(ToolStatus::Failed { code: code.to_owned(), message: "m".repeat(1 << 20) })
    };
    assert_eq!(own("not-found"), "not-found");
    assert_eq!(own("\u{1b}[2J"), "failed");
}

#[test]
fn file_and_manifest_must_be_of_one_kind() {
    let told = tool_of(ToolKind::CommandModule, &manifest()).unwrap_err().to_string();
    assert!(told.contains("wrong at /kind: the file is a command"), "{told}");
}

#[test]
fn schemas_and_templates_are_told_by_their_place_in_the_manifest() {
    let told = |place: &str, value: Value| {
        tool_of(ToolKind::Component, &manifest_with(place, value)).unwrap_err().to_string()
    };
    assert!(told("/input/type", json!("objct")).contains("wrong at /input/type"));
    assert!(told("/output/$ref", json!("#/x")).contains("wrong at /output/$ref"));
    let mut command = manifest_with("/kind", json!("command"));
    command["command"] = json!({ "args": ["{nope}"] });
    let told = tool_of(ToolKind::CommandModule, &command).unwrap_err().to_string();
    assert!(told.contains("wrong at /command/args/0"), "{told}");
}

#[test]
fn examples_must_fit_the_schemas() {
    assert!(tool().check_examples().is_ok());
    let wrong = manifest_with("/examples/0/output/words", json!("two"));
    let tool = tool_of(ToolKind::Component, &wrong).unwrap();
    let told = tool.check_examples().unwrap_err().to_string();
    assert!(told.contains("/examples/0/output") && told.contains("at /words"), "{told}");
}

mod any {
    //! Whatever a tool says of itself or returns, the answer is an error or a value.

    use proptest::prelude::*;

    use super::*;

    /// Places of a manifest that hold something to be parsed.
    const PLACES: [&str; 12] = [
        "/schema",
        "/name",
        "/version",
        "/kind",
        "/summary",
        "/input",
        "/output",
        "/wants",
        "/wants/dirs",
        "/limits",
        "/command",
        "/examples",
    ];

    fn any_value() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            Just(Value::Null),
            any::<bool>().prop_map(Value::from),
            any::<f64>().prop_map(Value::from),
            "\\PC{0,12}".prop_map(Value::from),
            "[{}?a-z]{0,8}".prop_map(Value::from),
        ];
        let name = prop_oneof!["[a-z]{1,4}", Just("args".to_owned()), Just("path".to_owned())];
        leaf.prop_recursive(3, 24, 4, move |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
                prop::collection::vec((name.clone(), inner), 0..4)
                    .prop_map(|entries| Value::Object(entries.into_iter().collect())),
            ]
        })
    }

    proptest! {
        #[test]
        fn manifest(place in prop::sample::select(&PLACES[..]), value in any_value()) {
            if let Ok(tool) = tool_of(ToolKind::Component, &manifest_with(place, value)) {
                let _ = tool.check_examples();
            }
        }

        #[test]
        fn template(args in prop::collection::vec("[{}?a-z]{0,8}", 0..4), input in any_value()) {
            let mut manifest = manifest_with("/kind", json!("command"));
            manifest["input"] = json!({ "properties": { "a": {}, "b": {} } });
            manifest["command"] = json!({ "args": args });
            if let Ok(tool) = tool_of(ToolKind::CommandModule, &manifest) {
                let _ = tool.request(input.to_string().as_bytes());
            }
        }

        #[test]
        fn output(bytes in prop::collection::vec(any::<u8>(), 0..64)) {
            let _ = tool().result(&ToolStatus::Returned, &bytes, b"");
            let _ = command("text").result(&ToolStatus::Exited { code: 1 }, &bytes, &bytes);
        }
    }
}

#[test]
fn only_a_plain_true_at_the_top_asks_for_the_strict_mode() {
    assert!(asks_strict(br#"{"script": "1", "strict": true}"#));
    for input in [
        r#"{"strict": false}"#,
        r#"{"strict": "true"}"#,
        r#"{"strict": 1}"#,
        r#"{"input": {"strict": true}}"#,
        r#"{"strict": true, "strict": false}"#,
        r#"[true]"#,
        "{}",
        "",
    ] {
        assert!(!asks_strict(input.as_bytes()), "{input}");
    }
}
