//! Reads the configuration of git and Mercurial, leniently: what cannot be understood is a value, too.

use super::modules::{Modules, modules_of};

/// Sections whose values are never files or commands.
const HARMLESS_SECTIONS: [&str; 9] =
    ["branch", "user", "author", "committer", "color", "url", "push", "pull", "advice"];
/// Settings of any section whose values are never files or commands.
const HARMLESS_SETTINGS: [&str; 4] = ["url", "pushurl", "fetch", "push"];

/// The word after these is a directory that the rest of a command works in.
const LEADING_WORDS: [&str; 7] =
    ["cd", "pushd", "-C", "--directory", "--chdir", "--prefix", "--cwd"];

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
        parts(&self.value)
    }

    /// The directories in which the value, if it is a command, has others look for their files.
    pub(super) fn directories(&self) -> Vec<String> {
        if self.is_harmless() {
            return Vec::new();
        }
        let words = shell_words(&without_variables(&self.value));
        let after = words.windows(2).filter_map(|pair| match pair {
            [option, directory] if LEADING_WORDS.contains(&option.as_str()) => Some(directory),
            _ => None,
        });
        let attached = words.iter().filter_map(|word| word.strip_prefix("-C"));
        let all = after.map(String::as_str).chain(attached);
        all.filter(|directory| !directory.is_empty()).map(str::to_owned).collect()
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
        let bare = without_variables(&self.value);
        let mut words: Vec<String> = self.parts().map(str::to_owned).collect();
        words.extend(parts(&bare).map(str::to_owned));
        words.extend(shell_words(&self.value).into_iter().chain(shell_words(&bare)));
        words.push(self.value.trim_start_matches('!').to_owned());
        words.retain(|word| !word.is_empty() && !word.starts_with('-') && !word.starts_with('%'));
        words.sort();
        words.dedup();
        words
    }
}

/// What divides words besides space.
const BREAKS: &str = "`;|&()<>${}=:,!@";

fn parts(value: &str) -> impl Iterator<Item = &str> {
    let breaks = |c: char| c.is_whitespace() || c == '\'' || c == '"' || BREAKS.contains(c);
    value.split(breaks).filter(|part| !part.is_empty())
}

/// The words as a shell has them: with spaces in quotes, and without quotes and backslashes.
fn shell_words(value: &str) -> Vec<String> {
    let (mut words, mut word, mut quote) = (Vec::new(), String::new(), None);
    let mut chars = value.chars();
    while let Some(c) = chars.next() {
        match (c, quote) {
            (c, Some(open)) if c == open => quote = None,
            ('\\', None | Some('"')) => word.extend(chars.next()),
            ('\'' | '"', None) => quote = Some(c),
            (c, None) if c.is_whitespace() || BREAKS.contains(c) => {
                words.push(std::mem::take(&mut word));
            }
            (c, _) => word.push(c),
        }
    }
    words.push(word);
    words.retain(|word| !word.is_empty());
    words
}

/// Without the names of variables: git starts commands at the top, so `$PWD/tools/x` is `/tools/x` there.
fn without_variables(value: &str) -> String {
    let mut parts = value.split('$');
    let mut text = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        text += part.trim_start_matches(|c: char| c.is_ascii_alphanumeric() || c == '_');
    }
    text
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
            r"[core] fsmonitor = tools/\\hooks",
        ] {
            assert!(has(text, "tools/hooks"), "{text:?}: {:?}", words(text));
        }
        assert!(has("[core]\nhooksPath = \"my tools/hooks\"", "my tools/hooks"));
        for text in [
            r#"fsmonitor = "\"my tools/x\" a""#,
            "fsmonitor = 'my tools/x' a",
            r"a = my\\ tools/x b",
        ] {
            assert!(has(text, "my tools/x"), "{text:?}: {:?}", words(text));
        }
        assert!(has("clean = \"$PWD/tools/x\"", "/tools/x"));
    }

    #[test]
    fn directories_that_a_command_works_in_are_found() {
        for text in [
            "x = \"!f() { cd tools && ./x; }; f\"",
            "clean = make -s -C tools",
            "clean = make -Ctools",
            "clean = env --chdir=tools x",
            "clean = npm --prefix \"$PWD/tools\" run x",
        ] {
            let found: Vec<_> = Config::new(text).flat_map(|it| it.directories()).collect();
            assert!(
                found.iter().any(|it| it.trim_start_matches('/') == "tools"),
                "{text}: {found:?}"
            );
        }
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
