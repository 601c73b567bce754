//! Which addresses may be dialled: every answer of a resolver is judged, and only survivors are.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};

use serde::{Deserialize, Serialize};
use thiserror::Error;

/// Addresses with a common prefix: `10.1.0.0/16`, or one address.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
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

    const fn v4(a: u8, b: u8, c: u8, d: u8, bits: u8) -> Self {
        Self { first: IpAddr::V4(Ipv4Addr::new(a, b, c, d)), bits }
    }

    const fn v6(groups: [u16; 8], bits: u8) -> Self {
        let [a, b, c, d, e, f, g, h] = groups;
        Self { first: IpAddr::V6(Ipv6Addr::new(a, b, c, d, e, f, g, h)), bits }
    }

    pub fn contains(&self, address: IpAddr) -> bool {
        self.masked(address) == Some(value(self.first))
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

#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum BadAddress {
    #[error("{0} is {1}, which no rule can open")]
    Never(IpAddr, &'static str),
    #[error("{0} is {1}; a rule must name it in `addresses` to open it")]
    Private(IpAddr, &'static str),
    #[error("{0} is an address of this machine")]
    Own(IpAddr),
}

/// What no rule of a task can open.
const NEVER: &[(Range, &str)] = &[
    (Range::v4(0, 0, 0, 0, 8), "an address of this network"),
    (Range::v4(127, 0, 0, 0, 8), "a loopback address"),
    (Range::v4(169, 254, 0, 0, 16), "a link-local address"),
    (Range::v4(192, 0, 0, 0, 24), "an address for protocols"),
    (Range::v4(192, 0, 2, 0, 24), "an address for documents"),
    (Range::v4(192, 88, 99, 0, 24), "a 6to4 relay"),
    (Range::v4(198, 18, 0, 0, 15), "an address for benchmarks"),
    (Range::v4(198, 51, 100, 0, 24), "an address for documents"),
    (Range::v4(203, 0, 113, 0, 24), "an address for documents"),
    (Range::v4(224, 0, 0, 0, 4), "a multicast address"),
    (Range::v4(240, 0, 0, 0, 4), "a reserved or broadcast address"),
    (Range::v4(168, 63, 129, 16, 32), "a cloud's metadata address"),
    (Range::v4(100, 100, 100, 200, 32), "a cloud's metadata address"),
    (Range::v6([0xfd00, 0xec2, 0, 0, 0, 0, 0, 0], 32), "a cloud's metadata address"),
    (Range::v6([0xfd20, 0xce, 0, 0, 0, 0, 0, 0x254], 128), "a cloud's metadata address"),
    (Range::v6([0xfd00, 0xc1, 0, 0, 0, 0, 0xa9fe, 0xa9fe], 128), "a cloud's metadata address"),
    (Range::v6([0xfd00, 0x42, 0, 0, 0, 0, 0, 0x42], 128), "a cloud's metadata address"),
    (Range::v6([0x2001, 0, 0, 0, 0, 0, 0, 0], 32), "a Teredo address"),
    (Range::v6([0x2001, 0x2, 0, 0, 0, 0, 0, 0], 48), "an address for benchmarks"),
    (Range::v6([0x2001, 0xdb8, 0, 0, 0, 0, 0, 0], 32), "an address for documents"),
    (Range::v6([0x3fff, 0, 0, 0, 0, 0, 0, 0], 20), "an address for documents"),
];

/// What a rule may open by naming it.
const PRIVATE: &[(Range, &str)] = &[
    (Range::v4(10, 0, 0, 0, 8), "a private address"),
    (Range::v4(172, 16, 0, 0, 12), "a private address"),
    (Range::v4(192, 168, 0, 0, 16), "a private address"),
    (Range::v4(100, 64, 0, 0, 10), "a shared address of a carrier"),
    (Range::v6([0xfc00, 0, 0, 0, 0, 0, 0, 0], 7), "a unique local address"),
];

const GLOBAL_V6: Range = Range::v6([0x2000, 0, 0, 0, 0, 0, 0, 0], 3);

/// Judges one answer. `opened` are the ranges that the rule names.
pub fn judge(address: IpAddr, opened: &[Range]) -> Result<(), BadAddress> {
    let real = embedded(address).map_or(address, IpAddr::V4);
    let within = |list: &'static [(Range, &'static str)]| {
        list.iter().find(|(range, _)| range.contains(real)).map(|(_, what)| *what)
    };
    if let Some(what) = within(NEVER) {
        return Err(BadAddress::Never(address, what));
    }
    if let Some(what) = within(PRIVATE) {
        let named = opened.iter().any(|range| range.contains(address) || range.contains(real));
        return if named { Ok(()) } else { Err(BadAddress::Private(address, what)) };
    }
    if real.is_ipv6() && !GLOBAL_V6.contains(real) {
        return Err(BadAddress::Never(address, "not a public address"));
    }
    Ok(())
}

/// The IPv4 address that an IPv6 address stands for: mapped, compatible, NAT64, 6to4, ISATAP.
fn embedded(address: IpAddr) -> Option<Ipv4Addr> {
    let IpAddr::V6(address) = address else {
        return None;
    };
    let groups = address.segments();
    let low = || {
        let [a, b] = groups[6].to_be_bytes();
        let [c, d] = groups[7].to_be_bytes();
        Ipv4Addr::new(a, b, c, d)
    };
    match groups {
        // Also `::` and `::1`, which become addresses that are refused as well.
        [0, 0, 0, 0, 0, 0 | 0xffff, ..] | [0, 0, 0, 0, 0xffff, 0, ..] => Some(low()),
        [0x64, 0xff9b, 0, 0, 0, 0, ..] => Some(low()),
        [0x2002, high, below, ..] => {
            let [a, b] = high.to_be_bytes();
            let [c, d] = below.to_be_bytes();
            Some(Ipv4Addr::new(a, b, c, d))
        }
        [_, _, _, _, 0 | 0x200, 0x5efe, ..] => Some(low()),
        _ => None,
    }
}

/// Whether `address` is one of this machine's. The kernel is asked each time: no list of interfaces
/// can be out of date.
pub fn is_own(address: IpAddr) -> bool {
    // From a network for documents, so that nobody has it.
    const NOBODYS: IpAddr = IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1));
    let can_bind = |address| UdpSocket::bind((address, 0)).is_ok();
    // With net.ipv4.ip_nonlocal_bind, binding says nothing.
    can_bind(address) && (!can_bind(NOBODYS) || is_its_own_source(address))
}

/// To an address of its own, the kernel speaks from that address. No packet is sent.
fn is_its_own_source(address: IpAddr) -> bool {
    let any = match address {
        IpAddr::V4(_) => IpAddr::V4(Ipv4Addr::UNSPECIFIED),
        IpAddr::V6(_) => IpAddr::V6(Ipv6Addr::UNSPECIFIED),
    };
    UdpSocket::bind((any, 0))
        .and_then(|socket| {
            socket.connect(SocketAddr::new(address, 9))?;
            socket.local_addr()
        })
        .is_ok_and(|local| local.ip() == address)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    #[test]
    fn nothing_near_the_host_can_be_opened() {
        let everything = [Range::parse("0.0.0.0/0").unwrap(), Range::parse("::/0").unwrap()];
        for text in [
            "0.0.0.0",
            "0.1.2.3",
            "127.0.0.1",
            "127.255.1.1",
            "169.254.169.254",
            "192.0.0.192",
            "224.0.0.251",
            "255.255.255.255",
            "240.0.0.1",
            "168.63.129.16",
            "100.100.100.200",
            "::",
            "::1",
            "::ffff:127.0.0.1",
            "::127.0.0.1",
            "::ffff:169.254.169.254",
            "::ffff:0:127.0.0.1",
            "64:ff9b::a9fe:a9fe",
            "64:ff9b::7f00:1",
            "64:ff9b:1::a00:1",
            "2002:7f00:1::",
            "2002:a9fe:a9fe::1",
            "2001::1",
            "fe80::1",
            "fec0::1",
            "ff02::fb",
            "fd00:ec2::254",
            "fd20:ce::254",
            "fd00:c1::a9fe:a9fe",
            "fd00:42::42",
            "100::1",
            "2001:db8::1",
            "2a00::5efe:127.0.0.1",
            "::ffff:100.100.100.200",
        ] {
            let verdict = judge(address(text), &everything);
            assert!(matches!(verdict, Err(BadAddress::Never(..))), "{text}: {verdict:?}");
        }
    }

    #[test]
    fn private_addresses_open_only_by_name() {
        for text in [
            "10.0.0.1",
            "172.16.0.1",
            "172.31.255.255",
            "192.168.1.1",
            "100.64.0.1",
            "fd12:3456::1",
            "::ffff:10.0.0.1",
            "64:ff9b::a00:1",
            "2002:a00:1::1",
        ] {
            assert!(matches!(judge(address(text), &[]), Err(BadAddress::Private(..))), "{text}");
        }
        let ten = [Range::parse("10.0.0.0/24").unwrap()];
        assert_eq!(judge(address("10.0.0.9"), &ten), Ok(()));
        assert!(judge(address("10.0.1.9"), &ten).is_err());
    }

    #[test]
    fn public_addresses_pass() {
        for text in [
            "1.1.1.1",
            "172.15.0.1",
            "172.32.0.1",
            "100.63.255.255",
            "2606:4700::1111",
            "64:ff9b::101:101",
        ] {
            assert_eq!(judge(address(text), &[]), Ok(()), "{text}");
        }
    }

    #[test]
    fn a_range_is_written_tidily() {
        for text in ["10.0.0.1/8", "10.0.0.0/33", "::/129", "10.0.0.0/", "x", "10.0.0.0/-1"] {
            assert!(Range::parse(text).is_err(), "{text}");
        }
        assert_eq!(Range::parse("10.0.0.1").unwrap().to_string(), "10.0.0.1/32");
    }

    #[test]
    fn the_kernel_knows_its_own_addresses() {
        assert!(is_own(address("127.0.0.1")));
        assert!(is_own(address("127.8.8.8")));
        assert!(is_its_own_source(address("127.0.0.1")));
        assert!(!is_own(address("192.0.2.7")));
    }
}
