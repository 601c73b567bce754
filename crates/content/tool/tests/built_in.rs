//! The manifests of the built-in tools keep the contract.
#![allow(clippy::unwrap_used, clippy::panic, reason = "helpers of tests fail by panicking")]

use std::fs;
use std::path::{Path, PathBuf};

use ringwall_spec::{ToolDigest, ToolKind};
use ringwall_tool::{Kind, Manifest, Tool};

fn manifests() -> Vec<PathBuf> {
    let tools = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../tools");
    let mut found: Vec<PathBuf> = fs::read_dir(tools)
        .unwrap()
        .map(|entry| entry.unwrap().path().join("tool.json"))
        .filter(|path| path.is_file())
        .collect();
    found.sort();
    found
}

#[test]
fn every_built_in_tool_has_a_manifest_that_is_right_and_examples_that_fit() {
    let manifests = manifests();
    assert!(!manifests.is_empty());
    let mut problems = Vec::new();
    for path in manifests {
        let checked = Manifest::parse(&fs::read(&path).unwrap()).and_then(|manifest| {
            let kind = match manifest.kind {
                Kind::Component => ToolKind::Component,
                Kind::Command => ToolKind::CommandModule,
            };
            let tool = Tool::new(ToolDigest([0; 32]), kind, manifest)?;
            tool.check_examples()?;
            Ok(tool)
        });
        let folder = path.parent().unwrap().file_name().unwrap().to_string_lossy().into_owned();
        match checked {
            Ok(tool) if tool.name() != folder => {
                problems.push(format!("{folder}: its name is {}", tool.name()));
            }
            // What others answer cannot be foretold.
            Ok(tool) if !tool.manifest().wants.http.is_empty() => {}
            Ok(tool) if tool.manifest().examples.is_empty() => {
                problems.push(format!("{folder}: it shows no example"));
            }
            Ok(_) => {}
            Err(error) => problems.push(format!("{folder}: {error}")),
        }
    }
    assert!(problems.is_empty(), "{}", problems.join("\n"));
}
