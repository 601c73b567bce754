//! Which addresses may be dialled: every answer of a resolver is judged, and only survivors are.

use std::net::{IpAddr, Ipv4Addr};

use ringwall_spec::Range;
use thiserror::Error;

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
}
