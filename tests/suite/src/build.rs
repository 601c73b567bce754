//! Has Cargo build programs and tests in one go, and reads from its messages where the tests are.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};
use serde::Deserialize;

/// The WASM compiler is built apart: together, the WASM warden would be built with a compiler in it.
/// The benches use the compiler, too.
const APART: [&str; 2] = ["ringwall-wasm-compiler", "ringwall-bench"];

/// A program that runs tests.
#[derive(Debug, Clone)]
pub(crate) struct TestProgram {
    pub(crate) package: String,
    /// Package and target, for people.
    pub(crate) name: String,
    pub(crate) executable: PathBuf,
    /// Cargo starts tests in the directory of their package.
    pub(crate) directory: PathBuf,
}

/// The folders of the repository in which packages lie.
const TOPS: [&str; 5] = ["crates", "bins", "tests", "benches", "tools"];

#[derive(Debug, Deserialize)]
struct Message {
    reason: String,
    manifest_path: Option<PathBuf>,
    executable: Option<PathBuf>,
    target: Option<Target>,
    profile: Option<Profile>,
}

#[derive(Debug, Deserialize)]
struct Target {
    name: String,
}

#[derive(Debug, Deserialize)]
struct Profile {
    test: bool,
}

/// Everything but the packages that are built apart, then those, each with a Cargo call of its own.
pub(crate) fn test_programs(root: &Path) -> Result<Vec<TestProgram>> {
    let mut together = vec!["--workspace"];
    together.extend(APART.iter().flat_map(|package| ["--exclude", package]));
    let mut programs = cargo_build(root, &together)?;
    programs.extend(cargo_build(root, &["--package", APART[0]])?);
    Ok(programs)
}

/// Everything of a workspace of its own.
pub(crate) fn test_programs_of_tree(tree: &Path) -> Result<Vec<TestProgram>> {
    cargo_build(tree, &["--workspace"])
}

fn cargo_build(root: &Path, selection: &[&str]) -> Result<Vec<TestProgram>> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let output = Command::new(cargo)
        .args(["build", "--locked", "--bins", "--tests"])
        .arg("--message-format=json-render-diagnostics")
        .args(selection)
        .current_dir(root)
        .stderr(Stdio::inherit())
        .output()
        .context("cannot start cargo")?;
    if !output.status.success() {
        bail!("cargo could not build {}", selection.join(" "));
    }
    let text = String::from_utf8_lossy(&output.stdout);
    text.lines().filter_map(|line| read_message(line).transpose()).collect()
}

/// A line of Cargo's messages, where it tells of a test program.
pub(crate) fn read_message(line: &str) -> Result<Option<TestProgram>> {
    let message: Message = serde_json::from_str(line).context("a message of cargo")?;
    if message.reason != "compiler-artifact" || !message.profile.is_some_and(|p| p.test) {
        return Ok(None);
    }
    let (Some(executable), Some(manifest), Some(target)) =
        (message.executable, message.manifest_path, message.target)
    else {
        return Ok(None);
    };
    let directory = manifest.parent().context("a manifest lies in a directory")?.to_owned();
    let package = in_repository(&directory);
    Ok(Some(TestProgram {
        name: format!("{package} {}", target.name),
        package,
        executable,
        directory,
    }))
}

/// The directory as seen from the top of the repository: `crates/base/spec`.
fn in_repository(directory: &Path) -> String {
    let parts: Vec<_> = directory.iter().map(|part| part.to_string_lossy()).collect();
    let top = parts.iter().rposition(|part| TOPS.contains(&part.as_ref())).unwrap_or(0);
    parts[top..].join("/")
}
