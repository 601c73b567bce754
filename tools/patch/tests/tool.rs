//! `patch` on real folders: what it changes, what it refuses.
#![allow(clippy::expect_used, reason = "helpers of tests fail by panicking")]

use std::fs;
use std::path::Path;

use ringwall_tool_sdk::{Failure, testing};
use serde_json::{Value, json};
use tempfile::TempDir;
use tool_patch::{call, call_in};

fn folder(files: &[(&str, &str)]) -> TempDir {
    let folder = tempfile::tempdir().expect("a folder");
    for (path, text) in files {
        let path = folder.path().join(path);
        fs::create_dir_all(path.parent().expect("a parent")).expect("made");
        fs::write(path, text).expect("written");
    }
    folder
}

fn try_patch(root: &Path, input: &Value) -> Result<Value, Failure> {
    let output =
        ringwall_tool_sdk::call_with_json(&input.to_string(), |input| call_in(root, input))?;
    Ok(serde_json::from_str(&output).expect("it is JSON"))
}

fn patch(root: &Path, input: &Value) -> Value {
    try_patch(root, input).expect("it answers")
}

fn read(root: &TempDir, path: &str) -> String {
    fs::read_to_string(root.path().join(path)).expect("readable")
}

fn reasons(output: &Value) -> Vec<&str> {
    let conflicts = output["conflicts"].as_array().expect("conflicts");
    conflicts.iter().map(|conflict| conflict["reason"].as_str().expect("a reason")).collect()
}

#[test]
fn the_examples_give_what_the_manifest_says() {
    testing::check(env!("CARGO_MANIFEST_DIR"), call);
}

const MANY: &str = "\
diff --git a/changed b/changed
index 1..2 100644
--- a/changed
+++ b/changed
@@ -1,3 +1,3 @@
 a
-b
+B
 c
diff --git a/new/file b/new/file
new file mode 100644
--- /dev/null
+++ b/new/file
@@ -0,0 +1,2 @@
+x
+y
\\ No newline at end of file
diff --git a/gone b/gone
deleted file mode 100644
--- a/gone
+++ /dev/null
@@ -1 +0,0 @@
-bye
diff --git a/before b/after
similarity index 90%
rename from before
rename to after
";

#[test]
fn changes_creates_deletes_and_renames_files() {
    let root = folder(&[("changed", "a\nb\nc\n"), ("gone", "bye\n"), ("before", "same\n")]);
    let output = patch(root.path(), &json!({ "patch": MANY }));
    assert_eq!(output["applied"], true, "{output:#}");
    let actions: Vec<&str> = output["files"]
        .as_array()
        .expect("files")
        .iter()
        .map(|file| file["action"].as_str().expect("an action"))
        .collect();
    assert_eq!(actions, ["modified", "created", "deleted", "renamed"]);
    assert_eq!(read(&root, "changed"), "a\nB\nc\n");
    assert_eq!(read(&root, "new/file"), "x\ny");
    assert_eq!(read(&root, "after"), "same\n");
    assert!(!root.path().join("gone").exists() && !root.path().join("before").exists());

    let back = patch(root.path(), &json!({ "patch": MANY, "reverse": true }));
    assert_eq!(back["applied"], true, "{back:#}");
    assert_eq!(read(&root, "changed"), "a\nb\nc\n");
    assert_eq!(read(&root, "gone"), "bye\n");
    assert!(!root.path().join("new/file").exists());
}

#[test]
fn nothing_is_written_when_one_file_does_not_fit() {
    let root = folder(&[("changed", "a\nb\nc\n"), ("before", "same\n")]);
    let output = patch(root.path(), &json!({ "patch": MANY }));
    assert_eq!(output["applied"], false);
    assert_eq!(reasons(&output), ["missing-file"]);
    assert_eq!(read(&root, "changed"), "a\nb\nc\n");

    let output = patch(root.path(), &json!({ "patch": MANY, "partial": true }));
    assert_eq!(output["applied"], true);
    assert_eq!(read(&root, "changed"), "a\nB\nc\n");
}

#[test]
fn a_dry_run_reports_and_writes_nothing() {
    let root = folder(&[("changed", "a\nb\nc\n"), ("gone", "bye\n"), ("before", "same\n")]);
    let output = patch(root.path(), &json!({ "patch": MANY, "dry_run": true }));
    assert_eq!((&output["applied"], &output["dry_run"]), (&json!(true), &json!(true)));
    assert_eq!(read(&root, "changed"), "a\nb\nc\n");
    assert!(root.path().join("gone").exists() && !root.path().join("new").exists());
}

#[test]
fn names_that_leave_the_folder_are_refused() {
    let outer = folder(&[("secret", "a\n"), ("inner/x", "a\n")]);
    let root = outer.path().join("inner");
    for name in ["../secret", "/etc/passwd", "x/../../secret", "b/../../secret"] {
        let text = format!("--- {name}\n+++ {name}\n@@ -1 +1 @@\n-a\n+b\n");
        let failure = try_patch(&root, &json!({ "patch": text })).expect_err(name);
        assert_eq!(failure.code, "bad-input", "{name}");
        assert!(failure.message.contains("leaves the granted directory"), "{failure}");
    }
    assert_eq!(read(&outer, "secret"), "a\n");
}

#[test]
fn symbolic_links_are_refused() {
    let root = folder(&[("file", "a\n")]);
    std::os::unix::fs::symlink("file", root.path().join("link")).expect("made");
    let text = "--- link\n+++ link\n@@ -1 +1 @@\n-a\n+b\n";
    let failure = try_patch(root.path(), &json!({ "patch": text })).expect_err("refused");
    assert!(failure.message.contains("symbolic link"), "{failure}");
}

#[test]
fn fuzz_passes_over_context_but_never_over_removed_lines() {
    let text = "x\nb\nc\nOLD\nd\ne\ny\n";
    let hunk = "--- f\n+++ f\n@@ -1,7 +1,7 @@\n a\n b\n c\n-OLD\n+NEW\n d\n e\n f\n";
    let apply = |fuzz: usize, text: &str| {
        patch(Path::new("."), &json!({ "text": text, "patch": hunk, "fuzz": fuzz }))
    };
    assert_eq!(reasons(&apply(0, text)), ["not-found"]);
    let fuzzy = apply(1, text);
    assert_eq!(fuzzy["text"], "x\nb\nc\nNEW\nd\ne\ny\n");
    assert_eq!(fuzzy["files"][0]["hunks"][0]["fuzz"], 1);
    assert_eq!(reasons(&apply(3, "x\nb\nc\nOTHER\nd\ne\ny\n")), ["not-found"]);
}

#[test]
fn later_hunks_follow_the_drift_of_earlier_ones() {
    let text: String = (0..100).map(|_| "same\n").collect::<String>() + "end\n";
    let moved = format!("new\nnew\n{text}");
    let hunks = "--- f\n+++ f\n@@ -101 +101,2 @@\n end\n+END\n";
    let output = patch(Path::new("."), &json!({ "text": moved, "patch": hunks }));
    assert_eq!(output["files"][0]["hunks"][0]["offset"], 2);
    // Two hunks in identical lines: only counting on from the first finds the right place.
    let twice =
        "--- f\n+++ f\n@@ -1,2 +1,3 @@\n same\n+x\n same\n@@ -50,2 +51,3 @@\n same\n+y\n same\n";
    let output = patch(Path::new("."), &json!({ "text": text, "patch": twice }));
    let lines: Vec<&str> = output["text"].as_str().expect("a text").lines().collect();
    assert_eq!((lines[1], lines[51]), ("x", "y"));
}

#[test]
fn a_hunk_without_numbers_must_fit_exactly_one_place() {
    let hunk = "--- f\n+++ f\n@@\n a\n-b\n+B\n";
    let once = patch(Path::new("."), &json!({ "text": "x\na\nb\n", "patch": hunk }));
    assert_eq!(once["text"], "x\na\nB\n");
    let twice = patch(Path::new("."), &json!({ "text": "a\nb\na\nb\n", "patch": hunk }));
    assert_eq!(reasons(&twice), ["ambiguous"]);
}

#[test]
fn miscounted_headers_are_understood() {
    let hunk = "--- f\n+++ f\n@@ -1,9 +1,1 @@\n a\n-b\n+B\n\n c\n";
    let output = patch(Path::new("."), &json!({ "text": "a\nb\n\nc\n", "patch": hunk }));
    assert_eq!(output["text"], "a\nB\n\nc\n");
}

#[test]
fn a_removed_line_that_looks_like_a_header_is_a_line() {
    let hunk = "--- f\n+++ f\n@@ -1,2 +1,2 @@\n--- x\n+++ y\n a\n";
    let output = patch(Path::new("."), &json!({ "text": "-- x\na\n", "patch": hunk }));
    assert_eq!(output["text"], "++ y\na\n");
}

#[test]
fn a_change_that_is_there_already_is_said_to_be() {
    let hunk = "--- f\n+++ f\n@@ -1,2 +1,2 @@\n a\n-b\n+B\n";
    let output = patch(Path::new("."), &json!({ "text": "a\nB\n", "patch": hunk }));
    assert_eq!(reasons(&output), ["already-applied"]);
    assert_eq!(output["applied"], false);
}

#[test]
fn windows_line_ends_stay() {
    let hunk = "--- f\n+++ f\n@@ -1,2 +1,3 @@\n a\n-b\n+B\n+C\n";
    let output = patch(Path::new("."), &json!({ "text": "a\r\nb\r\n", "patch": hunk }));
    assert_eq!(output["text"], "a\r\nB\r\nC\r\n");
}

#[test]
fn a_file_that_the_patch_creates_must_not_be_there() {
    let root = folder(&[("f", "mine\n")]);
    let text = "--- /dev/null\n+++ f\n@@ -0,0 +1 @@\n+x\n";
    assert_eq!(reasons(&patch(root.path(), &json!({ "patch": text }))), ["file-exists"]);
    assert_eq!(read(&root, "f"), "mine\n");
}

#[test]
fn a_patch_without_files_is_refused() {
    for text in ["", "hello\n", "@@ -1 +1 @@\n-a\n+b\n", "Binary files a/x and b/x differ\n"] {
        let failure = try_patch(Path::new("."), &json!({ "patch": text })).expect_err(text);
        assert_eq!(failure.code, "bad-input");
    }
}

#[test]
fn what_diff_finds_patch_brings_about() {
    // Small texts over few letters: many equal lines, so many wrong places to choose from.
    let mut seed = 7u32;
    let mut random = |below: u32| {
        seed = seed.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (seed >> 16) % below
    };
    for _ in 0..2_000 {
        let mut text = |lines: u32| -> String {
            let count = random(lines);
            let mut text: String = (0..count).map(|_| format!("{}\n", random(4))).collect();
            if random(3) == 0 {
                text.pop();
            }
            text
        };
        let (old, new) = (text(30), text(30));
        let input = json!({ "old": old, "new": new }).to_string();
        let diff = ringwall_tool_sdk::call_with_json(&input, tool_diff::call).expect("a diff");
        let diff: Value = serde_json::from_str(&diff).expect("JSON");
        if diff["equal"] == true {
            continue;
        }
        let output = patch(Path::new("."), &json!({ "text": old, "patch": diff["unified"] }));
        assert_eq!(output["text"], new, "{old:?} {diff:#} {output:#}");
    }
}
