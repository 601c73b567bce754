//! Host patterns of rules: an exact host, or `*` for one label below a domain that somebody owns.

use std::fmt;

use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::host::{BadHost, Host};

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum HostPattern {
    Exact(Host),
    /// `*.example.com`: exactly one label more than the domain kept here.
    OneLabelBelow(String),
}

#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum BadPattern {
    #[error("host pattern {pattern:?}: {reason}")]
    Host { pattern: String, reason: BadHost },
    #[error("host pattern {0:?}: `*` may only be the whole first label, as in *.example.com")]
    Star(String),
    #[error(
        "host pattern {0:?}: anybody can register a name there; name the domain of one owner, as in *.example.com"
    )]
    PublicSuffix(String),
}

impl HostPattern {
    pub fn parse(text: &str) -> Result<Self, BadPattern> {
        match Self::parse_denied(text)? {
            Self::OneLabelBelow(domain) if psl::domain_str(&domain).is_none() => {
                Err(BadPattern::PublicSuffix(text.to_owned()))
            }
            pattern => Ok(pattern),
        }
    }

    /// For rules that deny: what anybody can register may be denied as a whole.
    pub fn parse_denied(text: &str) -> Result<Self, BadPattern> {
        let bad = |reason| BadPattern::Host { pattern: text.to_owned(), reason };
        let Some(domain) = text.strip_prefix("*.") else {
            if text.contains('*') {
                return Err(BadPattern::Star(text.to_owned()));
            }
            return Host::from_policy(text).map(Self::Exact).map_err(bad);
        };
        if domain.contains('*') {
            return Err(BadPattern::Star(text.to_owned()));
        }
        match Host::from_policy(domain).map_err(bad)? {
            Host::Address(_) => Err(BadPattern::Star(text.to_owned())),
            Host::Name(name) => Ok(Self::OneLabelBelow(name)),
        }
    }

    pub fn matches(&self, host: &Host) -> bool {
        match self {
            Self::Exact(exact) => exact == host,
            Self::OneLabelBelow(domain) => host
                .name()
                .and_then(|name| name.split_once('.'))
                .is_some_and(|(_, rest)| rest == domain),
        }
    }

    /// For rules that deny: `*` stands for any number of labels, so that a deny is never too narrow.
    pub fn matches_at_any_depth(&self, host: &Host) -> bool {
        match self {
            Self::Exact(exact) => exact == host,
            Self::OneLabelBelow(domain) => host
                .name()
                .and_then(|name| name.strip_suffix(domain.as_str()))
                .is_some_and(|front| front.ends_with('.')),
        }
    }
}

impl fmt::Display for HostPattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Exact(host) => host.fmt(f),
            Self::OneLabelBelow(domain) => write!(f, "*.{domain}"),
        }
    }
}

impl TryFrom<String> for HostPattern {
    type Error = BadPattern;

    fn try_from(text: String) -> Result<Self, BadPattern> {
        Self::parse(&text)
    }
}

impl From<HostPattern> for String {
    fn from(pattern: HostPattern) -> Self {
        pattern.to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn host(text: &str) -> Host {
        Host::parse(text).unwrap()
    }

    #[test]
    fn a_star_is_one_label() {
        let pattern = HostPattern::parse("*.example.com").unwrap();
        assert!(pattern.matches(&host("a.example.com")));
        for other in ["example.com", "a.b.example.com", "aexample.com", "a.example.com.evil.net"] {
            assert!(!pattern.matches(&host(other)), "{other}");
        }
        assert!(pattern.matches_at_any_depth(&host("a.b.example.com")));
        assert!(!pattern.matches_at_any_depth(&host("aexample.com")));
        assert!(!pattern.matches_at_any_depth(&host("example.com")));
    }

    #[test]
    fn nobody_may_allow_what_anybody_can_register() {
        for text in ["*.com", "*.co.uk", "*.github.io", "*.s3.amazonaws.com", "*.corp"] {
            assert_eq!(HostPattern::parse(text), Err(BadPattern::PublicSuffix(text.into())));
        }
        assert!(HostPattern::parse_denied("*.com").is_ok());
        for text in ["*", "a.*.com", "*.*.com", "*a.example.com", "*.1.2.3.4"] {
            assert!(HostPattern::parse(text).is_err(), "{text}");
        }
    }
}
