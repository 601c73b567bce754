//! Finds nodes: by a pattern (ast-grep) or by a query (tree-sitter).

use ast_grep_core::meta_var::{MetaVarEnv, MetaVariable};
use ast_grep_core::tree_sitter::LanguageExt;
use ast_grep_core::{AstGrep, Node, NodeMatch, Pattern};
use ringwall_tool_sdk::Failure;
use tree_sitter::{Query, QueryCursor, QueryErrorKind, StreamingIterator as _};

use crate::grammar::Grammar;
use crate::{Document, Input};

/// A pattern or a query, compiled for one grammar.
pub(crate) enum Finder {
    Pattern(Pattern),
    Query { query: Query, target: Option<u32> },
}

/// A match: the node it stands for and what was captured in it.
pub(crate) struct Found<'tree> {
    pub(crate) node: NodeMatch<'tree, Document>,
    pub(crate) captures: Vec<(String, Node<'tree, Document>)>,
}

impl Finder {
    pub(crate) fn new(input: &Input, grammar: Grammar) -> Result<Self, Failure> {
        let finder = match (&input.pattern, &input.query) {
            (Some(pattern), None) => pattern_finder(pattern, grammar)?,
            (None, Some(query)) => query_finder(query, input.target.as_deref(), grammar)?,
            _ => return Err(Failure::bad_input("give either `pattern` or `query`")),
        };
        if let Some(template) = &input.rewrite {
            finder.check_template(template, grammar)?;
        }
        Ok(finder)
    }

    pub(crate) fn find<'tree>(
        &self,
        document: &'tree AstGrep<Document>,
    ) -> Result<Vec<Found<'tree>>, Failure> {
        match self {
            Self::Pattern(pattern) => {
                Ok(document.root().find_all(pattern).map(Found::of_pattern).collect())
            }
            Self::Query { query, target } => Ok(find_by_query(document, query, *target)),
        }
    }

    /// A template may only name what a match captures: a typing error must not delete code.
    fn check_template(&self, template: &str, grammar: Grammar) -> Result<(), Failure> {
        let Ok(fix) = ast_grep_core::replacer::TemplateFix::try_new(template, &grammar);
        let known: Vec<&str> = match self {
            Self::Pattern(pattern) => pattern.defined_vars().into_iter().collect(),
            Self::Query { query, .. } => query.capture_names().to_vec(),
        };
        let mut unknown: Vec<_> =
            fix.used_vars().into_iter().filter(|name| !known.contains(name)).collect();
        unknown.sort_unstable();
        match unknown.first() {
            None => Ok(()),
            Some(name) => Err(Failure::bad_input(format_args!(
                "`rewrite` uses ${name}, which nothing captures (captured: {})",
                if known.is_empty() { "nothing".to_owned() } else { known.join(", ") }
            ))),
        }
    }
}

impl<'tree> Found<'tree> {
    fn of_pattern(node: NodeMatch<'tree, Document>) -> Self {
        let env = node.get_env();
        let mut captures = Vec::new();
        for variable in env.get_matched_variables() {
            match variable {
                MetaVariable::Capture(name, _) => {
                    captures.extend(env.get_match(&name).map(|node| (name.clone(), node.clone())));
                }
                MetaVariable::MultiCapture(name) => {
                    let nodes = env.get_multiple_matches(&name);
                    let named = nodes.into_iter().filter(Node::is_named);
                    captures.extend(named.map(|node| (name.clone(), node)));
                }
                MetaVariable::Dropped(_) | MetaVariable::Multiple => {}
            }
        }
        captures.sort_by_key(|(_, node)| node.range().start);
        Self { node, captures }
    }
}

fn pattern_finder(pattern: &str, grammar: Grammar) -> Result<Finder, Failure> {
    let refused = |why: &dyn std::fmt::Display| {
        let language = grammar.0;
        Failure::bad_input(format_args!(
            "`pattern` is no {language:?} code by itself: {why}. Give one whole expression, \
             statement or item, with $NAME for what varies; or use `query`"
        ))
    };
    let pattern = Pattern::try_new(pattern, grammar).map_err(|error| refused(&error))?;
    if pattern.has_error() {
        return Err(refused(&"it has a syntax error"));
    }
    Ok(Finder::Pattern(pattern))
}

fn query_finder(text: &str, target: Option<&str>, grammar: Grammar) -> Result<Finder, Failure> {
    let query = Query::new(&grammar.get_ts_language(), text).map_err(|error| {
        let what = match error.kind {
            QueryErrorKind::NodeType => format!("no node is called {}", error.message),
            QueryErrorKind::Field => format!("no field is called {}", error.message),
            QueryErrorKind::Capture => format!("no capture is called {}", error.message),
            _ => error.message.clone(),
        };
        let (line, column) = (error.row + 1, error.column + 1);
        let language = grammar.0;
        Failure::bad_input(format_args!(
            "`query`, line {line}, column {column}: {what} (grammar: {language:?})"
        ))
    })?;
    let target = target
        .map(|name| {
            query.capture_index_for_name(name).ok_or_else(|| {
                Failure::bad_input(format_args!("`target`: the query captures no @{name}"))
            })
        })
        .transpose()?;
    if query.capture_names().is_empty() {
        return Err(Failure::bad_input(
            "`query` captures nothing; write a name such as @NODE after the node you want",
        ));
    }
    Ok(Finder::Query { query, target })
}

fn find_by_query<'tree>(
    document: &'tree AstGrep<Document>,
    query: &Query,
    target: Option<u32>,
) -> Vec<Found<'tree>> {
    let root = document.root();
    let text = root.get_doc().src.as_bytes();
    let mut cursor = QueryCursor::new();
    let mut matches = cursor.matches(query, root.get_inner_node(), text);
    let mut found = Vec::new();
    while let Some(matched) = matches.next() {
        // Captures come in the order of the text, outer before inner.
        let chosen = match target {
            Some(index) => matched.captures().iter().find(|capture| capture.index == index),
            None => matched.captures().first(),
        };
        let Some(chosen) = chosen else { continue };
        let mut env = MetaVarEnv::new();
        let mut captures = Vec::new();
        for capture in matched.captures() {
            let name = query.capture_names()[capture.index as usize];
            let node = document.adopt(capture.node);
            env.insert(name, node.clone());
            captures.push((name.to_owned(), node));
        }
        found.push(Found { node: NodeMatch::new(document.adopt(chosen.node), env), captures });
    }
    found
}
