//! Python: ruff's own linter, with its default rules or those asked for.

use std::path::Path;
use std::str::FromStr as _;

use ringwall_tool_sdk::Failure;
use ruff_linter::linter::{ParseSource, lint_only};
use ruff_linter::rule_selector::PreviewOptions;
use ruff_linter::settings::LinterSettings;
use ruff_linter::settings::flags::Noqa;
use ruff_linter::source_kind::SourceKind;
use ruff_linter::{RuleSelector, registry::RuleSet};
use ruff_python_ast::PySourceType;
use ruff_text_size::Ranged as _;

use crate::{Findings, Severity};

pub(crate) fn check(
    text: &str,
    path: Option<&str>,
    select: &[String],
    findings: &mut Findings<'_>,
) -> Result<(), Failure> {
    let path = Path::new(path.unwrap_or("text.py"));
    let is_stub = path.extension().is_some_and(|extension| extension == "pyi");
    let source = SourceKind::Python { code: text.to_owned(), is_stub };
    let source_type = if is_stub { PySourceType::Stub } else { PySourceType::Python };
    let settings = settings(select)?;
    let result =
        lint_only(path, None, &settings, Noqa::Enabled, &source, source_type, ParseSource::None);
    for diagnostic in &result.diagnostics {
        let range =
            diagnostic.range().map_or(0..0, |range| range.start().into()..range.end().into());
        let is_syntax = diagnostic.is_invalid_syntax();
        let severity = if is_syntax { Severity::Error } else { Severity::Warning };
        let rule = if is_syntax { "syntax" } else { diagnostic.secondary_code_or_id() };
        findings.add(severity, rule, range, diagnostic.concise_message());
        if let Some(fix) = diagnostic.fix() {
            let edits = fix.edits().iter().map(|edit| {
                let range = edit.range();
                let replacement = edit.content().unwrap_or_default().to_owned();
                (range.start().into()..range.end().into(), replacement)
            });
            let message = diagnostic.first_help_text().unwrap_or("change it").to_owned();
            findings.fix(&message, fix.applicability().is_safe(), edits);
        }
    }
    Ok(())
}

fn settings(select: &[String]) -> Result<LinterSettings, Failure> {
    let settings = LinterSettings::new(Path::new("/work"));
    if select.is_empty() {
        return Ok(settings);
    }
    let mut rules = RuleSet::empty();
    for code in select {
        let selector = RuleSelector::from_str(code).map_err(|_| {
            Failure::bad_input(format_args!(
                "`select`: {code:?} is no rule of ruff nor the beginning of one, such as F, E501 or B"
            ))
        })?;
        rules.extend(selector.rules(&PreviewOptions::default()));
    }
    Ok(LinterSettings { rules: rules.iter().collect(), ..settings })
}
