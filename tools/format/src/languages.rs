//! One formatter for each language, all behind the same function.

use std::path::{Path, PathBuf};

use dprint_plugin_typescript::FormatTextOptions;
use ringwall_tool_sdk::Failure;
use ruff_formatter::LineWidth;
use ruff_python_formatter::{PyFormatOptions, format_module_source};
use serde::{Deserialize, Serialize};

use crate::{Formatted, rust};

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Language {
    Json,
    Toml,
    Markdown,
    Rust,
    Python,
    JavaScript,
    Jsx,
    TypeScript,
    Tsx,
}

impl Language {
    pub fn of_path(path: &Path) -> Option<Self> {
        Some(match path.extension()?.to_str()? {
            "json" | "jsonc" => Self::Json,
            "toml" => Self::Toml,
            "md" | "markdown" => Self::Markdown,
            "rs" => Self::Rust,
            "py" | "pyi" => Self::Python,
            "js" | "mjs" | "cjs" => Self::JavaScript,
            "jsx" => Self::Jsx,
            "ts" | "mts" | "cts" => Self::TypeScript,
            "tsx" => Self::Tsx,
            _ => return None,
        })
    }
}

pub(crate) fn format(language: Language, old: &str, width: u16) -> Result<Formatted, Failure> {
    let text = match language {
        Language::Json => json(old, width)?,
        Language::Toml => toml(old, width)?,
        Language::Markdown => markdown(old, width)?,
        Language::Python => python(old, width)?,
        Language::JavaScript => script(old, width, "js")?,
        Language::Jsx => script(old, width, "jsx")?,
        Language::TypeScript => script(old, width, "ts")?,
        Language::Tsx => script(old, width, "tsx")?,
        Language::Rust => return rust::format(old),
    };
    Ok(Formatted { text, left: Vec::new() })
}

/// What a formatter says of a text that it cannot parse.
pub(crate) fn unparsable(error: impl std::fmt::Display) -> Failure {
    Failure::bad_input(format_args!(
        "the text has a syntax error, so it was not formatted: {error}"
    ))
}

fn json(old: &str, width: u16) -> Result<String, Failure> {
    use dprint_plugin_json::configuration::ConfigurationBuilder;
    let config = ConfigurationBuilder::new().line_width(width.into()).build();
    // The name matters for package.json only, whose order is left alone here.
    let new = dprint_plugin_json::format_text(Path::new("text.json"), old, &config);
    Ok(new.map_err(unparsable)?.unwrap_or_else(|| old.to_owned()))
}

fn toml(old: &str, width: u16) -> Result<String, Failure> {
    let tree = taplo::parser::parse(old);
    if let Some(error) = tree.errors.first() {
        return Err(unparsable(error));
    }
    let options = taplo::formatter::Options { column_width: width.into(), ..Default::default() };
    Ok(taplo::formatter::format_syntax(tree.into_syntax(), options))
}

/// Code inside fences is formatted too, where its language is known and it parses.
fn markdown(old: &str, width: u16) -> Result<String, Failure> {
    use dprint_plugin_markdown::configuration::ConfigurationBuilder;
    let config = ConfigurationBuilder::new().line_width(width.into()).build();
    let fence = |tag: &str, code: &str, width: u32| {
        let language = match tag {
            "json" | "jsonc" => Language::Json,
            "toml" => Language::Toml,
            "python" | "py" => Language::Python,
            "js" | "javascript" => Language::JavaScript,
            "ts" | "typescript" => Language::TypeScript,
            _ => return Ok(None),
        };
        let width = u16::try_from(width).unwrap_or(u16::MAX);
        Ok(format(language, code, width).ok().map(|formatted| formatted.text))
    };
    let new = dprint_plugin_markdown::format_text(old, &config, fence);
    Ok(new.map_err(unparsable)?.unwrap_or_else(|| old.to_owned()))
}

fn python(old: &str, width: u16) -> Result<String, Failure> {
    let width = LineWidth::try_from(width)
        .map_err(|_| Failure::bad_input("`line_width` is 1 to 320 for Python"))?;
    let options = PyFormatOptions::from_extension(Path::new("text.py")).with_line_width(width);
    Ok(format_module_source(old, options).map_err(unparsable)?.into_code())
}

fn script(old: &str, width: u16, extension: &str) -> Result<String, Failure> {
    use dprint_plugin_typescript::configuration::ConfigurationBuilder;
    let config = ConfigurationBuilder::new().line_width(width.into()).build();
    let new = dprint_plugin_typescript::format_text(FormatTextOptions {
        path: &PathBuf::from(format!("text.{extension}")),
        extension: Some(extension),
        text: old.to_owned(),
        config: &config,
        external_formatter: None,
    });
    Ok(new.map_err(unparsable)?.unwrap_or_else(|| old.to_owned()))
}
