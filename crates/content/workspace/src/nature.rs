//! What a change is by its nature: what programs on the host would do with it, whatever its name.
//!
//! The list of protected names can never be complete. So every change is ranked, people are shown the
//! rank, and `apply --strict` takes only plain changes unasked.

use std::fmt;
use std::fs::File;
use std::io::Read;
use std::path::{Component, Path};

use crate::apply::is_protected;
use crate::manifest::{After, Before, Change, Changes};
use crate::path::RelPath;
use crate::pattern::fold;
use crate::show::quoted;

/// From harmless to what the host obeys without being asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Nature {
    /// Sources, documents and data: somebody has to open or build them.
    Plain,
    /// A symbolic link.
    Link,
    /// Below a directory at the top of the workspace whose name begins with a dot.
    DotDirectory,
    /// Settings or instructions that a tool reads, and build files.
    Configuration,
    /// A file that became executable, or machine code.
    Executable,
    /// In a directory of hooks, or with the name of a hook.
    Hook,
    /// One of the paths that `apply` never writes unless they are named.
    Protected,
}

/// A change that is not plain.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ranked {
    pub path: RelPath,
    pub nature: Nature,
}

/// Changes that are not plain, for a message: the most dangerous first, and cut after a few.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RankedList(pub Vec<Ranked>);

/// What programs that people write mean to be executed.
const MACHINE_CODE: [&[u8]; 5] =
    [b"\x7fELF", b"MZ", b"\0asm", b"\xca\xfe\xba\xbe", b"\xcf\xfa\xed\xfe"];
/// What happens when git, or another program with hooks, does something.
const EVENTS: [&str; 13] = [
    "applypatch",
    "auto-gc",
    "checkout",
    "commit",
    "index-change",
    "install",
    "merge",
    "push",
    "rebase",
    "receive",
    "rewrite",
    "start",
    "update",
];
const HOOKS: [&str; 7] = [
    "applypatch-msg",
    "commit-msg",
    "prepare-commit-msg",
    "proc-receive",
    "push-to-checkout",
    "reference-transaction",
    "fsmonitor-watchman",
];
/// Ends of names that settings and build files have at any depth.
const SETTINGS: [&str; 20] = [
    ".cfg",
    ".cmake",
    ".conf",
    ".config",
    ".csproj",
    ".gradle",
    ".gradle.kts",
    ".ini",
    ".mk",
    ".nix",
    ".props",
    ".properties",
    ".service",
    ".sln",
    ".targets",
    "build.rs",
    "cmakelists.txt",
    "conftest.py",
    "setup.py",
    "meson.build",
];
/// Forms that settings have: at the top of a workspace tools look for them.
const FORMS: [&str; 9] =
    [".toml", ".yaml", ".yml", ".json", ".jsonc", ".json5", ".xml", ".plist", ".lock"];
/// Documents in capital letters that people read, and agents do not obey.
const DOCUMENTS: [&str; 16] = [
    "architecture",
    "authors",
    "changelog",
    "changes",
    "code_of_conduct",
    "contributing",
    "copying",
    "credits",
    "faq",
    "history",
    "install",
    "license",
    "news",
    "notice",
    "readme",
    "security",
];

impl Nature {
    pub fn words(self) -> &'static str {
        match self {
            Nature::Plain => "plain",
            Nature::Link => "link",
            Nature::DotDirectory => "dot-directory",
            Nature::Configuration => "configuration",
            Nature::Executable => "new executable",
            Nature::Hook => "hook",
            Nature::Protected => "protected",
        }
    }
}

impl Changes {
    /// What a change of these is by its nature.
    pub fn nature_of(&self, change: &Change) -> Nature {
        let path = change.path.as_path();
        if change.hidden || is_protected(&self.workspace(), path) {
            return Nature::Protected;
        }
        let is_directory = match (&change.before, &change.after) {
            (_, Some(after)) => matches!(after, After::Directory { .. }),
            (before, None) => matches!(before, Some(Before::Directory { .. })),
        };
        // It shows by what is in it.
        if is_directory {
            return Nature::Plain;
        }
        let by_content = match &change.after {
            Some(After::Symlink { .. }) => Nature::Link,
            Some(After::File { mode, .. }) if self.becomes_executable(change, *mode) => {
                Nature::Executable
            }
            _ => Nature::Plain,
        };
        by_content.max(by_name(path))
    }

    /// All changes that are not plain.
    pub fn ranked<'c>(&self, changes: impl IntoIterator<Item = &'c Change>) -> RankedList {
        let ranked = changes
            .into_iter()
            .map(|change| Ranked { path: change.path.clone(), nature: self.nature_of(change) });
        RankedList(ranked.filter(|ranked| ranked.nature != Nature::Plain).collect())
    }

    fn becomes_executable(&self, change: &Change, mode: u32) -> bool {
        let was = match &change.before {
            Some(Before::File { mode, .. }) => mode & 0o111 != 0,
            _ => false,
        };
        (mode & 0o111 != 0 && !was) || self.is_machine_code(change)
    }

    fn is_machine_code(&self, change: &Change) -> bool {
        let Some(path) = self.content_of(change) else { return false };
        let mut start = Vec::new();
        let read = File::open(path).and_then(|file| file.take(4).read_to_end(&mut start));
        // What cannot be read is not applied either.
        read.is_ok() && MACHINE_CODE.iter().any(|magic| start.starts_with(magic))
    }
}

fn by_name(path: &Path) -> Nature {
    let names: Vec<String> = path
        .components()
        .filter_map(|part| match part {
            Component::Normal(name) => Some(name.as_encoded_bytes()),
            _ => None,
        })
        .map(|name| String::from_utf8_lossy(&fold(name)).into_owned())
        .collect();
    let Some((name, above)) = names.split_last() else { return Nature::Plain };
    let is_hooks = |directory: &String| {
        directory.ends_with("hooks") || directory.ends_with("hooks.d") || directory.ends_with(".d")
    };
    if above.iter().any(is_hooks) || is_hook(name) {
        return Nature::Hook;
    }
    let dotted = |name: &String| name.starts_with('.') || name.starts_with("_darcs");
    if above.first().is_some_and(dotted) {
        return Nature::DotDirectory;
    }
    let unfolded = path.file_name().unwrap_or_default().to_string_lossy();
    let is_settings = above.iter().any(dotted)
        || (dotted(name) && !is_inert(name))
        || has_settings_name(name)
        || (above.is_empty() && FORMS.iter().any(|form| name.ends_with(form)))
        || is_build_file(&unfolded)
        || is_instructions(&unfolded, name);
    if is_settings { Nature::Configuration } else { Nature::Plain }
}

fn is_hook(name: &str) -> bool {
    let stem = name.split('.').next().unwrap_or_default();
    let event = stem.strip_prefix("pre").or_else(|| stem.strip_prefix("post"));
    let event = event.map(|event| event.strip_prefix('-').unwrap_or(event));
    HOOKS.contains(&stem) || event.is_some_and(|event| EVENTS.contains(&event))
}

/// Names of lists that tools only leave files out by.
fn is_inert(name: &str) -> bool {
    name.ends_with("ignore") || matches!(name, ".gitkeep" | ".keep" | ".editorconfig")
}

fn has_settings_name(name: &str) -> bool {
    let (stem, end) = name.split_once('.').unwrap_or((name, ""));
    let has_form = matches!(end, "" | "js" | "cjs" | "mjs" | "json" | "yml" | "yaml" | "toml");
    SETTINGS.iter().any(|end| name.ends_with(end))
        || name.contains(".config.")
        || (stem.len() > 2 && stem.ends_with("rc") && has_form)
}

/// `Makefile`, `Dockerfile`, `Vagrantfile`: they say what is done.
fn is_build_file(name: &str) -> bool {
    let stem = name.split('.').next().unwrap_or_default();
    let is_capital = stem.starts_with(|c: char| c.is_ascii_uppercase());
    (is_capital && stem.ends_with("file")) || matches!(name, "makefile" | "justfile")
}

/// `WARP.md`, `AGENTS.md`: in capital letters, for whoever works here.
fn is_instructions(name: &str, folded: &str) -> bool {
    let Some((stem, end)) = name.rsplit_once('.') else { return false };
    let is_capital = !stem.is_empty() && !stem.contains(|c: char| c.is_lowercase());
    let folded_stem = folded.split('.').next().unwrap_or_default();
    let is_text = matches!(end.to_ascii_lowercase().as_str(), "md" | "mdc" | "txt");
    is_text
        && is_capital
        && stem.contains(|c: char| c.is_uppercase())
        && !DOCUMENTS.iter().any(|document| folded_stem.starts_with(document))
}

impl RankedList {
    const SHOWN: usize = 10;

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl fmt::Display for RankedList {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut ranked: Vec<&Ranked> = self.0.iter().collect();
        ranked.sort_by(|a, b| (b.nature, &a.path).cmp(&(a.nature, &b.path)));
        for (index, Ranked { path, nature }) in ranked.iter().take(Self::SHOWN).enumerate() {
            let comma = if index == 0 { "" } else { ", " };
            write!(f, "{comma}{} ({})", quoted(path.as_path()), nature.words())?;
        }
        match ranked.len().saturating_sub(Self::SHOWN) {
            0 => Ok(()),
            more => write!(f, " and {more} more"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn nature(path: &str) -> Nature {
        if is_protected(Path::new("/w"), Path::new(path)) {
            Nature::Protected
        } else {
            by_name(Path::new(path))
        }
    }

    #[test]
    fn names_that_programs_of_the_host_obey_are_never_plain() {
        for path in [
            ".hg/hgrc-not-shared",
            ".direnv/flake.rc",
            "mise.local.toml",
            ".mise.local.toml",
            ".config/mise/config.toml",
            ".bsp/sbt.json",
            ".theia/tasks.json",
            ".vs/launch.vs.json",
            ".gitpod.yml",
            ".externalToolBuilders/x.launch",
            "_darcs/prefs/defaults",
            ".pijul/config",
            ".iex.exs",
            ".ghci",
            ".ocamlinit",
            ".octaverc",
            ".perldb",
            ".byebugrc",
            ".valgrindrc",
            "ansible.cfg",
            ".pylintrc",
            ".luacheckrc",
            ".eslintrc.js",
            ".php-cs-fixer.php",
            ".zuul.yaml",
            ".taskcluster.yml",
            "bitrise.yml",
            "codemagic.yaml",
            "netlify.toml",
            ".readthedocs.yaml",
            "WARP.md",
            ".rules",
            ".factory/x",
            ".claude-plugin/x",
            ".amp/x",
            ".github/skills/x",
        ] {
            assert_eq!(nature(path), Nature::Protected, "{path}");
            let unknown = by_name(Path::new(path));
            assert!(unknown > Nature::Plain, "{path} is plain without the list");
        }
        // No list has these.
        for (path, expected) in [
            ("sub/.newtoolrc", Nature::Configuration),
            (".newtool/start.sh", Nature::DotDirectory),
            ("newtool.config.mjs", Nature::Configuration),
            ("sub/newtoolrc.cjs", Nature::Configuration),
            ("tools/newhooks/on-open", Nature::Hook),
            ("scripts/post-checkout.sh", Nature::Hook),
            ("etc/profile.d/x.sh", Nature::Hook),
            ("Newfile", Nature::Configuration),
            ("NEWAGENT.md", Nature::Configuration),
            ("newci.yml", Nature::Configuration),
        ] {
            assert_eq!(nature(path), expected, "{path}");
        }
    }

    #[test]
    fn sources_documents_and_data_are_plain() {
        for path in [
            "src/main.rs",
            "src/arc.rs",
            "README.md",
            "docs/guide.md",
            "CHANGELOG.md",
            "LICENSE",
            "LICENSE-MIT.txt",
            "data/rows.json",
            "i18n/de.yml",
            ".gitignore",
            "lib/update.py",
            "src/prefix.c",
            "lib/profile.c",
            "src/postgres.rs",
        ] {
            assert_eq!(nature(path), Nature::Plain, "{path}");
        }
    }
}
