//! `ast-query`: finds code by its structure, and rewrites it by a template.

mod grammar;
mod matching;
mod rewriting;

use std::collections::BTreeMap;
use std::path::Path;

use ast_grep_core::tree_sitter::StrDoc;
use ringwall_tool_sdk::budget::{Budget, cut};
use ringwall_tool_sdk::{Failure, files};
use serde::{Deserialize, Serialize};
use tool_syntax::{Lines, Sources, Span};

use grammar::Grammar;
use matching::{Finder, Found};
pub use rewriting::{Edit, Rewritten};

const MOST_MATCHES: usize = 5_000;
const MOST_BYTES: usize = 8 << 20;
/// A match is shown by its beginning; its span tells where the rest is.
const MOST_MATCH_TEXT: usize = 2_000;

ringwall_tool_sdk::tool! { manifest: "tool.json", call: call }

#[derive(Debug, Deserialize)]
pub struct Input {
    #[serde(flatten)]
    pub sources: Sources,
    /// Code with `$NAME` for any one node and `$$$NAME` for any number of them.
    pub pattern: Option<String>,
    /// A tree-sitter query with captures and predicates.
    pub query: Option<String>,
    /// What a query's match stands for: the capture of this name, else its outermost capture.
    pub target: Option<String>,
    pub rewrite: Option<String>,
    pub max_matches: Option<usize>,
}

#[derive(Debug, Serialize)]
pub struct Output {
    pub matches: Vec<Match>,
    /// The files that a rewrite changes.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub rewritten: Vec<Rewritten>,
    pub searched: usize,
    pub skipped: usize,
    pub truncated: bool,
}

#[derive(Debug, Serialize)]
pub struct Match {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub path: Option<String>,
    pub kind: String,
    pub span: Span,
    pub text: String,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub captures: BTreeMap<String, Vec<Capture>>,
}

#[derive(Debug, Serialize)]
pub struct Capture {
    pub span: Span,
    pub text: String,
}

pub(crate) type Document = StrDoc<Grammar>;

pub fn call(input: Input) -> Result<Output, Failure> {
    run(Path::new(files::WORK), &input)
}

/// Searches the sources below `root`.
pub fn run(root: &Path, input: &Input) -> Result<Output, Failure> {
    let gathered = input.sources.gather(root)?;
    let most = input.max_matches.unwrap_or(MOST_MATCHES).min(MOST_MATCHES);
    let mut budget = Budget::new(most, MOST_BYTES);
    let mut output = Output {
        matches: Vec::new(),
        rewritten: Vec::new(),
        searched: 0,
        skipped: gathered.skipped,
        truncated: false,
    };
    // A pattern or query is compiled for one grammar; a directory may hold several.
    let mut finders: Vec<(Grammar, Finder)> = Vec::new();
    for source in gathered.sources {
        let grammar = Grammar(source.language);
        let known = finders.iter().position(|(of, _)| *of == grammar);
        let at = match known {
            Some(at) => at,
            None => {
                finders.push((grammar, Finder::new(input, grammar)?));
                finders.len() - 1
            }
        };
        let document = grammar.document(&source.text)?;
        let lines = Lines::of(&source.text);
        let mut kept = Vec::new();
        for found in finders[at].1.find(&document)? {
            let shown = shown(&found, source.path.as_deref(), &lines);
            if !budget.take(size(&shown)) {
                break;
            }
            output.matches.push(shown);
            kept.push(found);
        }
        if let Some(template) = &input.rewrite {
            let path = source.path.as_deref();
            let rewritten = rewriting::rewrite(&document, path, &kept, template, &lines)?;
            output.rewritten.extend(rewritten);
        }
        output.searched += 1;
        if budget.exhausted() {
            break;
        }
    }
    output.truncated = budget.exhausted();
    Ok(output)
}

fn shown(found: &Found<'_>, path: Option<&str>, lines: &Lines<'_>) -> Match {
    let mut captures: BTreeMap<String, Vec<Capture>> = BTreeMap::new();
    for (name, node) in &found.captures {
        let capture = Capture { span: lines.span(node.range()), text: beginning(&node.text()) };
        captures.entry(name.clone()).or_default().push(capture);
    }
    Match {
        path: path.map(str::to_owned),
        kind: found.node.kind().into_owned(),
        span: lines.span(found.node.range()),
        text: beginning(&found.node.text()),
        captures,
    }
}

fn beginning(text: &str) -> String {
    let mut text = text[..text.floor_char_boundary(MOST_MATCH_TEXT + 1)].to_owned();
    if cut(&mut text, MOST_MATCH_TEXT) {
        text.push('…');
    }
    text
}

fn size(shown: &Match) -> usize {
    let captures = shown.captures.values().flatten().map(|capture| capture.text.len() + 120);
    captures.sum::<usize>() + shown.text.len() + 200
}
