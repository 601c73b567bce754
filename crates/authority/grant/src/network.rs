//! What a grant lets its holder reach, as rules of the gateway.

use std::collections::BTreeSet;

use ringwall_spec::{Allow, Preset, RuleSet, Scheme};

use crate::{Endpoint, Hosts, Inspected, Name};

impl Inspected {
    /// What its holder may reach at most. Each list of endpoints narrows those before it, so each is a
    /// set of rules that must allow; and the secrets that may be used.
    pub fn network(&self) -> (Vec<RuleSet>, BTreeSet<String>) {
        let narrowed = self.narrowings.iter().filter_map(|narrowing| narrowing.endpoints.as_ref());
        let layers = [&self.rights.endpoints].into_iter().chain(narrowed).map(rules).collect();
        let names = |names: &BTreeSet<Name>| -> BTreeSet<String> {
            names.iter().map(|name| name.as_str().to_owned()).collect()
        };
        let mut secrets = names(&self.rights.secrets);
        for list in self.narrowings.iter().filter_map(|narrowing| narrowing.secrets.as_ref()) {
            let list = names(list);
            secrets.retain(|name| list.contains(name));
        }
        (layers, secrets)
    }
}

fn rules<'a>(endpoints: impl IntoIterator<Item = &'a Endpoint>) -> RuleSet {
    let mut rules = RuleSet::default();
    for endpoint in endpoints {
        let ports = endpoint.port().map_or(vec![443, 80], |port| vec![port]);
        let host = match endpoint.host() {
            Hosts::Of(host) => host,
            Hosts::Any => {
                // Every public host, on the ports of the web; what is bound further is left out.
                if endpoint.port().is_none() && endpoint.methods().is_empty() {
                    rules.presets.push(Preset::Open);
                }
                continue;
            }
        };
        rules.allow.extend(ports.into_iter().map(|port| Allow {
            scheme: Some(Scheme::usual(Some(port))),
            port: Some(port),
            methods: endpoint.methods().to_vec(),
            ..Allow::host(host.clone())
        }));
    }
    rules
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn endpoints_become_rules_that_are_no_wider() {
        let endpoints: Vec<Endpoint> = ["api.example.com:443 GET", "*.example.org:8443", "*:25"]
            .iter()
            .map(|text| text.parse().unwrap())
            .collect();
        let rules = rules(&endpoints);
        let hosts: Vec<_> =
            rules.allow.iter().map(|rule| (rule.host.to_string(), rule.port())).collect();
        let wanted = [("api.example.com", 443), ("*.example.org", 8443)];
        assert_eq!(hosts, wanted.map(|(host, port)| (host.to_owned(), port)));
        assert_eq!(rules.allow[0].methods, ["GET"]);
        assert!(rules.presets.is_empty());
        let nothing: [Endpoint; 0] = [];
        assert!(super::rules(&nothing).is_nothing());
    }

    #[test]
    fn the_gateway_lets_nothing_through_that_the_endpoint_does_not_name() {
        let patterns = ["a.example.com", "*.example.com", "**.example.com", "1.1.1.1", "*"];
        let hosts = ["example.com", "a.example.com", "b.a.example.com", "aexample.com", "1.1.1.1"];
        let mut allowed = 0;
        for (pattern, rest) in patterns.iter().flat_map(|pattern| {
            [":443", ":80", ":*", ":443 GET", ":8443 GET,POST"].map(|rest| (pattern, rest))
        }) {
            let endpoint: Endpoint = format!("{pattern}{rest}").parse().unwrap();
            let checked = ringwall_rules::check(&[rules([&endpoint])]).unwrap();
            for (host, port) in hosts.iter().flat_map(|it| [443, 80, 8443].map(|port| (it, port))) {
                for method in ["GET", "POST"] {
                    let request = ringwall_rules::AskedRequest {
                        method: method.to_owned(),
                        path: "/".to_owned(),
                    };
                    let ask = ringwall_rules::Ask {
                        host: ringwall_spec::Host::parse(host).unwrap(),
                        port,
                        scheme: Scheme::usual(Some(port)),
                        request: Some(request),
                    };
                    let passes = ringwall_rules::authorize(&checked, &ask).is_ok();
                    let named = endpoint.matches(host, port, Some(method));
                    assert!(!passes || named, "{endpoint}: {method} {host}:{port}");
                    allowed += u32::from(passes);
                }
            }
        }
        assert!(allowed > 20, "{allowed}");
    }
}
