//! `outline`: the symbols of source files, with their places, nesting and signatures.

mod symbols;

use std::path::Path;

use ringwall_tool_sdk::budget::Budget;
use ringwall_tool_sdk::{Failure, files};
use serde::{Deserialize, Serialize};
use tool_syntax::{Language, Sources};

pub use symbols::{Kind, Symbol};

const MOST_SYMBOLS: usize = 20_000;
const MOST_BYTES: usize = 4 << 20;

ringwall_tool_sdk::tool! { manifest: "tool.json", call: call }

#[derive(Debug, Deserialize)]
pub struct Input {
    #[serde(flatten)]
    pub sources: Sources,
    /// How deep symbols nest in the answer.
    pub depth: Option<usize>,
    /// Only symbols of these kinds, and what leads to them.
    #[serde(default)]
    pub kinds: Vec<Kind>,
    pub max_symbols: Option<usize>,
}

#[derive(Debug, Serialize)]
pub struct Output {
    pub files: Vec<FileOutline>,
    /// Files in a directory that could not be read as text.
    pub skipped: usize,
    pub truncated: bool,
}

#[derive(Debug, Serialize)]
pub struct FileOutline {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub path: Option<String>,
    pub language: Language,
    pub lines: usize,
    /// The text does not fit the grammar everywhere; symbols near such places may be missing.
    pub has_errors: bool,
    pub symbols: Vec<Symbol>,
}

pub fn call(input: Input) -> Result<Output, Failure> {
    outline(Path::new(files::WORK), &input)
}

/// The outline of the sources below `root`.
pub fn outline(root: &Path, input: &Input) -> Result<Output, Failure> {
    let gathered = input.sources.gather(root)?;
    let most = input.max_symbols.unwrap_or(MOST_SYMBOLS).min(MOST_SYMBOLS);
    let mut budget = Budget::new(most, MOST_BYTES);
    let depth = input.depth.unwrap_or(usize::MAX);
    let mut output = Output { files: Vec::new(), skipped: gathered.skipped, truncated: false };
    for source in gathered.sources {
        let tree = source.language.parse(&source.text)?;
        let all = symbols::of_tree(&tree, &source.text, source.language);
        output.files.push(FileOutline {
            path: source.path,
            language: source.language,
            lines: source.text.lines().count(),
            has_errors: tree.root_node().has_error(),
            symbols: choose(all, &input.kinds, depth, &mut budget),
        });
        if budget.exhausted() {
            break;
        }
    }
    output.truncated = budget.exhausted();
    Ok(output)
}

/// Keeps what was asked for and fits. A symbol of another kind stays if something below it does.
fn choose(all: Vec<Symbol>, kinds: &[Kind], depth: usize, budget: &mut Budget) -> Vec<Symbol> {
    if depth == 0 {
        return Vec::new();
    }
    let mut chosen = Vec::new();
    for mut symbol in all {
        // The room of the symbol itself is taken first, so that a parent never lacks for its child.
        let wanted = kinds.is_empty() || kinds.contains(&symbol.kind);
        if wanted && !budget.take(symbol.bytes()) {
            break;
        }
        symbol.children = choose(std::mem::take(&mut symbol.children), kinds, depth - 1, budget);
        if wanted || !symbol.children.is_empty() {
            chosen.push(symbol);
        }
    }
    chosen
}
