//! Patterns over paths and names, and the canonical values that they are compared with.
//!
//! A pattern is a few alternatives of literal text with `*` between; Cedar's `like` and
//! [`Glob::matches`] read them the same way.

use ringwall_spec::ToolDigest;
use serde::{Deserialize, Serialize};

use crate::values::ValueError;

const MOST_PATTERN: usize = 512;

/// Literal text, with `None` for any run of characters.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Glob(pub(crate) Vec<Option<String>>);

/// What a path pattern starts from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Anchor {
    Root,
    Home,
    Workspace,
}

/// `/abs/path`, `~/below/home/**`, `./below/workspace/**`, `./**/name`, `./**/*.ext`. `**` is any
/// number of directories; at the end it is the directory and all that is below.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct PathPattern {
    text: String,
    pub(crate) anchor: Anchor,
    pub(crate) alternatives: Vec<Glob>,
}

/// A tool's name, or one with `*` for any run of characters.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct NamePattern(String);

// === impl Glob ===

impl Glob {
    pub(crate) fn of(text: &str) -> Glob {
        let mut parts = Vec::new();
        for (index, part) in text.split('*').enumerate() {
            if index > 0 {
                parts.push(None);
            }
            if !part.is_empty() {
                parts.push(Some(part.to_owned()));
            }
        }
        Glob(parts)
    }

    pub(crate) fn matches(&self, text: &str) -> bool {
        fn from(parts: &[Option<String>], text: &str) -> bool {
            match parts.split_first() {
                None => text.is_empty(),
                Some((Some(literal), rest)) => {
                    text.strip_prefix(literal.as_str()).is_some_and(|text| from(rest, text))
                }
                Some((None, [])) => true,
                Some((None, rest)) => {
                    text.char_indices().any(|(at, _)| from(rest, &text[at..])) || from(rest, "")
                }
            }
        }
        from(&self.0, text)
    }
}

// === impl PathPattern ===

impl TryFrom<String> for PathPattern {
    type Error = ValueError;

    fn try_from(text: String) -> Result<Self, ValueError> {
        let wrong = |why: &'static str| ValueError::Path { text: text.clone(), why };
        if text.len() > MOST_PATTERN {
            return Err(ValueError::TooLong { what: "a path pattern", most: MOST_PATTERN });
        }
        if text.chars().any(char::is_control) {
            return Err(wrong("it holds a control character"));
        }
        let (anchor, rest) = match text.split_at_checked(1) {
            Some(("/", rest)) => (Anchor::Root, rest),
            Some(("~", rest)) => (Anchor::Home, rest.strip_prefix('/').unwrap_or(rest)),
            Some((".", rest)) => (Anchor::Workspace, rest.strip_prefix('/').unwrap_or(rest)),
            _ => {
                return Err(wrong("start it with /, with ~/ for the home or ./ for the workspace"));
            }
        };
        let well_begun = anchor == Anchor::Root || text.len() == 1 || text[1..].starts_with('/');
        if !well_begun {
            return Err(wrong("after ~ or . comes a /"));
        }
        let components: Vec<&str> =
            if rest.is_empty() { Vec::new() } else { rest.split('/').collect() };
        let mut globs = vec![String::new()];
        for (index, component) in components.iter().enumerate() {
            let last = index + 1 == components.len();
            let after_any = index > 0 && components[index - 1] == "**";
            match *component {
                "" | "." | ".." => return Err(wrong("leave out empty parts, . and ..")),
                "**" if last => {
                    let below: Vec<String> = globs.iter().map(|glob| format!("{glob}/*")).collect();
                    globs.extend(below);
                }
                "**" if globs.len() == 1 => {
                    let deeper = format!("{}/*", globs[0]);
                    globs.push(deeper);
                }
                "**" => return Err(wrong("** may stand once in the middle and once at the end")),
                name if name.contains('*') => {
                    let extension = name.strip_prefix('*').filter(|rest| !rest.contains('*'));
                    let Some(extension) = extension.filter(|_| last && after_any) else {
                        return Err(wrong(
                            "use * only as /** or as a last part after it: **/*.ext",
                        ));
                    };
                    globs = vec![format!("{}/*{extension}", globs[0])];
                }
                name => globs.iter_mut().for_each(|glob| {
                    glob.push('/');
                    glob.push_str(name);
                }),
            }
        }
        // The top itself is written as a slash.
        let alternatives =
            globs.iter().map(|glob| Glob::of(if glob.is_empty() { "/" } else { glob })).collect();
        Ok(PathPattern { anchor, alternatives, text })
    }
}

impl PathPattern {
    pub fn as_str(&self) -> &str {
        &self.text
    }

    pub fn matches(&self, path: &FilePath) -> bool {
        let value = path.below(self.anchor);
        self.alternatives.iter().any(|glob| glob.matches(value))
    }

    /// The directory or file that everything lies at or below that the pattern matches: its path up to the first
    /// `*`. None where the pattern begins at a home or a workspace that the task does not have.
    pub fn top(&self, anchors: &Anchors) -> Option<String> {
        let anchor = match self.anchor {
            Anchor::Root => "",
            Anchor::Home => anchors.home.as_deref()?,
            Anchor::Workspace => anchors.workspace.as_deref()?,
        };
        let below = self.text.trim_start_matches(['~', '.']).split('/').skip(1);
        let fixed: Vec<&str> =
            below.take_while(|part| !part.contains('*')).filter(|part| !part.is_empty()).collect();
        let mut top = anchor.trim_end_matches('/').to_owned();
        for part in fixed {
            top.push('/');
            top.push_str(part);
        }
        Some(if top.is_empty() { "/".to_owned() } else { top })
    }

    /// Whether everything below its anchor is meant.
    pub(crate) fn is_everything(&self) -> bool {
        self.text.trim_start_matches(['~', '.']) == "/**"
    }
}

impl From<PathPattern> for String {
    fn from(pattern: PathPattern) -> String {
        pattern.text
    }
}

// === impl NamePattern ===

impl TryFrom<String> for NamePattern {
    type Error = ValueError;

    fn try_from(text: String) -> Result<Self, ValueError> {
        if text.parse::<ToolDigest>().is_ok() {
            return Ok(NamePattern(text));
        }
        let fits = (1..=64).contains(&text.len())
            && text.matches('*').count() <= 2
            && text.bytes().all(|b| b.is_ascii_alphanumeric() || b"-_.*".contains(&b));
        if fits { Ok(NamePattern(text)) } else { Err(ValueError::Tool(text)) }
    }
}

impl NamePattern {
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// A tool that is a file goes by its digest, which has a colon. A pattern for a part of it matches nothing: only `*` means all.
    pub fn matches(&self, name: &str) -> bool {
        match self.0.contains('*') && !self.is_everything() && name.contains(':') {
            true => false,
            false => Glob::of(&self.0).matches(name),
        }
    }

    pub(crate) fn is_everything(&self) -> bool {
        self.0.bytes().all(|byte| byte == b'*')
    }
}

impl From<NamePattern> for String {
    fn from(pattern: NamePattern) -> String {
        pattern.0
    }
}

// === paths of requests ===

/// Where the home and the workspace of a task are.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Anchors {
    pub home: Option<String>,
    pub workspace: Option<String>,
}

/// A resolved path as rules see it: whole, and as seen from home and workspace.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FilePath {
    pub(crate) path: String,
    /// From the home, with a slash in front; empty outside of it.
    pub(crate) home: String,
    pub(crate) workspace: String,
}

impl FilePath {
    /// `path` must be absolute and resolved by the caller, or start with `~/` or `./`.
    pub fn new(path: &str, anchors: &Anchors) -> Result<FilePath, ValueError> {
        let wrong = |why: &'static str| ValueError::Path { text: path.to_owned(), why };
        let whole = match path.split_at_checked(1) {
            Some(("~", rest)) if rest.is_empty() || rest.starts_with('/') => {
                let home = anchors.home.as_deref();
                join(home.ok_or_else(|| wrong("this task has no home"))?, rest)
            }
            Some((".", rest)) if rest.is_empty() || rest.starts_with('/') => {
                let workspace = anchors.workspace.as_deref();
                join(workspace.ok_or_else(|| wrong("this task has no workspace"))?, rest)
            }
            _ => path.to_owned(),
        };
        let canonical = whole == "/"
            || (whole.starts_with('/')
                && whole[1..].split('/').all(|part| !["", ".", ".."].contains(&part)));
        if !canonical {
            return Err(wrong("give it absolute and resolved, without . and .."));
        }
        let below = |top: &Option<String>| top.as_deref().and_then(|top| relative(&whole, top));
        Ok(FilePath {
            home: below(&anchors.home).unwrap_or_default(),
            workspace: below(&anchors.workspace).unwrap_or_default(),
            path: whole,
        })
    }

    pub(crate) fn below(&self, anchor: Anchor) -> &str {
        match anchor {
            Anchor::Root => &self.path,
            Anchor::Home => &self.home,
            Anchor::Workspace => &self.workspace,
        }
    }
}

fn join(top: &str, rest: &str) -> String {
    let joined = format!("{}{rest}", top.trim_end_matches('/'));
    if joined.is_empty() { "/".to_owned() } else { joined }
}

fn relative(path: &str, top: &str) -> Option<String> {
    let rest = path.strip_prefix(top.trim_end_matches('/'))?;
    match rest {
        "" => Some("/".to_owned()),
        _ => rest.starts_with('/').then(|| rest.to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pattern(text: &str) -> PathPattern {
        PathPattern::try_from(text.to_owned()).unwrap()
    }

    fn path(text: &str) -> FilePath {
        let anchors = Anchors { home: Some("/home/u".into()), workspace: Some("/home/u/w".into()) };
        FilePath::new(text, &anchors).unwrap()
    }

    #[test]
    fn a_pattern_matches_what_it_says_and_nothing_beside_it() {
        for (text, matching, other) in [
            ("/tmp/**", "/tmp/a/b", "/tmpfile"),
            ("/tmp/**", "/tmp", "/home"),
            ("/etc/hosts", "/etc/hosts", "/etc/hosts/x"),
            ("/**", "/", "~/x/../y"),
            ("~/**", "~/x", "/home/user2"),
            ("./docs/**", "./docs", "./docs2"),
            ("./**/.git/**", "./a/.git/config", "./a/.gitignore"),
            ("./**/.git/**", "./.git", "/elsewhere/.git"),
            ("./**/*.pem", "./deep/down/key.pem", "./key.pem.txt"),
            ("./a/**/b", "./a/b", "./a/xb"),
            ("./a/**/b", "./a/x/y/b", "./b"),
        ] {
            assert!(pattern(text).matches(&path(matching)), "{text} {matching}");
            let other = FilePath::new(other, &Anchors::default()).unwrap_or_else(|_| {
                let anchors = Anchors { home: Some("/h".into()), workspace: Some("/h/w".into()) };
                FilePath::new(other, &anchors).unwrap_or_else(|_| path("/home/u/w/none"))
            });
            assert!(text == "/**" || !pattern(text).matches(&other), "{text} {other:?}");
        }
    }

    #[test]
    fn everything_that_a_pattern_matches_lies_at_or_below_its_top() {
        let anchors = Anchors { home: Some("/home/u".into()), workspace: Some("/home/u/w".into()) };
        for (text, top) in [
            ("./inbox/**", "/home/u/w/inbox"),
            ("./inbox/letter", "/home/u/w/inbox/letter"),
            ("./mail/**/*.eml", "/home/u/w/mail"),
            ("./mail/**/new/**", "/home/u/w/mail"),
            ("./**/*.eml", "/home/u/w"),
            ("~/Downloads/**", "/home/u/Downloads"),
            ("./.hidden/**", "/home/u/w/.hidden"),
            ("~", "/home/u"),
            ("/tmp/**", "/tmp"),
            ("/**", "/"),
        ] {
            assert_eq!(pattern(text).top(&anchors).as_deref(), Some(top), "{text}");
        }
        for text in ["./inbox/**", "~/Downloads/**"] {
            assert_eq!(pattern(text).top(&Anchors::default()), None, "{text}");
        }
    }

    #[test]
    fn patterns_that_cedar_could_not_mean_are_refused() {
        for bad in ["", "docs/**", "/a/../b", "/a//b", "/a*b", "/*/b", "/a/**/b/**/c", "~x", ".x/y"]
        {
            assert!(PathPattern::try_from(bad.to_owned()).is_err(), "{bad:?}");
        }
        assert!(PathPattern::try_from("/a\n".to_owned()).is_err());
        assert!(PathPattern::try_from("/a".repeat(300)).is_err());
    }

    #[test]
    fn paths_that_are_not_resolved_are_refused() {
        for bad in ["a", "/a/../b", "/a//b", "/a/", "~/x", "./x", ""] {
            assert!(FilePath::new(bad, &Anchors::default()).is_err(), "{bad:?}");
        }
    }
}
