//! Any bytes as the answer of a name server: reading it must not panic, and no address in it that is
//! this machine's, a neighbour's or a cloud's own is ever dialled.

#![no_main]

use std::net::IpAddr;

use hickory_proto::op::Message;
use hickory_proto::rr::RData;
use libfuzzer_sys::fuzz_target;
use ringwall_rules::address::judge;

fuzz_target!(|bytes: &[u8]| {
    let Ok(answer) = Message::from_vec(bytes) else {
        return;
    };
    let all = answer.answers.iter().chain(&answer.authorities).chain(&answer.additionals);
    for record in all {
        let address = match &record.data {
            RData::A(address) => IpAddr::V4(address.0),
            RData::AAAA(address) => IpAddr::V6(address.0),
            _ => continue,
        };
        if judge(address, &[]).is_ok() {
            assert!(is_public(address), "{address} would be dialled");
        }
    }
});

/// Written once more, and differently: by what the standard library knows of addresses.
fn is_public(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(v4) => {
            !(v4.is_private()
                || v4.is_loopback()
                || v4.is_link_local()
                || v4.is_multicast()
                || v4.is_broadcast()
                || v4.is_unspecified()
                || v4.is_documentation())
        }
        IpAddr::V6(v6) => {
            let mapped = v6.to_ipv4_mapped().is_none_or(|v4| is_public(v4.into()));
            let nat64 = match v6.segments() {
                [0x64, 0xff9b, 0, 0, 0, 0, high, low] => {
                    let bits = (u32::from(high) << 16) | u32::from(low);
                    is_public(IpAddr::V4(bits.into()))
                }
                _ => true,
            };
            mapped
                && nat64
                && !(v6.is_loopback()
                    || v6.is_unspecified()
                    || v6.is_multicast()
                    || v6.is_unique_local()
                    || v6.is_unicast_link_local())
        }
    }
}
