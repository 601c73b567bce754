//! Where a text does not fit its grammar.

use serde::Serialize;
use tree_sitter::{Node, Tree};

use crate::{Lines, Span};

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct SyntaxError {
    pub span: Span,
    pub message: String,
}

/// The first errors of a tree, in the order of the text.
pub fn first_syntax_errors(tree: &Tree, text: &str, most: usize) -> Vec<SyntaxError> {
    let lines = Lines::of(text);
    let mut found = Vec::new();
    walk_errors(tree, |node| {
        let message = if node.is_missing() {
            format!("{} is missing here", quoted(node.kind()))
        } else {
            let begin = text[node.byte_range()].split_whitespace().next().unwrap_or("");
            format!("unexpected {}", quoted(&begin.chars().take(40).collect::<String>()))
        };
        found.push(SyntaxError { span: lines.span(node.byte_range()), message });
        found.len() < most
    });
    found
}

/// Whether `after` has more places that do not fit the grammar than `before`.
pub fn has_more_errors(before: &Tree, after: &Tree) -> bool {
    let count = |tree: &Tree| {
        let mut count = 0;
        walk_errors(tree, |_| {
            count += 1;
            true
        });
        count
    };
    after.root_node().has_error() && count(after) > count(before)
}

fn quoted(text: &str) -> String {
    if text.is_empty() { "end of text".to_owned() } else { format!("`{text}`") }
}

/// Visits each error node, not what is below it, until `visit` says no. Iterative: hostile texts
/// nest deeper than any stack.
fn walk_errors<'tree>(tree: &'tree Tree, mut visit: impl FnMut(Node<'tree>) -> bool) {
    let mut cursor = tree.walk();
    loop {
        let node = cursor.node();
        let is_error = node.is_error() || node.is_missing();
        if is_error && !visit(node) {
            return;
        }
        if !is_error && node.has_error() && cursor.goto_first_child() {
            continue;
        }
        while !cursor.goto_next_sibling() {
            if !cursor.goto_parent() {
                return;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Language, Position};

    #[test]
    fn errors_have_a_place_and_say_what_is_there() {
        let text = "fn a() {\n    let = 1;\n}\n";
        let errors = first_syntax_errors(&Language::Rust.parse(text).expect("a tree"), text, 10);
        assert_eq!(errors.len(), 1, "{errors:?}");
        assert_eq!(errors[0].span.start.line, 2);
    }

    #[test]
    fn what_is_missing_is_named() {
        let text = "package main\nfunc a() { f(1 }\n";
        let errors = first_syntax_errors(&Language::Go.parse(text).expect("a tree"), text, 10);
        assert!(errors.iter().any(|error| error.message.contains("missing")), "{errors:?}");
    }

    #[test]
    fn deep_nesting_is_walked_without_a_deep_stack() {
        let text = "(".repeat(50_000);
        let tree = Language::JavaScript.parse(&text).expect("a tree");
        let errors = first_syntax_errors(&tree, &text, 1);
        assert_eq!(errors[0].span.start, Position { line: 1, column: 1 });
    }
}
