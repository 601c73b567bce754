//! `patch`: applies a unified diff to a text or to files, all of it or nothing.

mod apply;
mod parse;
mod tree;

use std::path::Path;

use ringwall_tool_sdk::{Failure, files};
use serde::{Deserialize, Serialize};

use apply::Tolerance;
pub use apply::{AppliedHunk, Conflict, Nearest};

ringwall_tool_sdk::tool! { manifest: "tool.json", call: call }

/// The longest patch that is read.
const MAX_PATCH_BYTES: u64 = 8 << 20;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Input {
    patch: Option<String>,
    patch_path: Option<String>,
    text: Option<String>,
    #[serde(default)]
    dir: String,
    strip: Option<usize>,
    #[serde(default = "default_fuzz")]
    fuzz: usize,
    #[serde(default)]
    ignore_whitespace: bool,
    #[serde(default)]
    reverse: bool,
    #[serde(default)]
    dry_run: bool,
    #[serde(default)]
    partial: bool,
}

#[derive(Debug, Default, Serialize)]
pub struct Output {
    /// Whether the change is there now, or would be but for `dry_run`.
    applied: bool,
    dry_run: bool,
    files: Vec<PatchedFile>,
    conflicts: Vec<Conflict>,
    #[serde(skip_serializing_if = "Option::is_none")]
    text: Option<String>,
}

#[derive(Debug, Serialize)]
pub struct PatchedFile {
    path: String,
    action: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    from: Option<String>,
    hunks: Vec<AppliedHunk>,
}

fn default_fuzz() -> usize {
    2
}

pub fn call(input: Input) -> Result<Output, Failure> {
    call_in(Path::new(files::WORK), input)
}

/// The same below another directory than the granted one.
pub fn call_in(root: &Path, input: Input) -> Result<Output, Failure> {
    let patch = match (&input.patch, &input.patch_path) {
        (Some(patch), None) => patch.clone(),
        (None, Some(path)) => files::read_text(root, path, MAX_PATCH_BYTES)?,
        _ => return Err(Failure::bad_input("give either patch or patch_path")),
    };
    let mut patches = parse::parse(&patch)?;
    if input.reverse {
        patches.reverse();
        patches.iter_mut().for_each(parse::FilePatch::reverse);
    }
    let tolerance = Tolerance { fuzz: input.fuzz, ignore_whitespace: input.ignore_whitespace };
    let mut output = match &input.text {
        Some(text) => patch_text(text, &patches, tolerance, input.partial)?,
        None => {
            let top = files::relative(&input.dir)?;
            let mut tree = tree::Tree::new(root, top, input.strip);
            let mut output = Output::default();
            for patch in &patches {
                tree.apply(patch, tolerance, &mut output)?;
            }
            output.applied = output.conflicts.is_empty() || input.partial;
            if output.applied && !input.dry_run {
                tree.write()?;
            }
            output
        }
    };
    output.dry_run = input.dry_run;
    Ok(output)
}

fn patch_text(
    text: &str,
    patches: &[parse::FilePatch],
    tolerance: Tolerance,
    partial: bool,
) -> Result<Output, Failure> {
    let [patch] = patches else {
        return Err(Failure::bad_input(format_args!(
            "the patch is for {} files; a text takes a patch for one",
            patches.len()
        )));
    };
    let path = patch.new.as_ref().or(patch.old.as_ref()).cloned().unwrap_or_default();
    let (patched, hunks, conflicts) = apply::apply(&path, text, &patch.hunks, tolerance);
    let applied = conflicts.is_empty() || partial;
    Ok(Output {
        applied,
        dry_run: false,
        files: vec![PatchedFile { path, action: "modified", from: None, hunks }],
        conflicts,
        text: applied.then_some(patched),
    })
}
