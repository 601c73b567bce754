//! Tests every tool the same way: its examples run, and its page shows what the manifest says.
#![allow(clippy::expect_used, clippy::panic, reason = "a test that finds something panics")]

use std::fmt::Write as _;
use std::path::Path;
use std::{env, fs};

use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::{Failure, call_with_json};

/// In a page, what stands between these lines is made from the manifest.
const BEGIN: &str = "<!-- made from tool.json; RINGWALL_BLESS=1 cargo test writes it -->";
const END: &str = "<!-- end -->";

/// Runs the examples of the `tool.json` in `package` (give `env!("CARGO_MANIFEST_DIR")`): inputs
/// and outputs fit the schemas, and each input gives exactly its output. Then checks that the page
/// `docs/reference/tools/NAME.md`, where the repository has one, shows this manifest.
///
/// With `RINGWALL_BLESS=1` in the environment outputs and page are written instead.
pub fn check<Input: DeserializeOwned, Output: Serialize>(
    package: &str,
    call: impl Fn(Input) -> Result<Output, Failure>,
) {
    check_text(package, |input| call_with_json(&input, &call));
}

/// The same for a tool over JSON texts.
pub fn check_text(package: &str, call: impl Fn(String) -> Result<String, Failure>) {
    let path = Path::new(package).join("tool.json");
    let text = fs::read_to_string(&path).expect("tool.json is readable");
    let mut manifest: Value = serde_json::from_str(&text).expect("tool.json is JSON");
    let bless = env::var_os("RINGWALL_BLESS").is_some_and(|value| value == "1");

    let outputs = run_examples(&manifest, call);
    for (index, output) in outputs.into_iter().enumerate() {
        let example = &mut manifest["examples"][index];
        if !bless {
            assert_eq!(example["output"], output, "example {}", example["title"]);
        } else if example["output"] != output {
            panic!("example {} gives {output}; write that into tool.json", example["title"]);
        }
    }
    check_page(package, &manifest, bless);
}

fn run_examples(manifest: &Value, call: impl Fn(String) -> Result<String, Failure>) -> Vec<Value> {
    let input_schema = jsonschema::validator_for(&manifest["input"]).expect("a valid input schema");
    let output_schema =
        jsonschema::validator_for(&manifest["output"]).expect("a valid output schema");
    let examples = manifest["examples"].as_array().expect("a list of examples");
    assert!(!examples.is_empty(), "a tool shows at least one example");
    examples
        .iter()
        .map(|example| {
            let title = &example["title"];
            fits(&input_schema, &example["input"], &format!("input of example {title}"));
            let output = call(example["input"].to_string())
                .unwrap_or_else(|failure| panic!("example {title} failed: {failure}"));
            let output = serde_json::from_str(&output).expect("the output is JSON");
            fits(&output_schema, &output, &format!("output of example {title}"));
            output
        })
        .collect()
}

fn fits(schema: &jsonschema::Validator, value: &Value, what: &str) {
    let errors: Vec<String> = schema
        .iter_errors(value)
        .map(|error| format!("{}: {error}", error.instance_path))
        .collect();
    assert!(errors.is_empty(), "{what} does not fit its schema:\n  {}", errors.join("\n  "));
}

fn check_page(package: &str, manifest: &Value, bless: bool) {
    let name = manifest["name"].as_str().expect("the manifest has a name");
    let page = Path::new(package).join("../../docs/reference/tools").join(format!("{name}.md"));
    // A tool outside this repository has no page here.
    let Ok(text) = fs::read_to_string(&page) else { return };
    let (before, rest) = text.split_once(BEGIN).expect("the page has a place for the reference");
    let (shown, after) = rest.split_once(END).expect("the reference in the page ends");
    let expected = reference(manifest);
    if bless {
        fs::write(&page, format!("{before}{BEGIN}{expected}{END}{after}")).expect("writable");
    } else {
        assert_eq!(shown, expected, "{}: run RINGWALL_BLESS=1 cargo test", page.display());
    }
}

/// What a page says of the manifest: capabilities, input, output, examples.
fn reference(manifest: &Value) -> String {
    let mut text = String::from("\n\n## What it may use\n\n");
    let dirs = manifest["wants"]["dirs"].as_array().cloned().unwrap_or_default();
    if dirs.is_empty() {
        text += "No files.";
    }
    for dir in &dirs {
        let access = if dir["access"] == "rw" { "read and write" } else { "read" };
        let need = if dir["optional"] == true { "optional" } else { "needed" };
        let _ =
            write!(text, "`{}` ({access}, {need}): {}.", plain(&dir["path"]), plain(&dir["why"]));
    }
    let _ = writeln!(
        text,
        " No network, no environment. Risk class `{}`, determinism `{}`.",
        plain(&manifest["risk"]),
        plain(&manifest["determinism"]),
    );
    for (title, key) in [("Input", "input"), ("Output", "output")] {
        let _ = write!(text, "\n## {title}\n\n");
        let mut rows = Vec::new();
        describe("", &manifest[key], &mut rows);
        if rows.is_empty() {
            text += "Any JSON value.\n";
        } else {
            text += "| field | type | meaning |\n|---|---|---|\n";
            text.extend(rows);
        }
    }
    text += "\n## Examples\n";
    for example in manifest["examples"].as_array().into_iter().flatten() {
        let pretty = |key: &str| format!("{:#}", example[key]);
        let _ = write!(
            text,
            "\n{}:\n\n```json\n{}\n```\n\ngives\n\n```json\n{}\n```\n",
            plain(&example["title"]),
            pretty("input"),
            pretty("output"),
        );
    }
    text + "\n"
}

/// One table row for each property, nested ones with their whole path: `matches[].line`.
fn describe(prefix: &str, schema: &Value, rows: &mut Vec<String>) {
    let required = schema["required"].as_array().cloned().unwrap_or_default();
    for (name, property) in schema["properties"].as_object().into_iter().flatten() {
        let path = format!("{prefix}{name}");
        let needed = required.iter().any(|required| required == name);
        let mut meaning = plain(&property["description"]).to_owned();
        if let Some(default) = property.get("default") {
            let _ = write!(meaning, " (default `{default}`)");
        }
        let mark = if needed { "" } else { "?" };
        rows.push(format!("| `{path}{mark}` | {} | {} |\n", type_of(property), meaning.trim()));
        describe(&format!("{path}."), property, rows);
        describe(&format!("{path}[]."), &property["items"], rows);
        describe(&format!("{path}.*."), &property["additionalProperties"], rows);
    }
    for (index, choice) in schema["oneOf"].as_array().into_iter().flatten().enumerate() {
        if prefix.is_empty() && choice.get("properties").is_some() {
            rows.push(format!("| *form {}* | | {} |\n", index + 1, plain(&choice["title"])));
            describe(prefix, choice, rows);
        }
    }
}

fn type_of(schema: &Value) -> String {
    if let Some(values) = schema["enum"].as_array() {
        let values: Vec<String> = values.iter().map(|value| format!("`{value}`")).collect();
        return values.join(", ");
    }
    let name = match &schema["type"] {
        Value::String(name) => name.clone(),
        Value::Array(names) => names.iter().map(plain).collect::<Vec<_>>().join(" or "),
        _ => "any".to_owned(),
    };
    if name == "array" { format!("array of {}", type_of(&schema["items"])) } else { name }
}

fn plain(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}
