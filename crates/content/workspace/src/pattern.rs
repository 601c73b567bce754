//! The pattern language of the rule files: which paths a rule means.
//!
//! A pattern is one or more names joined by `/`. `*` stands for any run of characters in a name,
//! `**` as a middle part for any number of directories, and `**` at the end for the directory
//! itself and everything below it. A pattern matches at any depth of the host's own path: a
//! workspace that is itself a `.github` has its workflows in `workflows`. Letters are
//! compared the way a case-folding file system does, so that `.GIT/hooks` is `.git/hooks`.

mod copies;

use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use copies::{is_copy, originals};

/// One pattern of a rule file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Pattern {
    parts: Vec<Part>,
    /// Ends in `/**`: also means everything below.
    below: bool,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Part {
    /// A folded name that may hold `*`.
    Name(Vec<u8>),
    AnyDirectories,
}

impl Pattern {
    pub(crate) fn parse(text: &str) -> Self {
        let (text, below) = match text.strip_suffix("/**") {
            Some(text) => (text, true),
            None => (text, false),
        };
        let parts = text
            .split('/')
            .map(|part| match part {
                "**" => Part::AnyDirectories,
                name => Part::Name(name.to_lowercase().into_bytes()),
            })
            .collect();
        Pattern { parts, below }
    }

    /// Whether the rule means this path.
    pub(crate) fn matches(&self, path: &Folded) -> bool {
        self.matches_or_above(path, self.below)
    }

    /// Whether the rule means this path or a directory that it is in.
    pub(crate) fn matches_above(&self, path: &Folded) -> bool {
        self.matches_or_above(path, true)
    }

    fn matches_or_above(&self, path: &Folded, below: bool) -> bool {
        let names = path.0.len();
        let fixed = !below && !self.parts.contains(&Part::AnyDirectories);
        // Without a `**` only so many names at the end can be meant.
        let first = if fixed { names.saturating_sub(self.parts.len()) } else { 0 };
        (first..names).any(|start| covers(&self.parts, &path.0[start..], below))
    }

    /// Whether a link at this path could make its target appear where the rule means: `.github`
    /// for the rule `.github/workflows/**`.
    pub(crate) fn leads_through(&self, path: &Folded) -> bool {
        self.names_led_through(path).is_some()
    }

    /// How many names at the end of this path the rule begins with, where something below the path
    /// could be what it means.
    pub(crate) fn names_led_through(&self, path: &Folded) -> Option<usize> {
        let begins = |start: &usize| {
            let names = &path.0[*start..];
            (1..self.parts.len()).any(|count| covers(&self.parts[..count], names, false))
        };
        let has_any = self.parts.contains(&Part::AnyDirectories);
        let first = if has_any { 0 } else { path.0.len().saturating_sub(self.parts.len()) };
        (first..path.0.len()).find(begins).map(|start| path.0.len() - start)
    }
}

/// A path with every name folded for comparison.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Folded(Vec<Vec<u8>>);

impl Folded {
    pub(crate) fn new(path: &Path) -> Self {
        Folded::default().join(path)
    }

    /// The path of something below this one.
    pub(crate) fn join(&self, below: &Path) -> Self {
        let names = below.iter().map(|name| fold(name.as_bytes()));
        Folded(self.0.iter().cloned().chain(names).collect())
    }

    /// So many names at the end.
    pub(crate) fn end(&self, names: usize) -> Self {
        Folded(self.0[self.0.len().saturating_sub(names)..].to_vec())
    }

    /// The paths of which this may be a copy that an editor or another program has left.
    pub(crate) fn originals(&self) -> Vec<Folded> {
        let Some((name, above)) = self.0.split_last() else { return Vec::new() };
        let above_is_copy = above.iter().any(|name| is_copy(name));
        if !above_is_copy && !is_copy(name) {
            return Vec::new();
        }
        let mut above = above.to_vec();
        for name in above.iter_mut().filter(|_| above_is_copy) {
            if let Some(original) = originals(name).pop() {
                *name = original;
            }
        }
        let of_name = |name: Vec<u8>| Folded(above.iter().cloned().chain([name]).collect());
        let names = originals(name);
        let names = if names.is_empty() { vec![name.clone()] } else { names };
        names.into_iter().map(of_name).collect()
    }
}

/// The form in which two names are one on a file system that folds case: lower case, without
/// invisible characters, and without the trailing dots and spaces that FAT and NTFS drop.
pub(crate) fn fold(name: &[u8]) -> Vec<u8> {
    let mut folded = String::with_capacity(name.len());
    let mut bytes = Vec::with_capacity(name.len());
    for chunk in name.utf8_chunks() {
        for c in chunk.valid().chars().filter(|c| !is_ignorable(*c)) {
            // U+017F, the long s, folds to s though it counts as lower case already.
            if c == '\u{17f}' { folded.push('s') } else { folded.extend(c.to_lowercase()) }
        }
        bytes.append(&mut std::mem::take(&mut folded).into_bytes());
        bytes.extend_from_slice(chunk.invalid());
    }
    let kept = bytes.iter().rposition(|b| !matches!(b, b'.' | b' ')).map_or(0, |at| at + 1);
    bytes.truncate(kept);
    bytes
}

/// Characters that ext4's and HFS+'s case folding drops: joiners, direction marks, variation
/// selectors. Git had to learn the same list for `.git`.
fn is_ignorable(c: char) -> bool {
    matches!(c, '\u{ad}' | '\u{34f}' | '\u{61c}' | '\u{180b}'..='\u{180f}' | '\u{200b}'..='\u{200f}'
        | '\u{202a}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{fe00}'..='\u{fe0f}' | '\u{feff}'
        | '\u{e0000}'..='\u{e0fff}')
}

/// Whether `parts` describe all of `names` or, with `below`, a beginning of them.
fn covers(parts: &[Part], names: &[Vec<u8>], below: bool) -> bool {
    match (parts.split_first(), names.split_first()) {
        (None, rest) => below || rest.is_none(),
        (Some((Part::AnyDirectories, rest)), _) => {
            (0..=names.len()).any(|skipped| covers(rest, &names[skipped..], below))
        }
        (Some((Part::Name(glob), rest)), Some((name, names))) => {
            glob_matches(glob, name) && covers(rest, names, below)
        }
        (Some(_), None) => false,
    }
}

/// `*` matching in linear space and, for the few stars of our own rules, linear time.
fn glob_matches(glob: &[u8], name: &[u8]) -> bool {
    let (mut at_glob, mut at_name) = (0, 0);
    let mut last_star = None;
    while at_name < name.len() {
        if glob.get(at_glob) == Some(&b'*') {
            last_star = Some((at_glob, at_name));
            at_glob += 1;
        } else if glob.get(at_glob) == Some(&name[at_name]) {
            at_glob += 1;
            at_name += 1;
        } else if let Some((star, taken)) = last_star {
            at_glob = star + 1;
            at_name = taken + 1;
            last_star = Some((star, taken + 1));
        } else {
            return false;
        }
    }
    glob[at_glob..].iter().all(|byte| *byte == b'*')
}

/// The lines of a rule file without comments and blanks.
pub(crate) fn rule_lines(text: &str) -> impl Iterator<Item = &str> {
    text.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#'))
}

#[cfg(test)]
mod tests {
    use std::ffi::OsStr;

    use super::*;

    fn matches(pattern: &str, path: &str) -> bool {
        Pattern::parse(pattern).matches(&Folded::new(Path::new(path)))
    }

    #[test]
    fn a_name_matches_at_any_depth_but_only_whole() {
        assert!(matches(".env", ".env"));
        assert!(matches(".env", "a/b/.env"));
        assert!(!matches(".env", ".envx"));
        assert!(!matches(".env", ".env/x"));
        assert!(!matches(".env", "x.env"));
    }

    #[test]
    fn stars_stay_within_a_name() {
        assert!(matches("*.pem", "deep/key.pem"));
        assert!(matches("a*b*c", "aXbYbc"));
        assert!(!matches("*.pem", "key.pem.txt"));
        assert!(!matches(".github/*.yml", ".github/a/b.yml"));
    }

    #[test]
    fn a_final_double_star_means_the_directory_and_all_below() {
        for path in [".git/hooks", ".git/hooks/pre-commit", "sub/.git/hooks/a/b"] {
            assert!(matches(".git/hooks/**", path), "{path}");
        }
        assert!(!matches(".git/hooks/**", ".git/hooksx"));
        assert!(!matches(".git/hooks/**", "hooks/x"));
    }

    #[test]
    fn a_middle_double_star_spans_directories() {
        let pattern = ".git/modules/**/config";
        assert!(matches(pattern, ".git/modules/config"));
        assert!(matches(pattern, ".git/modules/a/b/config"));
        assert!(!matches(pattern, ".git/modules/a/b/HEAD"));
    }

    #[test]
    fn a_link_above_a_ruled_path_leads_to_it() {
        let leads = |pattern: &str, path: &str| {
            Pattern::parse(pattern).leads_through(&Folded::new(Path::new(path)))
        };
        assert!(leads(".github/workflows/**", ".github"));
        assert!(leads(".git/modules/**/config", "sub/.git/modules"));
        assert!(!leads(".github/workflows/**", "workflows"));
        assert!(!leads("AGENTS.md", "docs"));
    }

    #[test]
    fn names_that_fold_together_are_one_name() {
        for path in [
            ".GIT/Hooks/x",
            ".git./hooks/x",
            ".git /hooks /x",
            ".g\u{200c}it/hooks/x",
            ".git/hoo\u{212a}s/x",
            ".git/hook\u{17f}/x",
        ] {
            assert!(matches(".git/hooks/**", path), "{path:?}");
        }
    }

    #[test]
    fn names_that_are_not_text_fold_without_loss() {
        let name = OsStr::from_bytes(b"A\xff.Pem");
        assert_eq!(fold(name.as_bytes()), b"a\xff.pem");
    }
}
