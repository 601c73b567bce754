//! `grep` on texts and on a folder with ignore files, binaries and long lines.
#![allow(clippy::expect_used, reason = "helpers of tests fail by panicking")]

use std::fs;
use std::path::Path;

use ringwall_tool_sdk::{Failure, testing};
use serde_json::{Value, json};
use tempfile::TempDir;
use tool_grep::call_in;

const APP: &str = "def greet(name):\n    return f\"Hello, {name}\"\n\n\nprint(greet(\"you\"))\n";

fn project() -> TempDir {
    let folder = tempfile::tempdir().expect("a folder");
    for (path, bytes) in [
        ("README.md", "# app\n\nPrints a name.\n".as_bytes()),
        ("src/app.py", APP.as_bytes()),
        (".gitignore", b"target/\n"),
        ("target/out.py", b"def greet(): pass\n"),
        (".secret.py", b"greet = 1\n"),
        ("picture", b"greet\0\x01\x02"),
    ] {
        let path = folder.path().join(path);
        fs::create_dir_all(path.parent().expect("a parent")).expect("made");
        fs::write(path, bytes).expect("written");
    }
    folder
}

fn try_grep(root: &Path, input: &Value) -> Result<Value, Failure> {
    let output =
        ringwall_tool_sdk::call_with_json(&input.to_string(), |input| call_in(root, &input))?;
    Ok(serde_json::from_str(&output).expect("it is JSON"))
}

fn grep(root: &Path, input: &Value) -> Value {
    try_grep(root, input).expect("it answers")
}

fn paths(output: &Value) -> Vec<&str> {
    let files = output["files"].as_array().expect("files");
    files.iter().map(|file| file["path"].as_str().expect("a path")).collect()
}

#[test]
fn the_examples_give_what_the_manifest_says() {
    let project = project();
    fs::remove_file(project.path().join("picture")).expect("removed");
    testing::check(env!("CARGO_MANIFEST_DIR"), |input| call_in(project.path(), &input));
}

#[test]
fn ignored_hidden_and_binary_files_are_left_out() {
    let project = project();
    let output = grep(project.path(), &json!({ "pattern": "greet", "mode": "files" }));
    assert_eq!(paths(&output), ["src/app.py"]);
    assert_eq!(output["binary_skipped"], 1);
    let all = json!({ "pattern": "greet", "mode": "files", "hidden": true, "gitignore": false });
    let output = grep(project.path(), &all);
    assert_eq!(paths(&output), [".secret.py", "src/app.py", "target/out.py"]);
}

#[test]
fn globs_choose_and_leave_out() {
    let project = project();
    let with = |globs: &[&str]| {
        let input = json!({ "pattern": ".", "mode": "files", "globs": globs });
        paths(&grep(project.path(), &input))
            .iter()
            .map(|path| (*path).to_owned())
            .collect::<Vec<_>>()
    };
    assert_eq!(with(&["*.md"]), ["README.md"]);
    assert_eq!(with(&["!*.md", "!picture"]), ["src/app.py"]);
    assert_eq!(with(&["src/**"]), ["src/app.py"]);
}

#[test]
fn types_choose_by_language() {
    let project = project();
    let input = json!({ "pattern": ".", "mode": "files", "types": ["py"] });
    assert_eq!(paths(&grep(project.path(), &input)), ["src/app.py"]);
    let unknown = json!({ "pattern": ".", "types": ["klingon"] });
    assert_eq!(try_grep(project.path(), &unknown).expect_err("refused").code, "bad-input");
}

#[test]
fn results_end_where_the_budget_does() {
    let text = "x\n".repeat(1_000);
    let few = grep(Path::new("."), &json!({ "pattern": "x", "text": text, "max_results": 3 }));
    assert_eq!((&few["matches"], &few["truncated"]), (&json!(3), &json!(true)));
    let exactly = json!({ "pattern": "x", "text": "x\nx\n", "max_results": 2 });
    assert_eq!(grep(Path::new("."), &exactly)["truncated"], false);
}

#[test]
fn long_lines_are_cut_round_the_match() {
    let text = format!("{}é needle {}", "é".repeat(5_000), "b".repeat(5_000));
    let output = grep(Path::new("."), &json!({ "pattern": "needle", "text": text }));
    let line = &output["files"][0]["lines"][0];
    assert_eq!((&line["cut"], &line["column"]), (&json!(true), &json!(5_003)));
    let shown = line["text"].as_str().expect("a text");
    assert!(shown.contains("needle") && shown.len() <= 1_000);
}

#[test]
fn matches_may_span_lines_when_asked() {
    let text = "a(\n  b,\n)\n";
    let input = json!({ "pattern": r"a\([^)]*\)", "text": text, "multiline": true });
    assert_eq!(grep(Path::new("."), &input)["files"][0]["lines"][0]["text"], "a(\n  b,\n)");
    let single = json!({ "pattern": r"a\([^)]*\)", "text": text });
    assert_eq!(grep(Path::new("."), &single)["matches"], 0);
}

#[test]
fn the_ways_to_match_do_what_they_say() {
    let text = "Foo\nfoobar\nfo.o\n";
    let count = |more: Value| {
        let mut input = json!({ "text": text });
        let fields = input.as_object_mut().expect("an object");
        fields.extend(more.as_object().expect("an object").clone());
        grep(Path::new("."), &input)["matches"].clone()
    };
    assert_eq!(count(json!({ "pattern": "foo" })), 2);
    assert_eq!(count(json!({ "pattern": "Foo" })), 1);
    assert_eq!(count(json!({ "pattern": "FOO", "case": "insensitive" })), 2);
    assert_eq!(count(json!({ "pattern": "foo", "word": true })), 1);
    assert_eq!(count(json!({ "pattern": "o.o", "literal": true })), 1);
    let letters = |ascii: bool| {
        let input = json!({ "text": "é\n", "pattern": r"^\w$", "ascii": ascii });
        grep(Path::new("."), &input)["matches"].clone()
    };
    assert_eq!((letters(false), letters(true)), (json!(1), json!(0)));
    assert_eq!(count(json!({ "pattern": "foo", "invert": true })), 1);
    assert_eq!(count(json!({ "pattern": "o", "max_per_file": 2 })), 2);
}

#[test]
fn a_bad_pattern_and_a_path_outside_are_refused() {
    let refused = |input: Value| try_grep(project().path(), &input).expect_err("refused");
    let pattern = refused(json!({ "pattern": "a(", "text": "" }));
    assert_eq!(pattern.code, "bad-input");
    assert!(pattern.message.contains("literal"), "{pattern}");
    let outside = refused(json!({ "pattern": "a", "paths": ["../x"] }));
    assert_eq!(outside.code, "bad-input");
    assert_eq!(refused(json!({ "pattern": "a", "paths": ["gone"] })).code, "not-found");
}

#[test]
fn letters_of_all_scripts_are_letters_unless_only_ascii_counts() {
    let project = project();
    fs::write(project.path().join("greek.txt"), "\u{3b1}\u{3b2} = 1\n").expect("written");
    let found = |input: Value| grep(project.path(), &input)["matches"].as_u64();
    let in_greek = |pattern: &str, ascii: bool| {
        found(json!({ "pattern": pattern, "globs": ["greek.txt"], "ascii": ascii }))
    };
    assert_eq!(in_greek("^\\w+ =", false), Some(1));
    assert_eq!(in_greek("^\\w+ =", true), Some(0));
    assert_eq!(in_greek("\\p{Greek}", false), Some(1));
    // The same pattern on texts of both kinds, in one search.
    assert_eq!(found(json!({ "pattern": "^\\w+ [=g]", "globs": ["*.txt", "*.py"] })), Some(2));
    let text = |pattern: &str, text: &str| found(json!({ "pattern": pattern, "text": text }));
    assert_eq!(text("\\w", "\u{3b1}"), Some(1));
    // The sign for kelvin is a k, whatever its case.
    assert_eq!(text("(?i)k", "\u{212a}"), Some(1));
    assert_eq!(text("(?i)\\x{212a}", "k"), Some(1));
    assert_eq!(text("[^\\p{Latin}]", "abc"), Some(0));
    assert!(try_grep(project.path(), &json!({ "pattern": "(", "text": "" })).is_err());
}
