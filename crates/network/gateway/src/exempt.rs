//! Addresses that the owner of the gateway opens, each for one name at one port: what may reach a model
//! on this machine must reach nothing else on it.

use std::net::IpAddr;

use ringwall_rules::{BadRules, Destination};
use ringwall_spec::{BadPattern, BadRange, Host, HostPattern, Range};
use thiserror::Error;

#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum BadExempt {
    #[error(
        "exempt address {0:?} does not say for which name and port it is; write HOST:PORT=ADDRESS, or ADDRESS:PORT for URLs that name the address"
    )]
    Form(String),
    #[error(transparent)]
    Host(#[from] BadPattern),
    #[error(transparent)]
    Rules(#[from] BadRules),
    #[error(transparent)]
    Range(#[from] BadRange),
}

/// One entry of `exempt`: `model.internal:11434=127.0.0.1`, or `127.0.0.1:11434`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Exempt {
    host: HostPattern,
    port: u16,
    addresses: Range,
}

impl Exempt {
    pub fn parse(text: &str) -> Result<Self, BadExempt> {
        let form = || BadExempt::Form(text.to_owned());
        let (endpoint, addresses) = match text.split_once('=') {
            Some((endpoint, addresses)) => (endpoint, Some(addresses)),
            None => (text, None),
        };
        let (host, port) = endpoint.rsplit_once(':').ok_or_else(form)?;
        let port: u16 = port.parse().map_err(|_| form())?;
        let host = HostPattern::parse(host)?;
        ringwall_rules::check_host(&host)?;
        let addresses = match (addresses, &host) {
            (Some(addresses), _) => Range::parse(addresses)?,
            (None, HostPattern::Exact(Host::Address(address))) => Range::one(*address),
            (None, _) => return Err(form()),
        };
        if port == 0 { Err(form()) } else { Ok(Self { host, port, addresses }) }
    }

    pub(crate) fn opens(&self, to: Destination<'_>, address: IpAddr) -> bool {
        self.host.matches(to.host)
            && to.port.is_none_or(|port| port == self.port)
            && self.addresses.contains(address)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_exempt_for_one_name_at_one_port() {
        let opens = |text: &str, host: &str, port, address: &str| {
            let host = Host::parse(host).unwrap();
            let to = Destination { host: &host, port };
            Exempt::parse(text).unwrap().opens(to, address.parse().unwrap())
        };
        let named = "model.internal:11434=127.0.0.1";
        assert!(opens(named, "model.internal", Some(11434), "127.0.0.1"));
        assert!(!opens(named, "model.internal", Some(22), "127.0.0.1"));
        assert!(!opens(named, "rebound.attacker.example", Some(11434), "127.0.0.1"));
        assert!(!opens(named, "127.0.0.1", Some(11434), "127.0.0.1"));
        assert!(!opens(named, "model.internal", Some(11434), "127.0.0.2"));
        assert!(opens("127.0.0.1:11434", "127.0.0.1", Some(11434), "127.0.0.1"));
        assert!(opens("[::1]:11434", "[::1]", Some(11434), "::1"));
        assert!(opens("*.lab.example:443=10.0.0.0/8", "a.lab.example", Some(443), "10.1.2.3"));
    }

    #[test]
    fn what_names_no_endpoint_is_refused() {
        for text in [
            "127.0.0.1",
            "127.0.0.0/8",
            "model.internal",
            "model.internal:11434",
            "model.internal:*=127.0.0.1",
            "model.internal:0=127.0.0.1",
            "model.internal=127.0.0.1",
            "*:443=127.0.0.1",
            "*.com:443=127.0.0.1",
            "model.internal:443=127.0.0.1/8",
            "",
        ] {
            assert!(Exempt::parse(text).is_err(), "{text}");
        }
    }
}
