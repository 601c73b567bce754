//! Which commands are which kind of work, by their first words.
//!
//! Whoever writes a command may lie about it, so only commands that a shell cannot read in another way are
//! known at all: plain words, of which the first names a program and no path.

use serde::{Deserialize, Serialize};

use crate::stack::Stack;
use crate::values::ValueError;
use crate::words::Kind;

/// The first words of a command: `make`, `cargo build`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub(crate) struct FirstWords(Vec<String>);

/// Characters that a shell passes on as they are, wherever they stand.
fn is_plain(word: &str) -> bool {
    word.chars().all(|c| c.is_ascii_alphanumeric() || "_-./:@%+,=".contains(c))
}

/// The words of a command, if they are all that a shell would make of it.
fn plain_words(command: &str) -> Option<Vec<&str>> {
    // A line break ends a command, and other white space is part of a word.
    let words: Vec<&str> = command.split(' ').filter(|word| !word.is_empty()).collect();
    let program = words.first()?;
    // A path leads to what the job wrote, and an assignment changes what the program is.
    let names_a_program = !program.contains(['/', '=']) && !program.starts_with(['.', '-']);
    (names_a_program && words.iter().all(|word| is_plain(word))).then_some(words)
}

impl FirstWords {
    fn begins(&self, words: &[&str]) -> bool {
        words.len() >= self.0.len() && self.0.iter().zip(words).all(|(own, word)| own == word)
    }

    fn text(&self) -> String {
        self.0.join(" ")
    }
}

impl TryFrom<String> for FirstWords {
    type Error = ValueError;

    fn try_from(text: String) -> Result<FirstWords, ValueError> {
        match plain_words(&text) {
            Some(words) => Ok(FirstWords(words.into_iter().map(str::to_owned).collect())),
            None => Err(ValueError::Command(text)),
        }
    }
}

impl From<FirstWords> for String {
    fn from(words: FirstWords) -> String {
        words.text()
    }
}

impl Stack {
    /// The kind of work that a shell command is. The first layer must know it; the riskiest of all that know
    /// it counts, so a layer below can only raise the risk.
    pub fn kind_of_command(&self, command: &str) -> Option<Kind> {
        let words = plain_words(command)?;
        let mut kinds = self.layers().iter().map(|layer| {
            let rules = layer.file.command.iter().map(|rule| &rule.value);
            let known = rules.filter(|rule| rule.run.iter().any(|first| first.begins(&words)));
            known.map(|rule| rule.kind).max()
        });
        let first = kinds.next().flatten()?;
        Some(kinds.flatten().fold(first, Kind::max))
    }

    /// All first words that a layer speaks of.
    pub(crate) fn known_commands(&self) -> impl Iterator<Item = String> {
        let rules = self.layers().iter().flat_map(|layer| &layer.file.command);
        rules.flat_map(|rule| &rule.value.run).map(FirstWords::text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_that_a_shell_reads_in_another_way_has_no_plain_words() {
        assert_eq!(plain_words("cargo  build --locked"), Some(vec!["cargo", "build", "--locked"]));
        for odd in [
            "",
            " ",
            "cargo build; ./x",
            "cargo build && ./x",
            "cargo build | sh",
            "cargo build\n./x",
            "cargo build\t./x",
            "cargo $(./x)",
            "cargo `./x`",
            "cargo build > /etc/x",
            "cargo 'build'",
            "cargo \\build",
            "cargo {build,x}",
            "cargo *",
            "cargo ~/x",
            "cargo build # x",
            "./cargo build",
            "/workspace/cargo build",
            ".",
            "PATH=. cargo build",
            "cargo b\u{2028}uild",
            "!cargo",
        ] {
            assert_eq!(plain_words(odd), None, "{odd:?}");
            assert!(FirstWords::try_from(odd.to_owned()).is_err(), "{odd:?}");
        }
    }
}
