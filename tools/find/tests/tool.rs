//! `find` on a folder with ignore files, links and files of known time.
#![allow(clippy::expect_used, reason = "helpers of tests fail by panicking")]

use std::fs::{self, File};
use std::path::Path;
use std::time::{Duration, SystemTime};

use ringwall_tool_sdk::{Failure, testing};
use serde_json::{Value, json};
use tempfile::TempDir;
use tool_find::call_in;

/// 2030-01-01T00:00:00Z.
const WRITTEN: Duration = Duration::from_secs(1_893_456_000);

fn project() -> TempDir {
    let folder = tempfile::tempdir().expect("a folder");
    for (path, text, seconds) in [
        ("README.md", "# app\n", 10),
        ("src/app.py", "print('a much longer text')\n", 0),
        (".gitignore", "target/\n", 0),
        ("target/out", "x", 0),
    ] {
        let path = folder.path().join(path);
        fs::create_dir_all(path.parent().expect("a parent")).expect("made");
        fs::write(&path, text).expect("written");
        let time = SystemTime::UNIX_EPOCH + WRITTEN + Duration::from_secs(seconds);
        File::options()
            .write(true)
            .open(&path)
            .and_then(|file| file.set_modified(time))
            .expect("set");
    }
    std::os::unix::fs::symlink("src/app.py", folder.path().join("link")).expect("linked");
    folder
}

fn try_find(root: &Path, input: &Value) -> Result<Value, Failure> {
    let output =
        ringwall_tool_sdk::call_with_json(&input.to_string(), |input| call_in(root, &input))?;
    Ok(serde_json::from_str(&output).expect("it is JSON"))
}

fn paths(root: &Path, input: &Value) -> Vec<String> {
    let output = try_find(root, input).expect("it answers");
    let entries = output["entries"].as_array().expect("entries");
    entries.iter().map(|entry| entry["path"].as_str().expect("a path").to_owned()).collect()
}

#[test]
fn the_examples_give_what_the_manifest_says() {
    let project = project();
    testing::check(env!("CARGO_MANIFEST_DIR"), |input| call_in(project.path(), &input));
}

#[test]
fn ignored_and_hidden_names_are_left_out_unless_asked_for() {
    let project = project();
    let all = ["README.md", "link", "src", "src/app.py"];
    assert_eq!(paths(project.path(), &json!({})), all);
    let more = [".gitignore", "README.md", "link", "src", "src/app.py", "target", "target/out"];
    assert_eq!(paths(project.path(), &json!({ "hidden": true, "gitignore": false })), more);
}

#[test]
fn links_are_shown_with_their_target_and_not_followed() {
    let project = project();
    let output = try_find(project.path(), &json!({ "kinds": ["link"] })).expect("it answers");
    let entry = &output["entries"][0];
    assert_eq!((&entry["kind"], &entry["target"]), (&json!("link"), &json!("src/app.py")));
}

#[test]
fn kinds_sizes_times_and_depth_narrow_the_list() {
    let project = project();
    let find = |input: Value| paths(project.path(), &input);
    assert_eq!(find(json!({ "kinds": ["dir"] })), ["src"]);
    assert_eq!(find(json!({ "min_bytes": 10 })), ["src/app.py"]);
    assert_eq!(find(json!({ "max_bytes": 10 })), ["README.md"]);
    let after = json!({ "kinds": ["file"], "modified_after": "2030-01-01T00:00:05Z" });
    assert_eq!(find(after), ["README.md"]);
    let before = json!({ "kinds": ["file"], "modified_before": "2030-01-01T00:00:05Z" });
    assert_eq!(find(before), ["src/app.py"]);
    assert_eq!(find(json!({ "max_depth": 1 })), ["README.md", "link", "src"]);
    assert_eq!(find(json!({ "kinds": ["file"], "sort": "size" })), ["src/app.py", "README.md"]);
    assert_eq!(find(json!({ "kinds": ["file"], "sort": "modified" })), ["README.md", "src/app.py"]);
}

#[test]
fn a_malformed_time_is_refused_with_an_example() {
    let input = json!({ "modified_after": "yesterday" });
    let failure = try_find(project().path(), &input).expect_err("refused");
    assert_eq!(failure.code, "bad-input");
    assert!(failure.message.contains("2030-01-31T12:00:00Z"), "{failure}");
}
