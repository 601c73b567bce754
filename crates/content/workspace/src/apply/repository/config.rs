//! Reads the configuration of git and Mercurial, leniently: what cannot be understood is a value, too.

use super::modules::{Modules, modules_of};

/// Sections whose values are never files or commands.
const HARMLESS_SECTIONS: [&str; 9] =
    ["branch", "user", "author", "committer", "color", "url", "push", "pull", "advice"];
/// Settings of any section whose values are never files or commands.
const HARMLESS_SETTINGS: [&str; 4] = ["url", "pushurl", "fetch", "push"];

/// One setting with its value, without quotes and escapes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Setting {
    section: String,
    name: String,
    pub(super) value: String,
}

/// The settings of a file.
pub(super) struct Config<'a> {
    lines: std::str::Lines<'a>,
    section: String,
}

impl<'a> Config<'a> {
    pub(super) fn new(text: &'a str) -> Config<'a> {
        Config { lines: text.lines(), section: String::new() }
    }

    /// A line with those that continue it.
    fn next_line(&mut self) -> Option<String> {
        let mut line = self.lines.next()?.to_owned();
        while line.ends_with('\\') {
            line.pop();
            line.push_str(self.lines.next().unwrap_or_default());
        }
        Some(line)
    }

    /// Takes `[section "part"]` off a line. A setting may stand behind it.
    fn take_header(&mut self, line: &str) -> String {
        let Some(header) = line.trim_start().strip_prefix('[') else { return line.to_owned() };
        let mut quoted = false;
        let mut escaped = false;
        for (at, c) in header.char_indices() {
            match c {
                _ if escaped => escaped = false,
                '\\' => escaped = true,
                '"' => quoted = !quoted,
                ']' if !quoted => {
                    let name = header.get(..at).unwrap_or_default();
                    let name = name.split([' ', '\t', '.', '"']).next().unwrap_or_default();
                    self.section = name.to_lowercase();
                    return header.get(at + 1..).unwrap_or_default().to_owned();
                }
                _ => {}
            }
        }
        String::new()
    }
}

impl Iterator for Config<'_> {
    type Item = Setting;

    fn next(&mut self) -> Option<Setting> {
        loop {
            let line = self.next_line()?;
            let line = self.take_header(&line);
            let line = line.trim();
            if line.is_empty() || line.starts_with(['#', ';']) {
                continue;
            }
            // Mercurial continues a value on a line that begins with a space; it has no name then.
            let (name, value) = line.split_once('=').unwrap_or(("", line));
            return Some(Setting {
                section: self.section.clone(),
                name: name.trim().to_lowercase(),
                value: unquoted(value.trim()),
            });
        }
    }
}

fn unquoted(value: &str) -> String {
    let mut text = String::with_capacity(value.len());
    let mut escaped = false;
    for c in value.chars() {
        match c {
            _ if escaped => {
                text.push(c);
                escaped = false;
            }
            '\\' => escaped = true,
            '"' => {}
            c => text.push(c),
        }
    }
    text
}

impl Setting {
    /// `include.path` and `includeIf.*.path`, whatever the condition.
    pub(super) fn is_inclusion(&self) -> bool {
        self.section.starts_with("include") && self.name == "path"
    }

    /// The value is a path and nothing else.
    pub(super) fn is_path(&self) -> bool {
        ["path", "file", "dir", "worktree"].iter().any(|end| self.name.ends_with(end))
    }

    fn is_harmless(&self) -> bool {
        HARMLESS_SECTIONS.contains(&self.section.as_str())
            || HARMLESS_SETTINGS.contains(&self.name.as_str())
    }

    fn parts(&self) -> impl Iterator<Item = &str> {
        let breaks = |c: char| c.is_whitespace() || "'\"`;|&()<>${}=:,!@".contains(c);
        self.value.split(breaks).filter(|part| !part.is_empty())
    }

    /// The modules that the value, if it is a command, has an interpreter load.
    pub(super) fn modules(&self) -> Modules {
        // An alias without this sign is a command of git's own.
        let is_of_git = self.section == "alias" && !self.value.starts_with('!');
        if self.is_harmless() || is_of_git { Modules::default() } else { modules_of(self.parts()) }
    }

    /// The whole value and each word of it, as a shell would have them and a little finer.
    pub(super) fn words(&self) -> Vec<String> {
        if self.is_harmless() {
            return Vec::new();
        }
        let words = self.parts().map(str::to_owned);
        let whole = self.value.trim_start_matches('!').to_owned();
        let mut words: Vec<String> = words.chain([whole]).collect();
        words.retain(|word| !word.is_empty() && !word.starts_with('-') && !word.starts_with('%'));
        words.sort();
        words.dedup();
        words
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(text: &str) -> Vec<String> {
        Config::new(text).flat_map(|setting| setting.words()).collect()
    }

    fn has(text: &str, word: &str) -> bool {
        words(text).iter().any(|found| found == word)
    }

    #[test]
    fn values_are_found_however_they_are_written() {
        for text in [
            "[core]\n\thooksPath = tools/hooks\n",
            "[core] hookspath=tools/hooks",
            "[CORE]\nHOOKSPATH = \"tools/hooks\" ",
            "[core]\nhooksPath = tools\\\n/hooks",
            "[alias]\nx = !sh tools/hooks \"$@\"",
            "[filter \"a]b\"]\nclean = tools/hooks --stdin %f",
            "[credential \"https://x\"]\nhelper = \"!f() { tools/hooks; }; f\"",
            "[hooks]\ncommit = python:tools/hooks:main",
            "[merge \"m\"] driver = env A=tools/hooks true",
        ] {
            assert!(has(text, "tools/hooks"), "{text:?}: {:?}", words(text));
        }
        assert!(has("[core]\nhooksPath = \"my tools/hooks\"", "my tools/hooks"));
    }

    #[test]
    fn comments_and_names_of_branches_are_no_values() {
        for text in [
            "# tools/hooks",
            "[branch \"x\"]\nmerge = refs/heads/tools",
            "[remote \"o\"]\nurl = ./tools/hooks",
            "[user]\nname = tools/hooks",
        ] {
            assert!(words(text).is_empty(), "{text:?}: {:?}", words(text));
        }
    }

    #[test]
    fn what_is_torn_ends_in_an_answer() {
        for text in ["[core", "[a \"", "=", "\\", "[x]\\", "[]=]=", "[core]\nx = \"\\"] {
            let _ = words(text);
        }
    }
}
