//! The rules, by language.

mod data;
mod markdown;
mod python;
mod rust;
mod script;

use ringwall_tool_sdk::Failure;
use tool_syntax::first_syntax_errors;

use crate::{Diagnostic, Findings, Language, Severity};

/// More errors of syntax than these only repeat the first ones.
const MOST_SYNTAX_ERRORS: usize = 20;

pub(crate) fn check(
    text: &str,
    language: Language,
    path: Option<&str>,
    select: &[String],
) -> Result<Vec<Diagnostic>, Failure> {
    let mut findings = Findings::of(text);
    match language {
        Language::Json => data::json(text, &mut findings),
        Language::Toml => data::toml(text, &mut findings),
        Language::Yaml => data::yaml(text, &mut findings),
        Language::Markdown => markdown::check(text, &mut findings),
        Language::Python => python::check(text, path, select, &mut findings)?,
        Language::Rust => rust::check(text, &mut findings),
        Language::Go => {
            let tree = tool_syntax::Language::Go.parse(text)?;
            for error in first_syntax_errors(&tree, text, MOST_SYNTAX_ERRORS) {
                let [start, end] = error.span.bytes;
                findings.add(Severity::Error, "syntax", start..end, error.message);
            }
        }
        Language::JavaScript | Language::Jsx | Language::TypeScript | Language::Tsx => {
            script::check(text, language, &mut findings)?;
        }
    }
    Ok(findings.found)
}
