//! Which hosts a rule means. Every rule about the network is written with this one type.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::host::{BadHost, Host};

/// `api.example.com`, `*.example.com` or `**.example.com`.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum HostPattern {
    Exact(Host),
    /// `*.example.com`: exactly one label more than the domain kept here.
    OneLabel(String),
    /// `**.example.com`: one label more than the domain kept here, or several.
    AnyDepth(String),
}

#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum BadPattern {
    #[error("host pattern {pattern:?}: {reason}")]
    Host { pattern: String, reason: BadHost },
    #[error(
        "host pattern {0:?}: `*` may only be the whole first label; write *.example.com for one label, **.example.com for any number"
    )]
    Star(String),
    #[error(
        "host pattern {0:?} would be every host; name the hosts, or use the preset `open` for all public ones"
    )]
    Everything(String),
}

impl HostPattern {
    pub fn parse(text: &str) -> Result<Self, BadPattern> {
        if matches!(text, "*" | "**" | "*." | "**.") {
            return Err(BadPattern::Everything(text.to_owned()));
        }
        let (any_depth, one_label) = (text.strip_prefix("**."), text.strip_prefix("*."));
        let domain = any_depth.or(one_label).unwrap_or(text);
        if domain.contains('*') {
            return Err(BadPattern::Star(text.to_owned()));
        }
        let host = Host::parse(domain)
            .map_err(|reason| BadPattern::Host { pattern: text.to_owned(), reason })?;
        match host {
            Host::Name(name) if any_depth.is_some() => Ok(Self::AnyDepth(name)),
            Host::Name(name) if one_label.is_some() => Ok(Self::OneLabel(name)),
            Host::Address(_) if domain != text => Err(BadPattern::Star(text.to_owned())),
            host => Ok(Self::Exact(host)),
        }
    }

    pub fn matches(&self, host: &Host) -> bool {
        match self {
            Self::Exact(exact) => exact == host,
            Self::OneLabel(domain) => host.parent() == Some(domain),
            Self::AnyDepth(domain) => host.name().is_some_and(|name| is_below(name, domain)),
        }
    }

    /// Whether this pattern means every host that the other one means.
    pub fn covers(&self, other: &Self) -> bool {
        match (self, other) {
            (_, Self::Exact(host)) => self.matches(host),
            (Self::OneLabel(own), Self::OneLabel(other)) => own == other,
            (Self::AnyDepth(own), Self::OneLabel(other) | Self::AnyDepth(other)) => {
                own == other || is_below(other, own)
            }
            (Self::Exact(_), _) | (Self::OneLabel(_), Self::AnyDepth(_)) => false,
        }
    }

    pub const fn exact(&self) -> Option<&Host> {
        match self {
            Self::Exact(host) => Some(host),
            Self::OneLabel(_) | Self::AnyDepth(_) => None,
        }
    }

    /// The domain behind the `*` of a pattern, if it has one.
    pub fn domain(&self) -> Option<&str> {
        match self {
            Self::Exact(_) => None,
            Self::OneLabel(domain) | Self::AnyDepth(domain) => Some(domain),
        }
    }
}

/// Whether `name` has labels in front of `domain`.
fn is_below(name: &str, domain: &str) -> bool {
    name.strip_suffix(domain).is_some_and(|front| front.ends_with('.'))
}

impl fmt::Display for HostPattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Exact(host) => host.fmt(f),
            Self::OneLabel(domain) => write!(f, "*.{domain}"),
            Self::AnyDepth(domain) => write!(f, "**.{domain}"),
        }
    }
}

impl FromStr for HostPattern {
    type Err = BadPattern;

    fn from_str(text: &str) -> Result<Self, BadPattern> {
        Self::parse(text)
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

    fn pattern(text: &str) -> HostPattern {
        text.parse().unwrap()
    }

    fn matches(text: &str, host: &str) -> bool {
        pattern(text).matches(&Host::parse(host).unwrap())
    }

    #[test]
    fn one_star_is_one_label_and_two_are_any_number() {
        for (text, inside, outside) in [
            ("example.com", &["example.com", "EXAMPLE.com."][..], &["a.example.com", "com"][..]),
            (
                "*.example.com",
                &["a.example.com", "xn--bcher-kva.example.com"],
                &["example.com", "a.b.example.com", "aexample.com", "a.example.com.evil.net"],
            ),
            (
                "**.example.com",
                &["a.example.com", "a.b.example.com", "A.B.C.Example.com"],
                &["example.com", "aexample.com", "a.example.com.evil.net", "com"],
            ),
            ("*.168.example", &["192.168.example"], &["192.168.1.1"]),
        ] {
            for host in inside {
                assert!(matches(text, host), "{text} {host}");
            }
            for host in outside {
                assert!(!matches(text, host), "{text} {host}");
            }
        }
    }

    #[test]
    fn case_and_a_final_dot_make_no_other_pattern() {
        for (written, meant) in [
            ("API.Example.com.", "api.example.com"),
            ("*.EXAMPLE.com", "*.example.com"),
            ("**.Example.COM.", "**.example.com"),
            ("[0:0::1]", "[::1]"),
        ] {
            assert_eq!(pattern(written), pattern(meant));
            assert_eq!(pattern(written).to_string(), meant);
        }
    }

    #[test]
    fn what_no_host_can_match_or_everything_would_is_refused_with_the_way_out() {
        for (text, way_out) in [
            ("*", "preset `open`"),
            ("**", "preset `open`"),
            ("*.", "preset `open`"),
            ("a.*.com", "*.example.com"),
            ("*.*.com", "**.example.com"),
            ("***.example.com", "**.example.com"),
            ("*a.example.com", "*.example.com"),
            ("*.1.2.3.4", "*.example.com"),
            ("**.[::1]", "*.example.com"),
            ("a..example.com", "label"),
            ("*..example.com", "label"),
            (".example.com", "label"),
            ("a.example.com\0", "xn--"),
            ("b\u{fc}cher.example", "xn--"),
            ("a.example.com:443", "letters"),
            ("http://a.example.com", "letters"),
            ("0x7f.1", "four decimal numbers"),
            ("", "empty"),
        ] {
            let refused = HostPattern::parse(text).unwrap_err().to_string();
            assert!(refused.contains(way_out), "{text:?}: {refused}");
        }
    }

    #[test]
    fn a_pattern_covers_what_means_no_more() {
        for (wide, narrow, covers) in [
            ("a.x.org", "a.x.org", true),
            ("*.x.org", "a.x.org", true),
            ("*.x.org", "x.org", false),
            ("*.x.org", "a.b.x.org", false),
            ("*.x.org", "**.x.org", false),
            ("*.x.org", "*.b.x.org", false),
            ("**.x.org", "*.x.org", true),
            ("**.x.org", "*.b.x.org", true),
            ("**.x.org", "**.b.x.org", true),
            ("**.b.x.org", "**.x.org", false),
            ("**.x.org", "**.xx.org", false),
            ("a.x.org", "*.x.org", false),
        ] {
            assert_eq!(pattern(wide).covers(&pattern(narrow)), covers, "{wide} {narrow}");
        }
    }
}
