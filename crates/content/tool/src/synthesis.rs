//! A manifest for a program that has none, made from what it says with `--help`.

use serde_json::json;

use crate::manifest::{Manifest, ManifestError};

const MOST_SUMMARY: usize = 160;
const MOST_DESCRIPTION: usize = 16 << 10;

/// Describes the program in `file`: arguments and standard input in, standard output, standard error
/// and exit code out. `help` is untrusted text.
pub fn manifest_from_help(file: &str, help: &str) -> Result<Manifest, ManifestError> {
    let help = clean(help);
    let manifest = json!({
        "schema": 1,
        "name": name_of(file),
        "version": "0.0.0",
        "kind": "command",
        "summary": summary_of(&help).unwrap_or_else(|| format!("The program {}", name_of(file))),
        "description": cut(&help, MOST_DESCRIPTION),
        "input": {
            "type": "object",
            "properties": {
                "args": { "type": "array", "items": { "type": "string" }, "description": "Arguments" },
                "stdin": { "type": "string", "description": "Standard input" }
            },
            "additionalProperties": false
        },
        "output": {
            "type": "object",
            "properties": {
                "stdout": { "type": "string" },
                "stderr": { "type": "string" },
                "exit_code": { "type": "integer" }
            },
            "required": ["stdout", "stderr", "exit_code"]
        },
        "wants": { "dirs": [
            { "path": "/work", "access": "rw", "optional": true, "why": "files named in its arguments" }
        ] },
        "command": { "args": ["{args}"], "stdin": "{stdin}", "stdout": "text" }
    });
    Manifest::parse(manifest.to_string().as_bytes())
}

/// `Foo_Bar-2.wasm` is called `foo-bar-2`.
fn name_of(file: &str) -> String {
    let stem = file.strip_suffix(".wasm").unwrap_or(file).to_ascii_lowercase();
    let plain: String =
        stem.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '-' }).collect();
    let name: String =
        plain.trim_start_matches(|c: char| !c.is_ascii_lowercase()).chars().take(64).collect();
    let name = name.trim_end_matches('-');
    if name.is_empty() { "program".to_owned() } else { name.to_owned() }
}

/// The first line that is not how to call it.
fn summary_of(help: &str) -> Option<String> {
    let lines = || help.lines().map(str::trim).filter(|line| !line.is_empty());
    let usage = |line: &str| line.to_ascii_lowercase().starts_with("usage");
    let line = lines().find(|line| !usage(line)).or_else(|| lines().next())?;
    Some(cut(line, MOST_SUMMARY).to_owned())
}

/// Without control characters, which would give orders to a terminal.
fn clean(help: &str) -> String {
    let mut clean = String::new();
    let mut characters = help.chars();
    while let Some(character) = characters.next() {
        match character {
            '\n' => clean.push('\n'),
            '\t' => clean.push(' '),
            // A colour or cursor sequence ends with a letter.
            '\u{1b}' => drop(characters.by_ref().find(char::is_ascii_alphabetic)),
            c if c.is_control() => {}
            c => clean.push(c),
        }
    }
    clean
}

fn cut(text: &str, most: usize) -> &str {
    &text[..text.floor_char_boundary(most)]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_is_described_by_its_file_and_its_help() {
        let help = "Usage: wc [FILE]...\n\n\u{1b}[1mCounts\u{1b}[0m lines\tand words.\n  -l lines";
        let manifest = manifest_from_help("My_WC.wasm", help).unwrap();
        assert_eq!(manifest.name, "my-wc");
        assert_eq!(manifest.summary, "Counts lines and words.");
        assert!(manifest.description.ends_with("-l lines"));
    }

    #[test]
    fn whatever_the_help_says_there_is_a_manifest() {
        for (file, help) in [("", ""), ("9.wasm", "usage only"), ("-é-.wasm", "\u{1b}\0\u{7}")] {
            let manifest = manifest_from_help(file, help).unwrap();
            assert_eq!(manifest.name, "program");
        }
        let long = manifest_from_help("x", &"é".repeat(100_000)).unwrap();
        assert!(long.summary.len() <= MOST_SUMMARY && long.description.len() <= MOST_DESCRIPTION);
    }
}
