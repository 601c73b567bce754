//! Lowering of the network: reach of tiers, allowlist, presets, denials, secrets bound to endpoints.

use super::expr::{
    E, all, any, context, host, is, is_number, like, not, one_of, principal, resource, truth,
    url_paths,
};
use super::{Rule, Source};
use crate::file::{AllowRule, DenyRule, NetworkRules};
use crate::pattern::UrlPrefix;
use crate::presets::rules_of;
use crate::values::{Grant, Method};
use crate::words::{Preset, Reach, TaintEffect, Tier};

const HTTPS: i64 = 443;

impl Source<'_> {
    pub(super) fn connect(self) -> Vec<Rule> {
        let mut rules = Vec::new();
        for (tier, row) in self.file.tiers.iter().flat_map(|tiers| &tiers.value) {
            if row.value.network.value == Reach::Open {
                let when = is(principal("tier"), tier.name());
                let offset = row.value.network.offset;
                rules.push(Rule::permit(format!("tiers.{tier}.network"), offset, when));
            }
        }
        let listed = self.listed_tiers();
        match &self.file.network {
            Some(network) if self.base || is_list(&network.value) => {
                rules.extend(allowed(&network.value, &listed));
            }
            _ if !self.base => rules.push(Rule::inherited("network", listed)),
            _ => {}
        }
        for (index, deny) in
            self.file.network.iter().flat_map(|network| &network.value.deny).enumerate()
        {
            let when = denied(&deny.value);
            let rule = Rule::forbid(format!("network.deny[{index}]"), deny.offset, when);
            rules.push(rule.of_host(&deny.value.host));
        }
        rules.extend(self.by_elevation(|grant| match grant {
            Grant::Connect(pattern) => {
                Some(all([host(pattern, resource("host")), is_number(resource("port"), HTTPS)]))
            }
            _ => None,
        }));
        rules.extend(self.taint(TaintEffect::NoNetwork));
        rules
    }

    pub(super) fn secret(self) -> Vec<Rule> {
        let mut rules = Vec::new();
        let bound = |allow: &AllowRule| {
            all([
                host(&allow.host, context("host")),
                is_number(context("port"), i64::from(allow.port)),
            ])
        };
        let of_allow = || {
            let allow = self.file.network.iter().flat_map(|network| &network.value.allow);
            allow.filter_map(|allow| allow.value.secret.as_ref().map(|secret| (allow, secret)))
        };
        match &self.file.secrets {
            Some(secrets) if !self.base => {
                let names: Vec<&str> =
                    secrets.value.iter().map(|name| name.value.as_str()).collect();
                let when = one_of(&names, resource("name"));
                rules.push(Rule::permit("secrets", secrets.offset, when));
            }
            None if !self.base => rules.push(Rule::inherited("secrets", truth(true))),
            _ => {
                let connected = any([self.listed_tiers(), self.open_tiers()]);
                for (index, (allow, secret)) in of_allow().enumerate() {
                    let named = is(resource("name"), secret.as_str());
                    let when = all([named, connected.clone(), bound(&allow.value)]);
                    let name = format!("network.allow secret {secret} [{index}]");
                    rules.push(Rule::permit(name, allow.offset, when).of_host(&allow.value.host));
                }
            }
        }
        // Even an approved secret goes only to an endpoint to which the file binds it.
        rules.extend(self.by_elevation(|grant| match grant {
            Grant::Secret(granted) => {
                let endpoints = of_allow().filter(|(_, secret)| *secret == granted);
                let endpoints = any(endpoints.map(|(allow, _)| bound(&allow.value)));
                Some(all([is(resource("name"), granted.as_str()), endpoints]))
            }
            _ => None,
        }));
        rules.extend(self.taint(TaintEffect::NoSecrets));
        rules
    }

    /// Tiers whose network is the allowlist. A layer that only narrows need not name its tiers.
    fn listed_tiers(self) -> E {
        self.tiers_with(Reach::Allowlist, !self.base)
    }

    fn open_tiers(self) -> E {
        self.tiers_with(Reach::Open, false)
    }

    fn tiers_with(self, reach: Reach, where_absent: bool) -> E {
        let names: Vec<&str> = Tier::ALL
            .iter()
            .filter(|tier| {
                self.file
                    .tier_rules(**tier)
                    .map_or(where_absent, |row| row.value.network.value == reach)
            })
            .map(|tier| tier.name())
            .collect();
        one_of(&names, principal("tier"))
    }
}

/// Whether it says what may be reached, and not only what may not.
fn is_list(network: &NetworkRules) -> bool {
    network.presets.is_some() || !network.allow.is_empty()
}

fn allowed(network: &NetworkRules, listed: &E) -> Vec<Rule> {
    let mut rules = Vec::new();
    for preset in network.presets.iter().flat_map(|presets| &presets.value) {
        let offset = network.presets.as_ref().map_or(0, |presets| presets.offset);
        let holds = match (preset, rules_of(*preset)) {
            (Preset::Open, _) => truth(true),
            (_, None) => continue,
            (_, Some(preset)) => {
                let requests = preset.requests().map(|(method, path)| {
                    all([is(context("method"), method), like(context("path"), &path)])
                });
                all([
                    one_of(preset.hosts, resource("host")),
                    is_number(resource("port"), HTTPS),
                    dialled_or(any(requests)),
                ])
            }
        };
        let name = format!("network.presets {preset}");
        rules.push(Rule::permit(name, offset, all([listed.clone(), holds])));
    }
    for (index, allow) in network.allow.iter().enumerate() {
        let rule = &allow.value;
        let inside = if rule.passthrough {
            truth(true)
        } else {
            dialled_or(request(&rule.methods, &rule.paths))
        };
        // The host first: with many rules, most end there.
        let when = all([
            all([
                host(&rule.host, resource("host")),
                is_number(resource("port"), rule.port.into()),
            ]),
            all([listed.clone(), inside]),
        ]);
        let name = format!("network.allow[{index}]");
        rules.push(Rule::permit(name, allow.offset, when).of_host(&rule.host));
    }
    rules
}

/// A connection that will be looked into may be dialled; a request in it must then hold.
fn dialled_or(holds: E) -> E {
    any([is(context("stage"), "dial"), all([is(context("stage"), "request"), holds])])
}

fn request(methods: &[Method], paths: &[UrlPrefix]) -> E {
    let methods = (!methods.is_empty()).then(|| {
        let names: Vec<&str> = methods.iter().map(Method::as_str).collect();
        one_of(&names, context("method"))
    });
    let paths = (!paths.is_empty()).then(|| url_paths(paths));
    all(methods.into_iter().chain(paths))
}

fn denied(rule: &DenyRule) -> E {
    let port = rule.port.map(|port| is_number(resource("port"), port.into()));
    let looks_inside = !rule.methods.is_empty() || !rule.paths.is_empty();
    // What cannot be looked into might be what is denied.
    let inside = looks_inside.then(|| {
        let seen = all([is(context("stage"), "request"), request(&rule.methods, &rule.paths)]);
        all([not(is(context("stage"), "dial")), any([is(context("stage"), "tunnel"), seen])])
    });
    all([host(&rule.host, resource("host"))].into_iter().chain(port).chain(inside))
}
