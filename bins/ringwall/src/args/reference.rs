//! Every verb and flag in docs/reference/cli.md, made from the same definitions as `--help`.

use std::fmt::Write;

use clap::{Arg, Command, CommandFactory};

use super::Cli;

pub(crate) fn reference() -> String {
    let mut text = "# The command line\n\nMade from the code by `ringwall reference`; a test fails where it \
        differs. `ringwall VERB --help` says the same; `ringwall man DIR` makes manual pages of it.\n"
        .to_owned();
    let mut root = Cli::command().disable_help_flag(true);
    root.build();
    for verb in root.get_subcommands() {
        describe(&mut text, "ringwall", verb);
    }
    text
}

fn describe(text: &mut String, above: &str, command: &Command) {
    if command.is_hide_set() || command.get_name() == "help" {
        return;
    }
    let path = format!("{above} {}", command.get_name());
    let _ = writeln!(text, "\n## {path}\n\n{}.", told(command.get_about()));
    let subcommands: Vec<&Command> = command.get_subcommands().collect();
    if subcommands.is_empty() {
        let usage = command.clone().render_usage().to_string();
        let _ = writeln!(text, "\n    {}", usage.trim_start_matches("Usage: ").trim());
    }
    if let Some(after) = command.get_after_help() {
        let _ = writeln!(text, "\n{after}");
    }
    let shown: Vec<&Arg> = command.get_arguments().filter(|it| is_shown(it)).collect();
    if !shown.is_empty() {
        let _ = writeln!(text, "\n| argument | what it does |\n|---|---|");
    }
    for argument in shown {
        let help = told(argument.get_long_help().or_else(|| argument.get_help()));
        let values = argument.get_possible_values();
        let values: Vec<&str> = values.iter().map(|value| value.get_name()).collect();
        let values = match values.is_empty() || !argument.get_action().takes_values() {
            true => String::new(),
            false => format!(" [{}]", values.join(", ")),
        };
        let defaults = argument.get_default_values();
        let defaults: Vec<_> = defaults.iter().map(|value| value.to_string_lossy()).collect();
        let default = match defaults.is_empty() || !argument.get_action().takes_values() {
            true => String::new(),
            false => format!(" [default: {}]", defaults.join(" ")),
        };
        let cell = format!("{help}{values}{default}").replace('|', "\\|");
        let _ = writeln!(text, "| `{}` | {cell} |", spelled(argument).replace('|', "\\|"));
    }
    for subcommand in subcommands {
        describe(text, &path, subcommand);
    }
}

fn is_shown(argument: &Arg) -> bool {
    !argument.is_hide_set() && !["help", "version"].contains(&argument.get_id().as_str())
}

/// As it is written: `-e, --env KEY=VALUE`.
fn spelled(argument: &Arg) -> String {
    let names = argument.get_value_names().unwrap_or_default();
    let takes = argument.get_action().takes_values();
    let value: Vec<String> = names.iter().map(ToString::to_string).filter(|_| takes).collect();
    let short = argument.get_short().map(|short| format!("-{short}"));
    let long = argument.get_long().map(|long| format!("--{long}"));
    let flags: Vec<String> = short.into_iter().chain(long).collect();
    match flags.is_empty() {
        true => value.join(" "),
        false => [flags.join(", "), value.join(" ")].join(" ").trim_end().to_owned(),
    }
}

fn told(words: Option<&clap::builder::StyledStr>) -> String {
    let words = words.map(ToString::to_string).unwrap_or_default();
    words.split_whitespace().collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_flag_stands_in_the_reference() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/reference/cli.md");
        let written = std::fs::read_to_string(path).unwrap_or_default();
        assert!(reference() == written, "docs/reference/cli.md: `ringwall reference` prints it");
    }
}
