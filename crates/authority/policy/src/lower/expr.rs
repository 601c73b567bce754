//! Short ways to write Cedar expressions. They are built as trees and never as text, so that nothing
//! in a policy file can become part of the language.

use std::sync::Arc;

use cedar_policy::pst::{BinaryOp, Expr, Literal, PatternElem, UnaryOp, Var};
use ringwall_spec::{Host, HostPattern};

use crate::pattern::{Anchor, Glob, NamePattern, PathPattern};

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

/// Whether the endpoint is one of these hosts, as [`HostPattern::matches`]. What always goes together in a
/// request is asked together, so that a solver need not know it.
pub(crate) fn host(pattern: &HostPattern) -> E {
    let below =
        |domain: &str| like(resource("host"), &Glob(vec![None, Some(format!(".{domain}"))]));
    match pattern {
        HostPattern::Exact(host @ Host::Address(_)) => {
            all([is(resource("host"), &host.bare()), resource("address")])
        }
        HostPattern::Exact(host @ Host::Name(name)) => all([
            is(resource("host"), name),
            all([is(resource("parent"), host.parent().unwrap_or_default()), is_name()]),
        ]),
        HostPattern::OneLabel(domain) => {
            all([is(resource("parent"), domain), all([below(domain), is_name()])])
        }
        HostPattern::AnyDepth(domain) => all([below(domain), is_name()]),
    }
}

pub(crate) fn is_name() -> E {
    not(resource("address"))
}

/// As [`NamePattern::matches`].
pub(crate) fn tool(pattern: &NamePattern) -> E {
    let fits = like(resource("name"), &Glob::of(pattern.as_str()));
    match pattern.as_str().contains('*') && !pattern.is_everything() {
        true => all([fits, not(like(resource("name"), &Glob::of("*:*")))]),
        false => fits,
    }
}

/// Whether the path is one of these or lies below one, in the very same letters.
pub(crate) fn url_paths(prefixes: &[String]) -> E {
    any(prefixes
        .iter()
        .map(|prefix| all([lies_below(context("path"), prefix), other_letters(prefix)])))
}

/// The same, whatever of its letters are capitals: some servers make no difference.
pub(crate) fn url_paths_in_any_letters(prefixes: &[String]) -> E {
    any(prefixes.iter().map(|prefix| other_letters(prefix)))
}

fn other_letters(prefix: &str) -> E {
    lies_below(context("lowerPath"), &prefix.to_ascii_lowercase())
}

/// As [`ringwall_rules::target::lies_below`].
fn lies_below(path: E, prefix: &str) -> E {
    let below = |front: String| Glob(vec![Some(front), None]);
    if prefix.ends_with('/') {
        return like(path, &below(prefix.to_owned()));
    }
    any([is(Arc::clone(&path), prefix), like(path, &below(format!("{prefix}/")))])
}
