//! SOCKS, DNS, TLS greetings, hosts, paths and git pushes from a sandbox: no parser may panic, and
//! whatever becomes a host is canonical.
//!
//! The first byte of the input chooses the parser.

#![no_main]

use libfuzzer_sys::fuzz_target;
use ringwall_gateway::dns::{Understood, parse_query};
use ringwall_gateway::{git, pack, socks, tls_extensions};
use ringwall_rules::target;
use ringwall_spec::{Host, HostPattern};

fuzz_target!(|input: &[u8]| {
    let [choice, rest @ ..] = input else {
        return;
    };
    match choice % 7 {
        0 => {
            let _ = socks::parse_greeting(rest);
            if let Ok(Some((host, port, length))) = socks::parse_request(rest) {
                assert!(length <= rest.len() && port != 0);
                check(&host);
            }
        }
        1 => {
            if let Some((_, Understood::Addresses { host, .. })) = parse_query(rest) {
                check(&host);
            }
        }
        2 => {
            let _ = tls_extensions(rest);
        }
        3 => {
            if let Ok(Some(list)) = git::parse_commands(rest) {
                assert!(list.length <= rest.len() && list.commands.len() <= 64);
            }
        }
        4 => {
            let _ = pack::parents(rest, 40);
        }
        5 => {
            let Ok(text) = std::str::from_utf8(rest) else {
                return;
            };
            if let Ok((host, _)) = Host::parse_authority(text, Some(443)) {
                check(&host);
            }
            if let Ok(pattern) = HostPattern::parse(text) {
                assert_eq!(pattern.to_string().parse(), Ok(pattern));
            }
        }
        _ => {
            let Ok(text) = std::str::from_utf8(rest) else {
                return;
            };
            if target::check_path(text).is_ok() {
                assert!(text.starts_with('/') && !text.contains("/../"));
            }
        }
    }
});

/// Written out and read again, a host is the same.
fn check(host: &Host) {
    assert_eq!(Host::parse(&host.to_string()).as_ref(), Ok(host));
}
