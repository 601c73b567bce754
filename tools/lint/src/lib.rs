//! `lint`: finds what is wrong or doubtful in source text, with its place and often a fix.

mod rules;

use std::path::Path;

use ringwall_tool_sdk::budget::Budget;
use ringwall_tool_sdk::{Failure, files};
use serde::{Deserialize, Serialize};
use tool_syntax::{Lines, Span};

const MOST_BYTES: u64 = 4 << 20;
const MOST_DIAGNOSTICS: usize = 1_000;
const MOST_OUTPUT: usize = 2 << 20;

ringwall_tool_sdk::tool! { manifest: "tool.json", call: call }

#[derive(Debug, Default, Deserialize)]
pub struct Input {
    pub text: Option<String>,
    /// Needed with `text`; with `paths`, by each file's name if absent.
    pub language: Option<Language>,
    #[serde(default)]
    pub paths: Vec<String>,
    /// Python: which of ruff's rules, by code or beginning of a code.
    #[serde(default)]
    pub select: Vec<String>,
    /// Rules to leave out, by their exact name or code.
    #[serde(default)]
    pub ignore: Vec<String>,
    pub max_diagnostics: Option<usize>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Language {
    Json,
    Toml,
    Yaml,
    Markdown,
    Python,
    Rust,
    JavaScript,
    Jsx,
    TypeScript,
    Tsx,
    Go,
}

#[derive(Debug, Serialize)]
pub struct Output {
    pub diagnostics: Vec<Diagnostic>,
    pub errors: usize,
    pub warnings: usize,
    pub truncated: bool,
}

#[derive(Debug, PartialEq, Eq, Serialize)]
pub struct Diagnostic {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub path: Option<String>,
    pub severity: Severity,
    pub rule: String,
    pub message: String,
    pub span: Span,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fix: Option<Fix>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Severity {
    /// The text is not of its language, or certainly wrong.
    Error,
    Warning,
}

/// Edits that go together.
#[derive(Debug, PartialEq, Eq, Serialize)]
pub struct Fix {
    pub message: String,
    /// Whether the meaning stays the same for certain.
    pub safe: bool,
    pub edits: Vec<Edit>,
}

#[derive(Debug, PartialEq, Eq, Serialize)]
pub struct Edit {
    pub span: Span,
    pub replacement: String,
}

impl Language {
    pub fn of_path(path: &Path) -> Option<Self> {
        Some(match path.extension()?.to_str()? {
            "json" => Self::Json,
            "toml" => Self::Toml,
            "yaml" | "yml" => Self::Yaml,
            "md" | "markdown" => Self::Markdown,
            "py" | "pyi" => Self::Python,
            "rs" => Self::Rust,
            "js" | "mjs" | "cjs" => Self::JavaScript,
            "jsx" => Self::Jsx,
            "ts" | "mts" | "cts" => Self::TypeScript,
            "tsx" => Self::Tsx,
            "go" => Self::Go,
            _ => return None,
        })
    }
}

pub fn call(input: Input) -> Result<Output, Failure> {
    run(Path::new(files::WORK), &input)
}

/// Lints a text, or files below `root`.
pub fn run(root: &Path, input: &Input) -> Result<Output, Failure> {
    let mut all = Vec::new();
    match (&input.text, input.paths.is_empty()) {
        (Some(text), true) => {
            let language = input.language.ok_or_else(|| {
                Failure::bad_input("`text` needs `language`, because it has no file name")
            })?;
            all.extend(one(text, language, None, input)?);
        }
        (None, false) => {
            for path in &input.paths {
                let language = input.language.or_else(|| Language::of_path(Path::new(path)));
                let language = language.ok_or_else(|| {
                    Failure::bad_input(format_args!(
                        "{path:?}: unknown kind of file; say `language`"
                    ))
                })?;
                let text = files::read_text(root, path, MOST_BYTES)?;
                all.extend(one(&text, language, Some(path), input)?);
            }
        }
        _ => return Err(Failure::bad_input("give either `text` (with `language`) or `paths`")),
    }
    Ok(bounded(all, input.max_diagnostics))
}

fn one(
    text: &str,
    language: Language,
    path: Option<&str>,
    input: &Input,
) -> Result<Vec<Diagnostic>, Failure> {
    // Parsers differ in whether they count a byte order mark.
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let mut found = rules::check(text, language, path, &input.select)?;
    found.retain(|diagnostic| !input.ignore.contains(&diagnostic.rule));
    found.sort_by_key(|diagnostic| diagnostic.span.bytes);
    for diagnostic in &mut found {
        diagnostic.path = path.map(str::to_owned);
    }
    Ok(found)
}

fn bounded(all: Vec<Diagnostic>, most: Option<usize>) -> Output {
    let count = |severity| all.iter().filter(|found| found.severity == severity).count();
    let (errors, warnings) = (count(Severity::Error), count(Severity::Warning));
    let most = most.unwrap_or(MOST_DIAGNOSTICS).min(MOST_DIAGNOSTICS);
    let mut budget = Budget::new(most, MOST_OUTPUT);
    let diagnostics = all.into_iter().take_while(|found| budget.take(size(found))).collect();
    Output { diagnostics, errors, warnings, truncated: budget.exhausted() }
}

fn size(diagnostic: &Diagnostic) -> usize {
    let edits = diagnostic.fix.iter().flat_map(|fix| &fix.edits);
    let edits: usize = edits.map(|edit| edit.replacement.len() + 120).sum();
    diagnostic.message.len() + 250 + edits
}

/// What one set of rules found in a text.
pub(crate) struct Findings<'text> {
    pub(crate) lines: Lines<'text>,
    pub(crate) found: Vec<Diagnostic>,
}

impl<'text> Findings<'text> {
    pub(crate) fn of(text: &'text str) -> Self {
        Self { lines: Lines::of(text), found: Vec::new() }
    }

    pub(crate) fn add(
        &mut self,
        severity: Severity,
        rule: &str,
        bytes: std::ops::Range<usize>,
        message: impl std::fmt::Display,
    ) -> &mut Diagnostic {
        let span = self.lines.span(bytes);
        let (rule, message) = (rule.to_owned(), message.to_string());
        self.found.push(Diagnostic { path: None, severity, rule, message, span, fix: None });
        let last = self.found.len() - 1;
        &mut self.found[last]
    }

    pub(crate) fn fix(
        &mut self,
        message: &str,
        safe: bool,
        edits: impl IntoIterator<Item = (std::ops::Range<usize>, String)>,
    ) {
        let edit = |(bytes, replacement)| Edit { span: self.lines.span(bytes), replacement };
        let edits = edits.into_iter().map(edit).collect();
        if let Some(last) = self.found.last_mut() {
            last.fix = Some(Fix { message: message.to_owned(), safe, edits });
        }
    }
}
