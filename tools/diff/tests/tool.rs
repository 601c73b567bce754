//! `diff` on texts, files and folders.
#![allow(clippy::expect_used, reason = "helpers of tests fail by panicking")]

use std::fs;
use std::path::Path;

use ringwall_tool_sdk::testing;
use tool_diff::{call, call_in};

fn diff(root: &Path, input: &str) -> serde_json::Value {
    let output = ringwall_tool_sdk::call_with_json(input, |input| call_in(root, input));
    serde_json::from_str(&output.expect("it succeeds")).expect("it is JSON")
}

#[test]
fn the_examples_give_what_the_manifest_says() {
    testing::check(env!("CARGO_MANIFEST_DIR"), call);
}

#[test]
fn folders_are_compared_file_by_file() {
    let root = tempfile::tempdir().expect("a folder");
    for (path, text) in [
        ("a/same", "x\n"),
        ("b/same", "x\n"),
        ("a/sub/changed", "1\n2"),
        ("b/sub/changed", "1\n3\n"),
        ("a/gone", "old\n"),
        ("b/come", "new\n"),
        ("a/binary", "\0"),
        ("b/binary", "\0\0"),
    ] {
        let path = root.path().join(path);
        fs::create_dir_all(path.parent().expect("a parent")).expect("made");
        fs::write(path, text).expect("written");
    }
    let output = diff(root.path(), r#"{"old_path":"a","new_path":"b"}"#);
    let files: Vec<(&str, &str)> = output["files"]
        .as_array()
        .expect("files")
        .iter()
        .map(|file| (file["path"].as_str().expect("text"), file["status"].as_str().expect("text")))
        .collect();
    assert_eq!(
        files,
        [("binary", "changed"), ("come", "added"), ("gone", "removed"), ("sub/changed", "changed")]
    );
    assert_eq!(
        output["unified"],
        "Binary files a/binary and b/binary differ\n\
         --- /dev/null\n+++ b/come\n@@ -0,0 +1 @@\n+new\n\
         --- a/gone\n+++ /dev/null\n@@ -1 +0,0 @@\n-old\n\
         --- a/sub/changed\n+++ b/sub/changed\n@@ -1,2 +1,2 @@\n 1\n-2\n\\ No newline at end of file\n+3\n"
    );
}

#[test]
fn a_file_is_compared_with_a_proposed_text() {
    let root = tempfile::tempdir().expect("a folder");
    fs::write(root.path().join("f.txt"), "a\nb\n").expect("written");
    let output = diff(root.path(), r#"{"old_path":"f.txt","new":"a\nc\n","context":0}"#);
    assert_eq!(output["unified"], "--- a/f.txt\n+++ b/f.txt\n@@ -2 +2 @@\n-b\n+c\n");
}

#[test]
fn whole_files_are_left_out_when_the_diff_is_too_long() {
    let root = tempfile::tempdir().expect("a folder");
    for side in ["a", "b"] {
        fs::create_dir(root.path().join(side)).expect("made");
        for name in ["1", "2", "3"] {
            fs::write(root.path().join(side).join(name), format!("{side}\n")).expect("written");
        }
    }
    let output = diff(root.path(), r#"{"old_path":"a","new_path":"b","max_bytes":80}"#);
    assert_eq!(output["truncated"], true);
    assert_eq!(output["files"].as_array().map(Vec::len), Some(3));
    assert_eq!(output["unified"].as_str().map(|text| text.matches("+++").count()), Some(2));
}

#[test]
fn both_a_text_and_a_path_for_one_side_are_refused() {
    let input = r#"{"old":"a","old_path":"b","new":"c"}"#;
    let failure = ringwall_tool_sdk::call_with_json(input, call).expect_err("refused");
    assert_eq!(failure.code, "bad-input");
    assert!(failure.message.contains("old_path"), "{failure}");
}
