//! What the tools over tree-sitter share: languages, sources, positions and syntax errors.

mod errors;
mod position;
mod sources;

use std::path::Path;

use ringwall_tool_sdk::Failure;
use serde::{Deserialize, Serialize};
use tree_sitter::{Parser, Tree};

pub use errors::{SyntaxError, first_syntax_errors, has_more_errors};
pub use position::{Lines, Position, Span};
pub use sources::{Gathered, Source, Sources};

/// A language that the tools know the grammar of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Language {
    Rust,
    Python,
    JavaScript,
    TypeScript,
    Tsx,
    Go,
}

impl Language {
    /// The language of a file, by the end of its name.
    pub fn of_path(path: &Path) -> Option<Self> {
        Some(match path.extension()?.to_str()? {
            "rs" => Self::Rust,
            "py" | "pyi" => Self::Python,
            "js" | "mjs" | "cjs" | "jsx" => Self::JavaScript,
            "ts" | "mts" | "cts" => Self::TypeScript,
            "tsx" => Self::Tsx,
            "go" => Self::Go,
            _ => return None,
        })
    }

    pub fn grammar(self) -> tree_sitter::Language {
        match self {
            Self::Rust => tree_sitter_rust::LANGUAGE,
            Self::Python => tree_sitter_python::LANGUAGE,
            Self::JavaScript => tree_sitter_javascript::LANGUAGE,
            Self::TypeScript => tree_sitter_typescript::LANGUAGE_TYPESCRIPT,
            Self::Tsx => tree_sitter_typescript::LANGUAGE_TSX,
            Self::Go => tree_sitter_go::LANGUAGE,
        }
        .into()
    }

    pub fn parse(self, text: &str) -> Result<Tree, Failure> {
        let mut parser = Parser::new();
        parser
            .set_language(&self.grammar())
            .map_err(|error| Failure::new("internal", format_args!("grammar: {error}")))?;
        parser
            .parse(text, None)
            .ok_or_else(|| Failure::new("internal", "the parser gave up without a tree"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_grammar_loads_and_parses() {
        let programs = [
            (Language::Rust, "fn main() {}"),
            (Language::Python, "def main(): pass"),
            (Language::JavaScript, "function main() {}"),
            (Language::TypeScript, "function main(): void {}"),
            (Language::Tsx, "const a = <b>c</b>;"),
            (Language::Go, "package main\nfunc main() {}"),
        ];
        for (language, text) in programs {
            let tree = language.parse(text).expect("the grammar loads");
            assert!(!tree.root_node().has_error(), "{language:?}");
        }
    }
}
