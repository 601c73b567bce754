//! Shared by the tests: archives made by hand, images made by real tools, a real registry.
#![allow(dead_code, reason = "every test program uses its own part of this")]

pub(crate) mod erofs;
pub(crate) mod images;
pub(crate) mod layer;
pub(crate) mod place;
pub(crate) mod registry;
pub(crate) mod scripted_server;
pub(crate) mod token_server;

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use ringwall_image::PullOptions;

/// A real tool that the tests need. Its absence is a failure: a test that was not run proves nothing.
pub(crate) fn tool(name: &str) -> PathBuf {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let mut directories: Vec<PathBuf> = std::env::split_paths(&path).collect();
    directories.extend(["/usr/sbin", "/sbin"].map(PathBuf::from));
    directories
        .iter()
        .map(|directory| directory.join(name))
        .find(|candidate| candidate.is_file())
        .unwrap_or_else(|| panic!("{name} is not installed; run `make setup`"))
}

/// Runs a tool and fails the test with what it printed unless it succeeds.
pub(crate) fn run(command: &mut Command) -> Output {
    let output = command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    assert!(
        output.status.success(),
        "{command:?} failed:\n{}{}",
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    );
    output
}

/// No credentials and nothing from the tester's own environment.
pub(crate) fn anonymous() -> PullOptions {
    PullOptions::default()
}

/// The whole chain of an error in one line, as a person would see it.
pub(crate) fn told(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        text.push_str(": ");
        text.push_str(&cause.to_string());
        source = cause.source();
    }
    text
}

/// Names in a directory, sorted.
pub(crate) fn names_in(directory: &Path) -> Vec<String> {
    let mut names: Vec<String> = std::fs::read_dir(directory)
        .unwrap_or_else(|error| panic!("{}: {error}", directory.display()))
        .map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned())
        .collect();
    names.sort();
    names
}

pub(crate) fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}
