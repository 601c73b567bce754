//! Reads the repository: its text files and its packages.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

/// Made by builds and runs, or kept by git itself; everything else is ours to keep tidy.
const NOT_OURS: [&str; 7] = [
    ".git",
    "target",
    "benches/out",
    "fuzz/target",
    "fuzz/corpus",
    "fuzz/artifacts",
    "tools/target",
];

/// One text file, with its path from the root of the repository.
pub(crate) struct TextFile {
    pub(crate) path: String,
    pub(crate) text: String,
}

/// A package of this workspace as Cargo sees it.
pub(crate) struct Package {
    pub(crate) name: String,
    /// Directory from the root of the repository: `crates/base/spec`.
    pub(crate) directory: String,
    /// Names of direct dependencies of every kind, our own included.
    pub(crate) dependencies: Vec<String>,
}

/// Asked at run time: a build cache shared between clones would remember another clone's path.
pub(crate) fn root() -> PathBuf {
    let here = std::env::var_os("CARGO_MANIFEST_DIR").expect("run through cargo");
    Path::new(&here).ancestors().nth(2).expect("tests/tidy is two levels down").to_owned()
}

/// Every file that is valid UTF-8, sorted by path.
pub(crate) fn text_files() -> Vec<TextFile> {
    let root = root();
    let mut files = Vec::new();
    collect(&root, &root, &mut files);
    files.sort_by(|a, b| a.path.cmp(&b.path));
    files
}

pub(crate) fn rust_files() -> Vec<TextFile> {
    text_files().into_iter().filter(|file| file.path.ends_with(".rs")).collect()
}

pub(crate) fn read(path: &str) -> String {
    fs::read_to_string(root().join(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

pub(crate) fn packages() -> Vec<Package> {
    let output = cargo(&["metadata", "--no-deps", "--format-version", "1"]);
    let metadata: Value = serde_json::from_str(&output).expect("cargo metadata is JSON");
    let text = |value: &Value| value.as_str().expect("a string").to_owned();
    let list = |value: &Value| value.as_array().expect("an array").clone();
    let root = root();
    list(&metadata["packages"])
        .iter()
        .map(|package| {
            let manifest = PathBuf::from(text(&package["manifest_path"]));
            let directory = manifest.parent().expect("a manifest has a directory");
            Package {
                name: text(&package["name"]),
                directory: relative(&root, directory),
                dependencies: list(&package["dependencies"])
                    .iter()
                    .map(|dependency| text(&dependency["name"]))
                    .collect(),
            }
        })
        .collect()
}

/// Runs Cargo in the repository and returns what it printed.
pub(crate) fn cargo(arguments: &[&str]) -> String {
    let program = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let output = Command::new(program)
        .args(arguments)
        .arg("--locked")
        .current_dir(root())
        .output()
        .expect("cargo starts");
    let complaint = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "cargo {arguments:?} failed: {complaint}");
    String::from_utf8(output.stdout).expect("cargo prints UTF-8")
}

/// Fails with one line per finding, so that one run shows all there is to mend.
pub(crate) fn assert_none(rule: &str, findings: &[String]) {
    assert!(findings.is_empty(), "{rule}\n  {}\n", findings.join("\n  "));
}

fn collect(root: &Path, directory: &Path, files: &mut Vec<TextFile>) {
    for entry in fs::read_dir(directory).expect("a readable directory") {
        let entry = entry.expect("a readable entry");
        let path = relative(root, &entry.path());
        if NOT_OURS.contains(&path.as_str()) {
            continue;
        }
        let kind = entry.file_type().expect("a file type");
        if kind.is_dir() {
            collect(root, &entry.path(), files);
        } else if kind.is_file()
            && let Ok(text) = fs::read_to_string(entry.path())
        {
            files.push(TextFile { path, text });
        }
    }
}

fn relative(root: &Path, path: &Path) -> String {
    path.strip_prefix(root).expect("inside the repository").display().to_string()
}
