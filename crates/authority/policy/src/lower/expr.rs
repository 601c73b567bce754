//! Short ways to write Cedar expressions. They are built as trees and never as text, so that nothing
//! in a policy file can become part of the language.

use std::sync::Arc;

use cedar_policy::pst::{BinaryOp, Expr, Literal, PatternElem, UnaryOp, Var};

use crate::pattern::{Anchor, Glob, HostPattern, NamePattern, PathPattern, UrlPrefix};

pub(crate) type E = Arc<Expr>;

pub(crate) fn text(value: &str) -> E {
    Arc::new(Expr::Literal(Literal::String(value.into())))
}

pub(crate) fn truth(value: bool) -> E {
    Arc::new(Expr::Literal(Literal::Bool(value)))
}

fn attribute(of: Var, name: &str) -> E {
    Arc::new(Expr::GetAttr { expr: Arc::new(Expr::Var(of)), attr: name.into() })
}

pub(crate) fn principal(name: &str) -> E {
    attribute(Var::Principal, name)
}

pub(crate) fn resource(name: &str) -> E {
    attribute(Var::Resource, name)
}

pub(crate) fn context(name: &str) -> E {
    attribute(Var::Context, name)
}

fn binary(op: BinaryOp, left: E, right: E) -> E {
    Arc::new(Expr::BinaryOp { op, left, right })
}

pub(crate) fn is(value: E, expected: &str) -> E {
    binary(BinaryOp::Eq, value, text(expected))
}

pub(crate) fn is_number(value: E, expected: i64) -> E {
    binary(BinaryOp::Eq, value, Arc::new(Expr::Literal(Literal::Long(expected))))
}

pub(crate) fn not(value: E) -> E {
    Arc::new(Expr::UnaryOp { op: UnaryOp::Not, expr: value })
}

/// Whether `value` is one of `words`. Strict validation knows no empty set, so that is `false`.
pub(crate) fn one_of<S: AsRef<str>>(words: &[S], value: E) -> E {
    match words {
        [] => truth(false),
        [word] => is(value, word.as_ref()),
        words => {
            let set = Expr::Set(words.iter().map(|word| text(word.as_ref())).collect());
            binary(BinaryOp::Contains, Arc::new(set), value)
        }
    }
}

/// Whether the elevation `name` is active.
pub(crate) fn elevated(name: &str) -> E {
    binary(BinaryOp::Contains, context("elevated"), text(name))
}

pub(crate) fn all(parts: impl IntoIterator<Item = E>) -> E {
    fold(BinaryOp::And, parts, true)
}

pub(crate) fn any(parts: impl IntoIterator<Item = E>) -> E {
    fold(BinaryOp::Or, parts, false)
}

/// A balanced tree: a long list must not become a deep one.
fn fold(op: BinaryOp, parts: impl IntoIterator<Item = E>, of_none: bool) -> E {
    let mut parts: Vec<E> = parts.into_iter().collect();
    while parts.len() > 1 {
        parts = parts
            .chunks(2)
            .map(|pair| match pair {
                [one, other] => binary(op, Arc::clone(one), Arc::clone(other)),
                pair => pair.first().map_or_else(|| truth(of_none), Arc::clone),
            })
            .collect();
    }
    parts.pop().unwrap_or_else(|| truth(of_none))
}

pub(crate) fn like(value: E, glob: &Glob) -> E {
    if let [Some(literal)] = glob.0.as_slice() {
        return is(value, literal);
    }
    let mut pattern = Vec::new();
    for part in &glob.0 {
        match part {
            None => pattern.push(PatternElem::Wildcard),
            Some(literal) => pattern.extend(literal.chars().map(PatternElem::Char)),
        }
    }
    Arc::new(Expr::Like { expr: value, pattern })
}

pub(crate) fn path(pattern: &PathPattern) -> E {
    let value = || {
        resource(match pattern.anchor {
            Anchor::Root => "path",
            Anchor::Home => "home",
            Anchor::Workspace => "workspace",
        })
    };
    any(pattern.alternatives.iter().map(|glob| like(value(), glob)))
}

pub(crate) fn paths(patterns: &[PathPattern]) -> E {
    any(patterns.iter().map(path))
}

pub(crate) fn host(pattern: &HostPattern, value: E) -> E {
    if pattern.is_everything() { truth(true) } else { like(value, &Glob::of(pattern.as_str())) }
}

/// As [`NamePattern::matches`].
pub(crate) fn tool(pattern: &NamePattern) -> E {
    let fits = like(resource("name"), &Glob::of(pattern.as_str()));
    match pattern.as_str().contains('*') && !pattern.is_everything() {
        true => all([fits, not(like(resource("name"), &Glob::of("*:*")))]),
        false => fits,
    }
}

pub(crate) fn url_paths(prefixes: &[UrlPrefix]) -> E {
    let globs = prefixes.iter().flat_map(UrlPrefix::alternatives);
    any(globs.map(|glob| like(context("path"), &glob)))
}
