//! `diff`: what differs between two texts, files or folders, as a unified diff with positions.

mod text;
mod tree;

use std::path::Path;

use ringwall_tool_sdk::{Failure, files};
use serde::{Deserialize, Serialize};

pub use text::{FileDiff, Hunk, Whitespace};
use tree::Side;

ringwall_tool_sdk::tool! { manifest: "tool.json", call: call }

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Input {
    old: Option<String>,
    new: Option<String>,
    old_path: Option<String>,
    new_path: Option<String>,
    name: Option<String>,
    #[serde(default = "default_context")]
    context: usize,
    #[serde(default)]
    whitespace: Whitespace,
    #[serde(default = "default_max_bytes")]
    max_bytes: usize,
}

#[derive(Debug, Serialize)]
pub struct Output {
    equal: bool,
    added: usize,
    removed: usize,
    unified: String,
    files: Vec<FileDiff>,
    /// Links and special files, which are not compared.
    skipped: Vec<String>,
    truncated: bool,
}

fn default_context() -> usize {
    3
}

fn default_max_bytes() -> usize {
    256 << 10
}

pub fn call(input: Input) -> Result<Output, Failure> {
    call_in(Path::new(files::WORK), input)
}

/// The same below another directory than the granted one.
pub fn call_in(root: &Path, input: Input) -> Result<Output, Failure> {
    let name = input.name.as_deref().unwrap_or("text");
    let old = Side::new("old", input.old, input.old_path)?;
    let new = Side::new("new", input.new, input.new_path)?;
    let pairs = tree::pairs(root, name, old, new)?;

    let mut output = Output {
        equal: true,
        added: 0,
        removed: 0,
        unified: String::new(),
        files: Vec::new(),
        skipped: pairs.skipped,
        truncated: false,
    };
    for pair in pairs.pairs {
        let pair = pair.load(root)?;
        let Some((file, unified)) = text::diff(&pair, input.whitespace, input.context) else {
            continue;
        };
        output.equal = false;
        output.added += file.added;
        output.removed += file.removed;
        // Whole files only: half a diff would apply as another change than the one that was made.
        if output.unified.len() + unified.len() <= input.max_bytes && !output.truncated {
            output.unified += &unified;
        } else {
            output.truncated = true;
        }
        output.files.push(file);
    }
    Ok(output)
}
