//! The words that a grant is made of: names, patterns, subtrees and endpoints.
//!
//! Each has one spelling, is bounded, and holds no character that has a meaning in a token or on a
//! terminal. What is asked for at a check has the same rules where it must match them, and none where
//! it need not.

use std::fmt;
use std::str::FromStr;

use ringwall_spec::{BadPattern, Host, HostPattern};

/// The longest name, pattern or host.
pub const MAX_NAME_BYTES: usize = 256;
/// The longest path, as the kernel has it.
pub const MAX_PATH_BYTES: usize = 4096;

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NameError {
    #[error("{0} is empty")]
    Empty(&'static str),
    #[error("{0} is longer than {1} bytes")]
    TooLong(&'static str, usize),
    #[error("{what} {text:?} holds {found:?}, which a grant cannot hold")]
    Character { what: &'static str, text: String, found: char },
    #[error("{0:?} is no pattern; a * may only stand at the end")]
    ToolPattern(String),
    #[error("{0:?} is not a host in its one spelling: small letters, no dot at the end")]
    Host(String),
    #[error(transparent)]
    Pattern(#[from] BadPattern),
    #[error("{0:?} is no path for a grant; write an absolute path without . or .. in it")]
    Path(String),
    #[error(
        "{0:?} is no endpoint; write HOST:PORT, with METHODS after a space, for example \"api.example.com:443 GET,HEAD\""
    )]
    Endpoint(String),
    #[error("{0:?} is no method of HTTP")]
    Method(String),
}

/// The name of a secret, a phase, a kind of work or a wall.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Name(String);

/// One tool, or all whose names begin alike: `grep`, `git-*`, `*`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ToolPattern {
    Exact(String),
    Prefix(String),
}

/// A directory with all that is below it, or a file.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Subtree(String);

/// The hosts of an endpoint.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Hosts {
    Of(HostPattern),
    Any,
}

/// Where the holder may connect to. No methods means any, and also what is not HTTP.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Endpoint {
    pub(crate) host: Hosts,
    /// `None`: any.
    pub(crate) port: Option<u16>,
    /// Sorted; empty: any.
    pub(crate) methods: Vec<String>,
}

impl Endpoint {
    pub fn host(&self) -> &Hosts {
        &self.host
    }

    /// None: any.
    pub fn port(&self) -> Option<u16> {
        self.port
    }

    /// Empty: any.
    pub fn methods(&self) -> &[String] {
        &self.methods
    }
}

/// Bounds a text and refuses what could be taken for something else.
pub(crate) fn plain(what: &'static str, text: &str, most: usize) -> Result<(), NameError> {
    if text.is_empty() {
        return Err(NameError::Empty(what));
    }
    if text.len() > most {
        return Err(NameError::TooLong(what, most));
    }
    match text.chars().find(|character| !is_plain(*character)) {
        Some(found) => Err(NameError::Character { what, text: text.to_owned(), found }),
        None => Ok(()),
    }
}

/// Quotes and backslashes would end a string in a token; the others are obeyed by terminals, or
/// hide and reorder text.
fn is_plain(character: char) -> bool {
    !matches!(character, '"' | '\\') && !ringwall_spec::is_deceptive(character)
}

impl Name {
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for Name {
    type Err = NameError;

    fn from_str(text: &str) -> Result<Name, NameError> {
        plain("the name", text, MAX_NAME_BYTES)?;
        Ok(Name(text.to_owned()))
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl ToolPattern {
    pub(crate) fn matches(&self, tool: &str) -> bool {
        match self {
            ToolPattern::Exact(name) => tool == name,
            // A tool that is a file goes by its digest, which has a colon. A prefix of it means nothing.
            ToolPattern::Prefix(prefix) => {
                tool.starts_with(prefix) && (prefix.is_empty() || !tool.contains(':'))
            }
        }
    }
}

impl FromStr for ToolPattern {
    type Err = NameError;

    fn from_str(text: &str) -> Result<ToolPattern, NameError> {
        plain("the tool's name", text, MAX_NAME_BYTES)?;
        let (stem, exact) = match text.strip_suffix('*') {
            Some(stem) => (stem, false),
            None => (text, true),
        };
        if stem.contains('*') {
            return Err(NameError::ToolPattern(text.to_owned()));
        }
        let stem = stem.to_owned();
        Ok(if exact { ToolPattern::Exact(stem) } else { ToolPattern::Prefix(stem) })
    }
}

impl fmt::Display for ToolPattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ToolPattern::Exact(name) => f.write_str(name),
            ToolPattern::Prefix(prefix) => write!(f, "{prefix}*"),
        }
    }
}

impl Subtree {
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// What every path below it begins with.
    pub(crate) fn inside(&self) -> String {
        if self.0 == "/" { "/".to_owned() } else { format!("{}/", self.0) }
    }

    pub(crate) fn holds(&self, path: &str) -> bool {
        path == self.0 || path.starts_with(&self.inside())
    }
}

impl FromStr for Subtree {
    type Err = NameError;

    fn from_str(text: &str) -> Result<Subtree, NameError> {
        plain("the path", text, MAX_PATH_BYTES)?;
        let trimmed = if text.len() > 1 { text.trim_end_matches('/') } else { text };
        if !is_canonical_path(trimmed) {
            return Err(NameError::Path(text.to_owned()));
        }
        Ok(Subtree(trimmed.to_owned()))
    }
}

impl fmt::Display for Subtree {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Absolute, and every part of it names something: there is no other spelling of the same path.
pub(crate) fn is_canonical_path(path: &str) -> bool {
    path == "/"
        || path.strip_prefix('/').is_some_and(|rest| {
            rest.split('/').all(|part| !matches!(part, "" | "." | "..") && !part.contains('\0'))
        })
}

impl Hosts {
    /// `host` is in its one spelling, as [`is_host`] wants it.
    pub(crate) fn matches(&self, host: &str) -> bool {
        match self {
            Hosts::Of(pattern) => Host::parse_bare(host).is_ok_and(|host| pattern.matches(&host)),
            Hosts::Any => true,
        }
    }
}

impl FromStr for Hosts {
    type Err = NameError;

    fn from_str(text: &str) -> Result<Hosts, NameError> {
        match text {
            "*" => Ok(Hosts::Any),
            text => Ok(Hosts::Of(HostPattern::parse(text)?)),
        }
    }
}

impl fmt::Display for Hosts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Hosts::Of(pattern) => write!(f, "{pattern}"),
            Hosts::Any => f.write_str("*"),
        }
    }
}

/// A host in its one spelling: lower case, no dot at the end, an address without brackets.
pub(crate) fn is_host(text: &str) -> bool {
    Host::parse_bare(text).is_ok_and(|host| host.bare() == text)
}

pub(crate) fn is_method(text: &str) -> bool {
    (1..=32).contains(&text.len())
        && text.bytes().all(|byte| byte.is_ascii_uppercase() || byte == b'-')
}

impl Endpoint {
    pub fn new(
        host: Hosts,
        port: Option<u16>,
        methods: impl IntoIterator<Item = String>,
    ) -> Result<Endpoint, NameError> {
        let mut methods: Vec<String> = methods.into_iter().collect();
        if let Some(wrong) = methods.iter().find(|method| !is_method(method)) {
            return Err(NameError::Method(wrong.clone()));
        }
        methods.sort();
        methods.dedup();
        Ok(Endpoint { host, port, methods })
    }

    pub(crate) fn matches(&self, host: &str, port: u16, method: Option<&str>) -> bool {
        self.host.matches(host)
            && self.port.is_none_or(|own| own == port)
            && (self.methods.is_empty()
                || method.is_some_and(|method| self.methods.iter().any(|own| own == method)))
    }
}

impl FromStr for Endpoint {
    type Err = NameError;

    /// `HOST:PORT`, or `HOST:*`, and methods after a space.
    fn from_str(text: &str) -> Result<Endpoint, NameError> {
        let wrong = || NameError::Endpoint(text.to_owned());
        let (place, methods) = match text.split_once(' ') {
            Some((place, methods)) => (place, methods.split(',').map(str::to_owned).collect()),
            None => (text, Vec::new()),
        };
        let (host, port) = place.rsplit_once(':').ok_or_else(wrong)?;
        let port = match port {
            "*" => None,
            port => Some(port.parse::<u16>().ok().filter(|port| *port != 0).ok_or_else(wrong)?),
        };
        Endpoint::new(host.parse()?, port, methods)
    }
}

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.host)?;
        match self.port {
            Some(port) => write!(f, ":{port}")?,
            None => f.write_str(":*")?,
        }
        if self.methods.is_empty() { Ok(()) } else { write!(f, " {}", self.methods.join(",")) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_word_prints_as_it_is_read() {
        for text in ["grep", "git-*", "*"] {
            assert_eq!(text.parse::<ToolPattern>().unwrap().to_string(), text);
        }
        for text in ["/", "/workspace", "/a b/ü"] {
            assert_eq!(text.parse::<Subtree>().unwrap().to_string(), text);
        }
        for text in [
            "a.example:443",
            "*.example.com:* GET,HEAD",
            "**.example.com:443",
            "*:80",
            "[::1]:443",
            "10.0.0.1:1",
        ] {
            assert_eq!(text.parse::<Endpoint>().unwrap().to_string(), text);
        }
        assert_eq!("/a/".parse::<Subtree>().unwrap().as_str(), "/a");
    }

    #[test]
    fn what_has_a_second_spelling_or_could_deceive_is_refused() {
        for bad in ["", "a\"b", "a\\b", "a\nb", "a\u{202e}b", "a*b", "**"] {
            assert!(bad.parse::<ToolPattern>().is_err(), "{bad:?}");
        }
        for bad in ["", "a", "/a/../b", "/a//b", "/./a", "/a\"", "/a\0b"] {
            assert!(bad.parse::<Subtree>().is_err(), "{bad:?}");
        }
        for bad in ["EXAMPLE.com", "a..b", "a.", "*a", "1.2.3", "0x7f.1", "01.2.3.4", "::01", "a_b"]
        {
            assert!(!is_host(bad), "{bad:?}");
        }
        for bad in ["a..b", "*a", "*.", "**", "1.2.3", "0x7f.1", "01.2.3.4", "::1", "a.*.b"] {
            assert!(bad.parse::<Hosts>().is_err(), "{bad:?}");
        }
        for bad in ["a", "a:0", "a:99999", "a:1 get", "a:1 GET,"] {
            assert!(bad.parse::<Endpoint>().is_err(), "{bad:?}");
        }
    }

    #[test]
    fn a_subtree_ends_at_its_name() {
        let tree: Subtree = "/a".parse().unwrap();
        assert!(tree.holds("/a") && tree.holds("/a/b"));
        assert!(!tree.holds("/ab") && !tree.holds("/"));
    }

    #[test]
    fn what_is_not_http_needs_an_endpoint_of_any_method() {
        let gets: Endpoint = "a.example:443 GET".parse().unwrap();
        let any: Endpoint = "a.example:443".parse().unwrap();
        assert!(!gets.matches("a.example", 443, None) && any.matches("a.example", 443, None));
        assert!(gets.matches("a.example", 443, Some("GET")));
        assert!(!gets.matches("a.example", 443, Some("POST")));
        let hosts = |text: &str| text.parse::<Hosts>().unwrap();
        for pattern in ["*.example", "**.example"] {
            assert!(hosts(pattern).matches("a.example"));
            assert!(!hosts(pattern).matches("example") && !hosts(pattern).matches("xexample"));
        }
        assert!(hosts("**.example").matches("b.a.example"));
        assert!(!hosts("*.example").matches("b.a.example"));
    }
}
