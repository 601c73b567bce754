//! A wrong command line as one line: the fault, and the fix.

use clap::error::{ContextKind, ContextValue, ErrorKind};

use crate::report::printable;

/// The command line asks for nothing that can be run.
#[derive(Debug)]
pub(crate) enum UsageError {
    /// Not an error at all: the text that `--help` or `--version` asked for.
    Asked(Box<clap::Error>),
    /// One line, without the `ringwall: ` in front.
    Wrong(String),
}

impl UsageError {
    /// `verb` is the part of the command line that names the subcommand: `ringwall image pull`.
    pub(super) fn new(error: clap::Error, verb: &str) -> UsageError {
        match error.kind() {
            ErrorKind::DisplayHelp | ErrorKind::DisplayVersion => {
                UsageError::Asked(Box::new(error))
            }
            // `ringwall` alone: its help says more than an error.
            ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand if verb == "ringwall" => {
                UsageError::Asked(Box::new(error))
            }
            _ => UsageError::Wrong(one_line(&error, verb)),
        }
    }
}

fn one_line(error: &clap::Error, verb: &str) -> String {
    let what = match error.kind() {
        ErrorKind::UnknownArgument => unknown_flag(error),
        ErrorKind::MissingRequiredArgument => missing(error),
        ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand | ErrorKind::MissingSubcommand => {
            "no subcommand was given; for example: ringwall run -- ls".to_owned()
        }
        ErrorKind::InvalidUtf8 => {
            "an argument that must be text is not UTF-8; only CMD, -e values and paths may be bytes"
                .to_owned()
        }
        _ => first_line_with_suggestion(error),
    };
    // Arguments may hold anything; the message stays one line.
    format!("{} (see {verb} --help)", printable(&what))
}

fn unknown_flag(error: &clap::Error) -> String {
    let flag = text(error, ContextKind::InvalidArg).unwrap_or_default();
    if !flag.starts_with('-') {
        return format!("unexpected argument '{flag}'; leave it out");
    }
    if let Some(new) = new_name(&flag) {
        return format!("the flag '{flag}' is called '{new}' now; write {new}");
    }
    match near(error, ContextKind::SuggestedArg, &flag) {
        Some(near) => format!("unknown flag '{flag}'; did you mean '{near}'?"),
        None => format!(
            "unknown flag '{flag}'; leave it out, or put -- before it if it belongs to the command"
        ),
    }
}

/// The name that a flag of earlier versions has now.
fn new_name(flag: &str) -> Option<&'static str> {
    match flag {
        "--tier" => Some("--trust"),
        "--profile" => Some("--risk"),
        _ => None,
    }
}

fn missing(error: &clap::Error) -> String {
    let names = text(error, ContextKind::InvalidArg).unwrap_or_default();
    if names.contains("CMD") {
        return "no command was given; put it after --, for example -- ls /".to_owned();
    }
    format!("{names} is missing; give it")
}

/// clap's own first line, followed by the near match or the possible values it knows of.
fn first_line_with_suggestion(error: &clap::Error) -> String {
    let rendered = error.render().to_string();
    let first = rendered.lines().next().unwrap_or("the command line is wrong");
    let first = first.strip_prefix("error: ").unwrap_or(first);
    let first = first.strip_prefix("invalid value '' for ").unwrap_or(first);
    let near = [
        (ContextKind::SuggestedSubcommand, ContextKind::InvalidSubcommand),
        (ContextKind::SuggestedValue, ContextKind::InvalidValue),
    ]
    .into_iter()
    .find_map(|(kind, given)| near(error, kind, &text(error, given)?));
    match (near, text(error, ContextKind::ValidValue)) {
        (Some(near), _) => format!("{first}; did you mean '{near}'?"),
        (None, Some(valid)) if !valid.is_empty() => format!("{first}; use one of: {valid}"),
        _ => first.to_owned(),
    }
}

/// A word that is really near to the given one: clap's own suggestions share letters, not more.
fn near(error: &clap::Error, kind: ContextKind, given: &str) -> Option<String> {
    let suggested = match error.get(kind)? {
        ContextValue::String(text) => vec![text.clone()],
        ContextValue::Strings(texts) => texts.clone(),
        _ => return None,
    };
    ringwall_policy::nearest(given, &suggested).map(str::to_owned)
}

fn text(error: &clap::Error, kind: ContextKind) -> Option<String> {
    match error.get(kind)? {
        ContextValue::String(text) => Some(text.clone()),
        ContextValue::Strings(texts) if texts.is_empty() => None,
        ContextValue::Strings(texts) => Some(texts.join(", ")),
        _ => None,
    }
}
