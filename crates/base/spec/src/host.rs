//! The one form of a host, for rules and for requests. Later code never sees the raw text.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use thiserror::Error;

const LONGEST_NAME: usize = 253;
const LONGEST_LABEL: usize = 63;

/// Where a client wants to go: a name in lower case without a final dot, or an address.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Host {
    Name(String),
    Address(IpAddr),
}

#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum BadHost {
    #[error("the host is empty")]
    Empty,
    #[error("the host is longer than 253 bytes")]
    TooLong,
    #[error(
        "a label of the host is empty or longer than 63 bytes, or begins or ends with a hyphen"
    )]
    Label,
    #[error(
        "the host holds something else than letters, digits, hyphens and dots; write names in other letters as xn--..."
    )]
    Byte,
    #[error("the host is an address in an unusual notation; write it as four decimal numbers")]
    Notation,
    #[error("the authority must be host:port, without a user")]
    Authority,
}

impl Host {
    /// Reads a host as it stands on the wire: ASCII only, an IPv6 address in brackets.
    pub fn parse(text: &str) -> Result<Self, BadHost> {
        if let Some(inner) = text.strip_prefix('[') {
            let inner = inner.strip_suffix(']').ok_or(BadHost::Notation)?;
            let address: Ipv6Addr = inner.parse().map_err(|_| BadHost::Notation)?;
            return Ok(Self::Address(IpAddr::V6(address)));
        }
        let name = text.strip_suffix('.').unwrap_or(text);
        if name.is_empty() {
            return Err(BadHost::Empty);
        }
        if name.len() > LONGEST_NAME {
            return Err(BadHost::TooLong);
        }
        if !name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'.') {
            return Err(BadHost::Byte);
        }
        let name = name.to_ascii_lowercase();
        for label in name.split('.') {
            check_label(label)?;
        }
        if ends_in_a_number(&name) {
            let address: Ipv4Addr = name.parse().map_err(|_| BadHost::Notation)?;
            return Ok(Self::Address(IpAddr::V4(address)));
        }
        Ok(Self::Name(name))
    }

    /// Parses a host without brackets round an IPv6 address, as [`Host::bare`] writes it.
    pub fn parse_bare(text: &str) -> Result<Self, BadHost> {
        match text.parse::<Ipv6Addr>() {
            Ok(address) => Ok(Self::Address(IpAddr::V6(address))),
            Err(_) => Self::parse(text),
        }
    }

    /// Reads `host:port`; without a port, `default_port` is taken where there is one.
    pub fn parse_authority(text: &str, default_port: Option<u16>) -> Result<(Self, u16), BadHost> {
        if text.contains('@') {
            return Err(BadHost::Authority);
        }
        let (host, port) = match text.rsplit_once(':') {
            Some((host, port)) if !port.ends_with(']') => (host, Some(port)),
            _ => (text, None),
        };
        let port = match port {
            Some(digits) => {
                if digits.is_empty() || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
                    return Err(BadHost::Authority);
                }
                digits.parse().map_err(|_| BadHost::Authority)?
            }
            None => default_port.ok_or(BadHost::Authority)?,
        };
        if port == 0 {
            return Err(BadHost::Authority);
        }
        Ok((Self::parse(host)?, port))
    }

    pub fn name(&self) -> Option<&str> {
        match self {
            Self::Name(name) => Some(name),
            Self::Address(_) => None,
        }
    }

    /// As rules of Cedar and events call it: an IPv6 address without brackets.
    pub fn bare(&self) -> String {
        match self {
            Self::Name(name) => name.clone(),
            Self::Address(address) => address.to_string(),
        }
    }

    /// The rest of a name without its first label.
    pub fn parent(&self) -> Option<&str> {
        self.name().and_then(|name| name.split_once('.')).map(|(_, parent)| parent)
    }

    /// The host as it stands before `:port`: an IPv6 address in brackets.
    pub fn authority(&self, port: u16, default_port: u16) -> String {
        if port == default_port { self.to_string() } else { format!("{self}:{port}") }
    }
}

impl fmt::Display for Host {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Name(name) => f.write_str(name),
            Self::Address(IpAddr::V4(address)) => write!(f, "{address}"),
            Self::Address(IpAddr::V6(address)) => write!(f, "[{address}]"),
        }
    }
}

fn check_label(label: &str) -> Result<(), BadHost> {
    let hyphen = label.starts_with('-') || label.ends_with('-');
    if label.is_empty() || label.len() > LONGEST_LABEL || hyphen {
        return Err(BadHost::Label);
    }
    Ok(())
}

/// What resolvers and URL parsers may take for an address: `2130706433`, `0x7f.1`, `127.1`.
fn ends_in_a_number(name: &str) -> bool {
    let last = name.rsplit('.').next().unwrap_or_default();
    let digits = last.bytes().all(|byte| byte.is_ascii_digit());
    let hexadecimal =
        last.strip_prefix("0x").is_some_and(|rest| rest.bytes().all(|b| b.is_ascii_hexdigit()));
    digits || hexadecimal
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_name_has_one_form() {
        for written in
            ["api.example.com", "API.example.COM", "api.example.com.", "Api.Example.Com."]
        {
            assert_eq!(Host::parse(written), Ok(Host::Name("api.example.com".into())), "{written}");
        }
    }

    #[test]
    fn odd_bytes_and_labels_are_refused() {
        let long_label = format!("{}.example", "a".repeat(64));
        let long_name = ["a".repeat(60).as_str(); 5].join(".");
        for written in [
            "",
            ".",
            "..",
            "a..b",
            "a\0.example",
            "a%00.example",
            "a b",
            "a/b",
            "user@host",
            "-a.example",
            "a-.example",
            "a_b.example",
            "bücher.example",
            "a\u{2024}b",
            "a\r\nb",
            "xn--\u{80}",
            "a.example\0",
            "fe80::1",
            "[fe80::1%eth0]",
            "[::1",
            "a:b",
            &long_label,
            &long_name,
        ] {
            assert!(Host::parse(written).is_err(), "{written:?}");
        }
    }

    #[test]
    fn addresses_have_one_notation() {
        assert_eq!(Host::parse("127.0.0.1"), Ok(Host::Address(Ipv4Addr::LOCALHOST.into())));
        assert_eq!(Host::parse("[::1]"), Ok(Host::Address(Ipv6Addr::LOCALHOST.into())));
        for written in [
            "2130706433",
            "0x7f000001",
            "0x7f.1",
            "127.1",
            "0177.0.0.1",
            "127.0.0.01",
            "1.2.3.4.5",
            "a.1",
            "0x",
        ] {
            assert_eq!(Host::parse(written), Err(BadHost::Notation), "{written}");
        }
    }

    #[test]
    fn an_authority_is_host_and_port_and_nothing_else() {
        assert_eq!(
            Host::parse_authority("example.com:443", None),
            Ok((Host::Name("example.com".into()), 443))
        );
        assert_eq!(Host::parse_authority("[::1]:80", None).map(|(_, port)| port), Ok(80));
        assert_eq!(Host::parse_authority("[::1]", Some(443)).map(|(_, port)| port), Ok(443));
        for written in [
            "example.com",
            "a@b:443",
            "example.com:0",
            "example.com:+443",
            "example.com:",
            "example.com:99999",
            "::1:443",
        ] {
            assert!(Host::parse_authority(written, None).is_err(), "{written}");
        }
    }
}
