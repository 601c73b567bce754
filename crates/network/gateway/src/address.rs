//! Which answers of a resolver are dialled: those that the rule lets through and that lead elsewhere.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};

use ringwall_rules::address::{BadAddress, judge};
use ringwall_rules::{Destination, Permit, Refusal};

use crate::exempt::Exempt;

/// Keeps the addresses that may be dialled, in the order of the answer.
pub fn survivors(
    to: Destination<'_>,
    answers: &[IpAddr],
    permit: &Permit,
    exempt: &[Exempt],
) -> Result<Vec<IpAddr>, Refusal> {
    let host = to.host;
    let mut kept = Vec::new();
    let mut refusal = Refusal::NoAddress { host: host.to_string() };
    for address in answers {
        if exempt.iter().any(|exempt| exempt.opens(to, *address)) {
            kept.push(*address);
            continue;
        }
        let verdict = judge(*address, &permit.addresses)
            .and_then(|()| if is_own(*address) { Err(BadAddress::Own(*address)) } else { Ok(()) });
        match verdict {
            Ok(()) => kept.push(*address),
            Err(reason) => refusal = Refusal::Address { host: host.to_string(), reason },
        }
    }
    if kept.is_empty() { Err(refusal) } else { Ok(kept) }
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
    use ringwall_spec::Host;

    use super::*;

    #[test]
    fn only_addresses_that_survive_are_dialled() {
        let host = Host::parse("a.example.com").unwrap();
        let answers: Vec<IpAddr> =
            ["10.0.0.1", "1.1.1.1", "127.0.0.1"].iter().map(|text| text.parse().unwrap()).collect();
        let permit = Permit::default();
        let at = |port| Destination { host: &host, port };
        let to = at(Some(8443));
        assert_eq!(survivors(to, &answers, &permit, &[]), Ok(vec![answers[1]]));
        assert!(survivors(to, &answers[2..], &permit, &[]).is_err());
        assert!(survivors(to, &[], &permit, &[]).is_err());
        let exempt = |text| [Exempt::parse(text).unwrap()];
        let right = exempt("a.example.com:8443=127.0.0.1");
        assert_eq!(survivors(to, &answers[2..], &permit, &right), Ok(vec![answers[2]]));
        assert_eq!(survivors(at(None), &answers[2..], &permit, &right), Ok(vec![answers[2]]));
        assert!(survivors(at(Some(443)), &answers[2..], &permit, &right).is_err());
        for other in ["b.example.com:8443=127.0.0.1", "a.example.com:8443=127.0.0.2"] {
            assert!(survivors(to, &answers[2..], &permit, &exempt(other)).is_err(), "{other}");
        }
    }

    #[test]
    fn the_kernel_knows_its_own_addresses() {
        let address = |text: &str| text.parse().unwrap();
        assert!(is_own(address("127.0.0.1")));
        assert!(is_own(address("127.8.8.8")));
        assert!(is_its_own_source(address("127.0.0.1")));
        assert!(!is_own(address("192.0.2.7")));
    }
}
