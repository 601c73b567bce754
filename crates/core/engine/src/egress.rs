//! From policy and flags to the rules of a gateway: the one place where they meet.
//!
//! Invariants:
//! - with a policy, every layer of it and the request must allow;
//! - what a policy says with a guard-rail, and rules cannot say, is refused.

use std::collections::BTreeSet;

use ringwall_policy::{Stack, Task};
use ringwall_spec::{Allow, EgressSpec, HostPattern, Range, RuleSet, Scheme};
use serde::{Deserialize, Serialize};

use crate::config::Engine;
use crate::secrets::SecretError;

#[derive(Debug, thiserror::Error)]
pub enum EgressError {
    #[error(
        "the policy gives this task no network: see `network` of its trust level and [network]; leave --net out, or change the policy"
    )]
    NotByPolicy,
    #[error(
        "{0} could forbid connections, and the gateway cannot ask it; write [[network.deny]] instead, or name other actions in it"
    )]
    GuardRail(String),
    #[error("the policy does not let this task use the secret {0}; leave --secret {0} out")]
    SecretNotByPolicy(String),
    #[error("the tool asks for no host to reach; leave --net and --secret out")]
    Unwanted,
    #[error(transparent)]
    Secret(#[from] SecretError),
}

/// What a tool wants that is content with whatever may be reached.
const ANY_HOST: &str = "*";

impl Engine {
    /// What a person ordered, where there is no policy. A secret opens the endpoint that it is for.
    pub(crate) fn egress_ordered(&self, mut egress: EgressSpec) -> Result<EgressSpec, EgressError> {
        let in_rules = egress.layers.iter().flat_map(|rules| &rules.allow);
        let in_rules: Vec<String> = in_rules.filter_map(|allow| allow.secret.clone()).collect();
        let known = self.known_secrets(&egress.secrets)?;
        if egress.layers.is_empty() {
            egress.layers.push(RuleSet::default());
        }
        let Some((first, others)) = egress.layers.split_first_mut() else {
            return Ok(egress);
        };
        for rules in others {
            rules.narrows = true;
        }
        for secret in known.into_iter().map(|known| known.spec) {
            if in_rules.contains(&secret.name) {
                continue;
            }
            first.allow.push(Allow {
                port: Some(secret.port),
                methods: secret.methods,
                paths: secret.paths,
                secret: Some(secret.name),
                ..Allow::host(secret.host)
            });
        }
        for name in in_rules {
            if !egress.secrets.contains(&name) {
                egress.secrets.push(name);
            }
        }
        Ok(egress)
    }
}

/// Narrows what may be reached to the hosts that a tool wants, by both schemes and without further bounds.
pub(crate) fn wanted_by_tool(mut egress: EgressSpec, wanted: &[String]) -> EgressSpec {
    egress.transparent = false;
    if wanted.iter().any(|host| host == ANY_HOST) {
        return egress;
    }
    // What leads to an internal service is said by the rules that allow it, and counts where all say it.
    let ranges = egress.layers.iter().flat_map(|rules| &rules.allow).flat_map(|it| &it.addresses);
    let addresses: BTreeSet<Range> = ranges.copied().collect();
    let wanted = wanted.iter().filter_map(|host| {
        let (name, port) = match host.rsplit_once(':') {
            Some((name, port)) => (name, Some(port.parse().ok()?)),
            None => (host.as_str(), None),
        };
        Some((HostPattern::parse(name).ok()?, port))
    });
    let allow = wanted.flat_map(|(host, port)| {
        [Scheme::Https, Scheme::Http].map(|scheme| Allow {
            scheme: Some(scheme),
            port,
            addresses: addresses.iter().copied().collect(),
            ..Allow::host(host.clone())
        })
    });
    egress.layers.push(RuleSet { allow: allow.collect(), ..RuleSet::default() }.narrowing());
    egress
}

/// The network that the policy gives, narrowed to the request.
pub(crate) fn egress_by(
    stack: &Stack,
    task: &Task,
    asked: Option<EgressSpec>,
) -> Result<Option<EgressSpec>, EgressError> {
    if asked.iter().flat_map(|asked| &asked.layers).any(RuleSet::is_nothing) {
        return Ok(None);
    }
    let mut egress = match stack.egress(task) {
        None if asked.is_some() => return Err(EgressError::NotByPolicy),
        None => return Ok(None),
        Some(egress) => egress,
    };
    if let Some(rail) = stack.network_guard_rail() {
        return Err(EgressError::GuardRail(rail.to_string()));
    }
    if let Some(asked) = asked {
        if let Some(name) = asked.secrets.iter().find(|name| !egress.secrets.contains(name)) {
            return Err(EgressError::SecretNotByPolicy(name.clone()));
        }
        if !asked.secrets.is_empty() {
            egress.secrets = asked.secrets;
        }
        egress.transparent = asked.transparent;
        // The caller has no say about where the policy lets a secret go.
        egress.layers.extend(asked.layers.into_iter().map(RuleSet::narrowing));
    }
    Ok(Some(egress).filter(|egress| !egress.is_nothing()))
}

/// The most that a task may reach: every set of rules must allow, and these secrets may be used.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NetworkBounds {
    pub layers: Vec<RuleSet>,
    pub secrets: BTreeSet<String>,
    /// The rest of a budget, if there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sent_bytes: Option<u64>,
}

pub(crate) fn within(mut egress: EgressSpec, most: Option<&NetworkBounds>) -> Option<EgressSpec> {
    if let Some(most) = most {
        egress.layers.extend(most.layers.iter().cloned().map(RuleSet::narrowing));
        egress.secrets.retain(|name| most.secrets.contains(name));
        // Where nothing is left a byte is asked for all the same, so that the refusal names the budget.
        let usual = ringwall_egress::Limits::default().bytes_up;
        egress.sent_bytes = most.sent_bytes.map(|left| left.clamp(1, usual));
    }
    Some(egress).filter(|egress| !egress.is_nothing())
}

#[cfg(test)]
mod tests {
    use super::*;
    use ringwall_policy::{LayerText, OriginKind, Trust};
    use ringwall_spec::Preset;

    fn pattern(text: &str) -> HostPattern {
        text.parse().unwrap()
    }

    fn stack(base: &str, others: &[&str]) -> Stack {
        let mut built_in = Stack::built_in();
        built_in.text = built_in.text.replace("presets = [\"none\"]", base);
        let secrets = "version = 1\nsecrets = [\"key\"]\n";
        built_in.text = built_in.text.replace("version = 1\n", secrets);
        let mut layers = vec![built_in];
        for (number, text) in others.iter().enumerate() {
            layers.push(LayerText {
                origin: OriginKind::Workspace,
                path: format!("/w{number}/ringwall.toml"),
                text: (*text).to_owned(),
                ..Stack::built_in()
            });
        }
        Stack::load(layers).unwrap()
    }

    fn of_trust(stack: &Stack, trust: Trust) -> Option<EgressSpec> {
        let task = Task { trust: Some(trust), ..Task::default() };
        stack.egress(&task)
    }

    #[test]
    fn an_open_tier_opens_no_further_port_for_a_secret() {
        let listed = LISTED.replacen("methods = [\"GET\"]", "port = 8443\nmethods = [\"GET\"]", 1);
        let high = of_trust(&stack(&listed, &[]), Trust::High).unwrap();
        let [set] = &high.layers[..] else { panic!("{high:?}") };
        let [bound] = &set.allow[..] else { panic!("{set:?}") };
        assert_eq!((bound.port, &bound.methods[..]), (Some(8443), &["GET".to_owned()][..]));
    }

    const LISTED: &str = "presets = [\"packages\"]\n\
        [[network.allow]]\nhost = \"api.example.com\"\nmethods = [\"GET\"]\npaths = [\"/v1/\"]\nsecret = \"key\"\n\
        [[network.allow]]\nhost = \"plain.example.com\"\nport = 80\n\
        [[network.deny]]\nhost = \"**.internal\"\n";

    #[test]
    fn the_allowlist_of_a_policy_becomes_rules() {
        let stack = stack(LISTED, &[]);
        assert_eq!(of_trust(&stack, Trust::Low), None);
        let medium = of_trust(&stack, Trust::Medium).unwrap();
        let [set] = &medium.layers[..] else { panic!("{medium:?}") };
        assert_eq!(set.presets, [Preset::Packages]);
        assert_eq!(set.allow[0].methods, ["GET"]);
        assert_eq!(set.allow[0].paths, ["/v1/"]);
        assert_eq!(set.allow[0].secret.as_deref(), Some("key"));
        assert_eq!((set.allow[1].scheme(), set.allow[1].port()), (Scheme::Http, 80));
        assert_eq!(set.deny[0].host, pattern("**.internal"));
        assert_eq!(medium.secrets, ["key"]);
    }

    #[test]
    fn an_open_tier_keeps_the_denials_and_the_bounds_of_secrets() {
        let high = of_trust(&stack(LISTED, &[]), Trust::High).unwrap();
        let [set] = &high.layers[..] else { panic!("{high:?}") };
        assert_eq!(set.presets, [Preset::Open]);
        let [rest, bound] = &set.allow[..] else { panic!("{set:?}") };
        assert_eq!((&rest.host, &rest.secret), (&bound.host, &None));
        assert!(rest.methods.is_empty() && rest.paths.is_empty());
        assert_eq!(bound.secret.as_deref(), Some("key"));
        assert_eq!(
            (&bound.methods[..], &bound.paths[..]),
            (&["GET".into()][..], &["/v1/".into()][..])
        );
        assert_eq!(set.deny.len(), 1);
    }

    #[test]
    fn a_layer_below_narrows_by_its_list_its_denials_and_its_secrets() {
        let denies = "version = 1\n[[network.deny]]\nhost = \"api.example.com\"\n";
        let medium = of_trust(&stack(LISTED, &[denies]), Trust::Medium).unwrap();
        assert_eq!(medium.layers.len(), 1, "{medium:?}");
        assert_eq!(medium.layers[0].deny.len(), 2);
        let lists = "version = 1\nsecrets = []\n[[network.allow]]\nhost = \"api.example.com\"\n";
        let medium = of_trust(&stack(LISTED, &[lists]), Trust::Medium).unwrap();
        assert_eq!(medium.layers.len(), 2);
        assert!(medium.secrets.is_empty(), "{medium:?}");
        assert_eq!(medium.layers[0].allow[0].secret, None);
    }

    #[test]
    fn what_somebody_asks_for_only_narrows() {
        let stack = stack(LISTED, &[]);
        let task = Task { trust: Some(Trust::Medium), ..Task::default() };
        let wide =
            Allow { secret: Some("key".to_owned()), ..Allow::host(pattern("api.example.com")) };
        let rules = RuleSet { allow: vec![wide], ..RuleSet::default() };
        let asked = EgressSpec { layers: vec![rules.clone()], ..EgressSpec::default() };
        let given = egress_by(&stack, &task, Some(asked)).unwrap().unwrap();
        let most = NetworkBounds {
            layers: vec![rules],
            secrets: BTreeSet::from(["key".to_owned()]),
            sent_bytes: None,
        };
        let given = within(given, Some(&most)).unwrap();
        let narrows: Vec<bool> = given.layers.iter().map(|rules| rules.narrows).collect();
        assert_eq!(narrows, [false, true, true]);
        let told = wanted_by_tool(given, &["api.example.com".to_owned()]);
        assert!(told.layers.last().unwrap().narrows);
    }

    #[test]
    fn a_tool_gets_the_hosts_that_it_wants_and_no_others() {
        let range: Range = "10.0.0.0/8".parse().unwrap();
        let given = Allow { addresses: vec![range], ..Allow::host(pattern("a.example.com")) };
        let rules = RuleSet { allow: vec![given], ..RuleSet::default() };
        let egress = EgressSpec { layers: vec![rules], transparent: true, ..EgressSpec::default() };
        let wanted = |hosts: &[&str]| {
            let hosts: Vec<String> = hosts.iter().map(|host| (*host).to_owned()).collect();
            wanted_by_tool(egress.clone(), &hosts)
        };
        let narrowed = wanted(&["a.example.com:8443", "*.example.org"]);
        assert!(!narrowed.transparent);
        let [_, layer] = &narrowed.layers[..] else { panic!("{narrowed:?}") };
        let seen: Vec<_> =
            layer.allow.iter().map(|it| (it.host.clone(), it.port, it.scheme())).collect();
        let (both, none) = ([Scheme::Https, Scheme::Http], None);
        let expected: Vec<_> = [("a.example.com", Some(8443)), ("*.example.org", none)]
            .into_iter()
            .flat_map(|(host, port)| both.map(|scheme| (pattern(host), port, scheme)))
            .collect();
        assert_eq!(seen, expected);
        assert!(layer.allow.iter().all(|it| it.addresses == [range]));
        assert_eq!(wanted(&["*"]).layers, egress.layers);
    }
}
