//! Ranges of addresses, as rules name them.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use thiserror::Error;

/// Addresses with a common prefix: `10.1.0.0/16`, or one address.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Range {
    first: IpAddr,
    bits: u8,
}

#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("{0:?} is no address and no range of addresses such as 10.1.0.0/16")]
pub struct BadRange(String);

impl Range {
    pub fn parse(text: &str) -> Result<Self, BadRange> {
        let bad = || BadRange(text.to_owned());
        let (address, bits) = match text.split_once('/') {
            Some((address, bits)) => (address, Some(bits)),
            None => (text, None),
        };
        let first: IpAddr = address.parse().map_err(|_| bad())?;
        let most = if first.is_ipv4() { 32 } else { 128 };
        let bits: u8 = bits.map_or(Ok(most), str::parse).map_err(|_| bad())?;
        let range = Self { first, bits };
        let tidy = bits <= most && range.masked(first) == Some(value(first));
        if tidy { Ok(range) } else { Err(bad()) }
    }

    pub const fn one(address: IpAddr) -> Self {
        Self { first: address, bits: if address.is_ipv4() { 32 } else { 128 } }
    }

    pub const fn v4(a: u8, b: u8, c: u8, d: u8, bits: u8) -> Self {
        Self { first: IpAddr::V4(Ipv4Addr::new(a, b, c, d)), bits }
    }

    pub const fn v6(groups: [u16; 8], bits: u8) -> Self {
        let [a, b, c, d, e, f, g, h] = groups;
        Self { first: IpAddr::V6(Ipv6Addr::new(a, b, c, d, e, f, g, h)), bits }
    }

    pub fn contains(&self, address: IpAddr) -> bool {
        self.masked(address) == Some(value(self.first))
    }

    /// Whether all addresses of the other range are in this one.
    pub fn covers(&self, other: &Self) -> bool {
        self.bits <= other.bits && self.contains(other.first)
    }

    fn masked(&self, address: IpAddr) -> Option<u128> {
        let width: u32 = match (self.first, address) {
            (IpAddr::V4(_), IpAddr::V4(_)) => 32,
            (IpAddr::V6(_), IpAddr::V6(_)) => 128,
            _ => return None,
        };
        let drop = width.checked_sub(u32::from(self.bits))?;
        Some(value(address).checked_shr(drop).unwrap_or(0).checked_shl(drop).unwrap_or(0))
    }
}

fn value(address: IpAddr) -> u128 {
    match address {
        IpAddr::V4(address) => u128::from(u32::from(address)),
        IpAddr::V6(address) => u128::from(address),
    }
}

impl fmt::Display for Range {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.first, self.bits)
    }
}

impl FromStr for Range {
    type Err = BadRange;

    fn from_str(text: &str) -> Result<Self, BadRange> {
        Self::parse(text)
    }
}

impl TryFrom<String> for Range {
    type Error = BadRange;

    fn try_from(text: String) -> Result<Self, BadRange> {
        Self::parse(&text)
    }
}

impl From<Range> for String {
    fn from(range: Range) -> Self {
        range.to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_range_is_written_tidily() {
        for text in ["10.0.0.1/8", "10.0.0.0/33", "::/129", "10.0.0.0/", "x", "10.0.0.0/-1"] {
            assert!(Range::parse(text).is_err(), "{text}");
        }
        assert_eq!(Range::parse("10.0.0.1").unwrap().to_string(), "10.0.0.1/32");
    }

    #[test]
    fn a_range_covers_those_in_it() {
        let covers =
            |wide, narrow| Range::parse(wide).unwrap().covers(&Range::parse(narrow).unwrap());
        assert!(covers("10.0.0.0/8", "10.1.0.0/16") && covers("10.0.0.0/8", "10.0.0.0/8"));
        assert!(!covers("10.1.0.0/16", "10.0.0.0/8") && !covers("10.0.0.0/8", "11.0.0.0/16"));
        assert!(!covers("::/0", "10.0.0.0/8"));
    }
}
