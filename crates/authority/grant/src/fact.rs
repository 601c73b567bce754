//! One statement in a token, as a value and as the line that it is printed as.
//!
//! Tokens of others are read from their printed lines. A line that is not exactly as we write it is no
//! statement of ours, and the token is refused; so nothing here needs to be clever.

use std::fmt;

use biscuit_auth::builder;
use ringwall_safekeeping::hex;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Fact {
    pub(crate) name: String,
    pub(crate) terms: Vec<Term>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Term {
    Text(String),
    Number(i64),
    Bytes(Vec<u8>),
    Flag(bool),
}

impl Fact {
    pub(crate) fn new(name: impl Into<String>, terms: impl Into<Vec<Term>>) -> Fact {
        Fact { name: name.into(), terms: terms.into() }
    }

    pub(crate) fn to_builder(&self) -> builder::Fact {
        let terms: Vec<builder::Term> = self.terms.iter().map(Term::to_builder).collect();
        builder::Fact::new(self.name.clone(), terms)
    }

    /// Reads one line, without the semicolon at its end.
    pub(crate) fn read(line: &str) -> Option<Fact> {
        let (name, terms) = line.strip_suffix(')')?.split_once('(')?;
        let mut rest = terms;
        let mut read = Vec::new();
        loop {
            let term;
            (term, rest) = Term::read(rest)?;
            read.push(term);
            match rest.strip_prefix(", ") {
                Some(more) => rest = more,
                None if rest.is_empty() => return Some(Fact::new(name, read)),
                None => return None,
            }
        }
    }
}

impl Term {
    fn to_builder(&self) -> builder::Term {
        match self {
            Term::Text(text) => builder::Term::Str(text.clone()),
            Term::Number(number) => builder::Term::Integer(*number),
            Term::Bytes(bytes) => builder::Term::Bytes(bytes.clone()),
            Term::Flag(flag) => builder::Term::Bool(*flag),
        }
    }

    fn read(text: &str) -> Option<(Term, &str)> {
        if let Some(rest) = text.strip_prefix('"') {
            let (text, rest) = rest.split_once('"')?;
            return Some((Term::Text(text.to_owned()), rest));
        }
        let end = text.find(", ").unwrap_or(text.len());
        let (word, rest) = text.split_at(end);
        let term = match (word, word.strip_prefix("hex:")) {
            ("true", _) => Term::Flag(true),
            ("false", _) => Term::Flag(false),
            (_, Some(digits)) => Term::Bytes(hex::decode(digits)?),
            (number, None) => Term::Number(number.parse().ok()?),
        };
        Some((term, rest))
    }
}

impl fmt::Display for Fact {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}(", self.name)?;
        for (at, term) in self.terms.iter().enumerate() {
            let comma = if at == 0 { "" } else { ", " };
            write!(f, "{comma}{term}")?;
        }
        f.write_str(")")
    }
}

impl fmt::Display for Term {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Term::Text(text) => write!(f, "\"{text}\""),
            Term::Number(number) => write!(f, "{number}"),
            Term::Bytes(bytes) => write!(f, "hex:{}", hex::encode(bytes)),
            Term::Flag(flag) => write!(f, "{flag}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_statement_prints_as_it_is_read() {
        let terms =
            [Term::Text("a, b".into()), Term::Number(-1), Term::Bytes(vec![1]), Term::Flag(true)];
        let fact = Fact::new("x", terms);
        let line = "x(\"a, b\", -1, hex:01, true)";
        assert_eq!(fact.to_string(), line);
        assert_eq!(fact.to_builder().to_string(), line);
        assert_eq!(Fact::read(line), Some(fact));
    }

    #[test]
    fn what_we_never_write_is_no_statement() {
        for line in ["", "x", "x()", "x(\"a)", "x(1,2)", "x({})", "x(1) <- y($z)", "x(nul)"] {
            assert_eq!(Fact::read(line), None, "{line}");
        }
    }
}
