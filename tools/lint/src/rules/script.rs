//! JavaScript and TypeScript: the recommended rules of deno_lint.

use std::collections::HashSet;

use deno_ast::diagnostics::Diagnostic as _;
use deno_ast::{MediaType, ModuleSpecifier, SourceRange, StartSourcePos};
use deno_lint::linter::{LintConfig, LintFileOptions, Linter, LinterOptions};
use deno_lint::rules::{get_all_rules, recommended_rules};
use ringwall_tool_sdk::Failure;

use crate::{Findings, Language, Severity};

/// About packages and hosts of another runtime, not about the code.
const NOT_HERE: &[&str] = &[
    "no-node-globals",
    "no-process-global",
    "no-window",
    "no-window-prefix",
    "no-import-prefix",
    "no-unversioned-import",
    "no-slow-types",
    "no-sloppy-imports",
];

pub(crate) fn check(
    text: &str,
    language: Language,
    findings: &mut Findings<'_>,
) -> Result<(), Failure> {
    let media_type = match language {
        Language::Jsx => MediaType::Jsx,
        Language::TypeScript => MediaType::TypeScript,
        Language::Tsx => MediaType::Tsx,
        _ => MediaType::JavaScript,
    };
    let mut rules = recommended_rules(get_all_rules());
    rules.retain(|rule| !NOT_HERE.contains(&rule.code()));
    let linter = Linter::new(LinterOptions {
        all_rule_codes: rules.iter().map(|rule| rule.code().into()).collect::<HashSet<_>>(),
        rules,
        custom_ignore_file_directive: None,
        custom_ignore_diagnostic_directive: None,
    });
    let specifier = ModuleSpecifier::parse("file:///text")
        .map_err(|error| Failure::new("internal", format_args!("specifier: {error}")))?;
    let config = LintConfig { default_jsx_factory: None, default_jsx_fragment_factory: None };
    let linted = linter.lint_file(LintFileOptions {
        specifier,
        source_code: text.to_owned(),
        media_type,
        config,
        external_linter: None,
    });
    let diagnostics = match linted {
        Ok((_, diagnostics)) => diagnostics,
        Err(error) => {
            findings.add(Severity::Error, "syntax", bytes(error.range()), error.message());
            return Ok(());
        }
    };
    for diagnostic in diagnostics {
        let range = diagnostic.range.map_or(0..0, |range| bytes(range.range));
        let details = diagnostic.details;
        let message = match &details.hint {
            Some(hint) => format!("{}. {hint}", details.message),
            None => details.message.clone(),
        };
        findings.add(Severity::Warning, &details.code, range, message);
        if let Some(fix) = details.fixes.into_iter().next() {
            let edits: Vec<_> = fix
                .changes
                .iter()
                .map(|change| (bytes(change.range), change.new_text.to_string()))
                .collect();
            findings.fix(&fix.description, false, edits);
        }
    }
    Ok(())
}

fn bytes(range: SourceRange) -> std::ops::Range<usize> {
    range.as_byte_range(StartSourcePos::START_SOURCE_POS)
}
