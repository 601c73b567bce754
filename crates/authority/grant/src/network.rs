//! What a grant lets its holder reach, as rules of the gateway.

use std::collections::BTreeSet;

use ringwall_spec::{Allow, Preset, RuleSet, Scheme};

use crate::{Endpoint, HostPattern, Inspected, Name};

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
            HostPattern::Exact(host) => host.clone(),
            // For the gateway it is one label.
            HostPattern::Below(domain) => format!("*{domain}"),
            HostPattern::Any => {
                // Every public host, on the ports of the web; what is bound further is left out.
                if endpoint.port().is_none() && endpoint.methods().is_empty() {
                    rules.presets.push(Preset::Open);
                }
                continue;
            }
        };
        rules.allow.extend(ports.into_iter().map(|port| Allow {
            scheme: if port == 80 { Scheme::Http } else { Scheme::Https },
            port: Some(port),
            methods: endpoint.methods().to_vec(),
            ..Allow::host(&host)
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
        let hosts: Vec<_> = rules.allow.iter().map(|rule| (&rule.host[..], rule.port)).collect();
        assert_eq!(hosts, [("api.example.com", Some(443)), ("*.example.org", Some(8443))]);
        assert_eq!(rules.allow[0].methods, ["GET"]);
        assert!(rules.presets.is_empty());
        let nothing: [Endpoint; 0] = [];
        assert!(super::rules(&nothing).is_nothing());
    }
}
