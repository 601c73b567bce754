//! Lowering of the network: reach of trust levels, allowlist, presets, denials, secrets bound to endpoints.
//!
//! The gateway decides by the same rules (`ringwall_rules::authorize`), and a property test holds both
//! against each other. So this file follows that one: rules for exactly a host stand in place of those
//! with `*`, TLS stays closed only where no rule looks inside, and a path with two readings is refused
//! where a rule of its host goes by path.

use ringwall_spec::{Allow, Deny, GitRights, Host, HostPattern, Preset, Scheme};

use super::expr::{
    E, all, any, context, elevated, host, is, is_name, is_number, like, not, one_of, principal,
    resource, truth, url_paths, url_paths_in_any_letters,
};
use super::{Rule, Source};
use crate::file::NetworkRules;
use crate::pattern::Glob;
use crate::values::{Grant, Name};
use crate::words::{Reach, TaintEffect, Trust};

/// A rule of the allowlist or of a preset, and where it stands.
struct Listed {
    name: String,
    offset: usize,
    rule: Allow,
}

/// Hosts that elevations let a task connect to.
struct Granted<'a> {
    elevation: &'a Name,
    host: &'a HostPattern,
}

impl Source<'_> {
    pub(super) fn connect(self) -> Vec<Rule> {
        let mut rules = Vec::new();
        for (trust, row) in
            self.file.trust_levels.iter().flat_map(|trust_levels| &trust_levels.value)
        {
            if row.value.network.value == Reach::Open {
                let when = all([is(principal("trust"), trust.name()), is_public_web()]);
                let offset = row.value.network.offset;
                rules.push(Rule::permit(format!("trust-levels.{trust}.network"), offset, when));
            }
        }
        match &self.file.network {
            Some(network) if self.base || is_list(&network.value) => {
                rules.extend(self.allowed(&network.value));
            }
            _ if !self.base => rules.push(Rule::inherited("network", self.listed_trust_levels())),
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
            Grant::Connect(pattern) => Some(self.granted(pattern)),
            _ => None,
        }));
        rules.extend(self.unclear_paths());
        rules.extend(self.taint(TaintEffect::NoNetwork));
        rules
    }

    pub(super) fn secret(self) -> Vec<Rule> {
        let mut rules = Vec::new();
        let bound = |allow: &Allow| {
            let at = allow.host.exact().map(Host::bare).unwrap_or_default();
            all([is(context("host"), &at), is_number(context("port"), i64::from(allow.port()))])
        };
        let of_allow = || {
            let allow = self.file.network.iter().flat_map(|network| &network.value.allow);
            allow.filter_map(|allow| allow.value.secret.as_deref().map(|secret| (allow, secret)))
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
                let connected = any([self.listed_trust_levels(), self.open_trust_levels()]);
                for (index, (allow, secret)) in of_allow().enumerate() {
                    let named = is(resource("name"), secret);
                    let when = all([named, connected.clone(), bound(&allow.value)]);
                    let name = format!("network.allow secret {secret} [{index}]");
                    rules.push(Rule::permit(name, allow.offset, when).of_host(&allow.value.host));
                }
            }
        }
        // Even an approved secret goes only to an endpoint to which the file binds it.
        rules.extend(self.by_elevation(|grant| match grant {
            Grant::Secret(granted) => {
                let endpoints = of_allow().filter(|(_, secret)| *secret == granted.as_str());
                let endpoints = any(endpoints.map(|(allow, _)| bound(&allow.value)));
                Some(all([is(resource("name"), granted.as_str()), endpoints]))
            }
            _ => None,
        }));
        rules.extend(self.taint(TaintEffect::NoSecrets));
        rules
    }

    /// Trust levels whose network is the allowlist. A layer that only narrows need not name its trust levels.
    fn listed_trust_levels(self) -> E {
        self.tiers_with(Reach::Allowlist, !self.base)
    }

    fn open_trust_levels(self) -> E {
        self.tiers_with(Reach::Open, false)
    }

    fn tiers_with(self, reach: Reach, where_absent: bool) -> E {
        let names: Vec<&str> = Trust::ALL
            .iter()
            .filter(|trust| {
                self.file
                    .trust_rules(**trust)
                    .map_or(where_absent, |row| row.value.network.value == reach)
            })
            .map(|trust| trust.name())
            .collect();
        one_of(&names, principal("trust"))
    }

    /// The rules of the allowlist and of the presets that are lists.
    fn listed(self) -> Vec<Listed> {
        let Some(network) = self.file.network.as_ref().map(|network| &network.value) else {
            return Vec::new();
        };
        let own = network.allow.iter().enumerate().map(|(index, allow)| Listed {
            name: format!("network.allow[{index}]"),
            offset: allow.offset,
            rule: allow.value.clone(),
        });
        let presets = network.presets.iter().flat_map(|presets| {
            presets.value.iter().flat_map(move |preset| {
                preset.rules().into_iter().map(move |rule| Listed {
                    name: format!("network.presets {preset} ({})", rule.host),
                    offset: presets.offset,
                    rule,
                })
            })
        });
        own.chain(presets).collect()
    }

    fn grants(&self) -> Vec<Granted<'_>> {
        let elevations = self.file.elevation.iter().map(|elevation| &elevation.value);
        let hosts = elevations.flat_map(|elevation| {
            elevation.grants.iter().filter_map(|grant| match grant {
                Grant::Connect(host) => Some(Granted { elevation: &elevation.name, host }),
                _ => None,
            })
        });
        hosts.collect()
    }

    fn allowed(self, network: &NetworkRules) -> Vec<Rule> {
        let mut rules = Vec::new();
        let listed = self.listed();
        let in_list: Vec<&Allow> = listed.iter().map(|listed| &listed.rule).collect();
        // Where all is open only what carries a secret needs a rule.
        let in_open: Vec<&Allow> =
            in_list.iter().copied().filter(|rule| rule.secret.is_some()).collect();
        let grants = self.grants();
        let open = network.presets.as_ref().filter(|it| it.value.contains(&Preset::Open));
        if let Some(presets) = open {
            let elsewhere = not(any(in_list.iter().map(|rule| reaches(rule))));
            let when = all([self.listed_trust_levels(), is_public_web(), elsewhere]);
            rules.push(Rule::permit("network.presets open", presets.offset, when));
        }
        for Listed { name, offset, rule } in &listed {
            let of_list = all([self.listed_trust_levels(), inside(rule, &in_list, &grants)]);
            let of_open = rule
                .secret
                .is_some()
                .then(|| all([self.open_trust_levels(), inside(rule, &in_open, &grants)]));
            // The host first: with many rules, most end there.
            let when = all([reaches(rule), any([of_list].into_iter().chain(of_open))]);
            rules.push(Rule::permit(name.clone(), *offset, when).of_host(&rule.host));
        }
        rules
    }

    /// What an elevation opens, at port 443.
    fn granted(self, pattern: &HostPattern) -> E {
        let opened = Allow::host(pattern.clone());
        let listed = self.listed();
        let in_list: Vec<&Allow> = listed.iter().map(|listed| &listed.rule).collect();
        let counts = any([not(self.listed_trust_levels()), stands(&opened, &in_list)]);
        let unseen = not(is(context("stage"), "tunnel"));
        all([reaches(&opened), all([unseen, counts])])
    }

    /// Where any rule of a host goes by path, a path that servers read in several ways.
    fn unclear_paths(self) -> Option<Rule> {
        let by_path = |rule: &&Listed| rule.rule.git.is_some() || !rule.rule.paths.is_empty();
        let listed = self.listed();
        let of = |with_secret: bool| {
            let rules = listed.iter().filter(by_path);
            let rules = rules.filter(move |it| !with_secret || it.rule.secret.is_some());
            any(rules.map(|it| host(&it.rule.host)))
        };
        let denied = self.file.network.iter().flat_map(|network| &network.value.deny);
        let denied: Vec<E> = denied
            .filter(|deny| !deny.value.paths.is_empty())
            .map(|deny| host(&deny.value.host))
            .collect();
        if denied.is_empty() && !listed.iter().any(|rule| by_path(&rule)) {
            return None;
        }
        let hosts = any([
            all([self.listed_trust_levels(), of(false)]),
            all([self.open_trust_levels(), of(true)]),
            any(denied),
        ]);
        let unclear = all([is(context("stage"), "request"), not(context("clearPath"))]);
        let name = "network (a path that servers read in several ways)".to_owned();
        Some(Rule::new(name, None, false, all([unclear, hosts])))
    }
}

/// Whether it says what may be reached, and not only what may not.
fn is_list(network: &NetworkRules) -> bool {
    network.presets.is_some() || !network.allow.is_empty()
}

fn endpoint(scheme: Scheme, port: u16) -> E {
    all([is_number(resource("port"), i64::from(port)), is(resource("scheme"), scheme.name())])
}

fn reaches(rule: &Allow) -> E {
    all([host(&rule.host), endpoint(rule.scheme(), rule.port())])
}

/// Every public name at the ports of the web; what is not looked into does not pass.
fn is_public_web() -> E {
    let web = any([Scheme::Https, Scheme::Http].map(|it| endpoint(it, it.default_port())));
    all([web, all([is_name(), not(is(context("stage"), "tunnel"))])])
}

fn at_same_port(one: &Allow, other: &Allow) -> bool {
    (one.scheme(), one.port()) == (other.scheme(), other.port())
}

/// Whether no rule for exactly the host stands in place of this one.
fn stands(rule: &Allow, among: &[&Allow]) -> E {
    if rule.host.exact().is_some() {
        return truth(true);
    }
    let exact = among
        .iter()
        .filter(|other| at_same_port(rule, other))
        .filter_map(|other| other.host.exact())
        .filter(|host| rule.host.matches(host))
        .map(Host::bare);
    not(one_of(&exact.collect::<Vec<_>>(), resource("host")))
}

/// What a rule lets pass at its endpoint, beside the other rules that count there.
fn inside(rule: &Allow, among: &[&Allow], grants: &[Granted<'_>]) -> E {
    let stage = |name| is(context("stage"), name);
    let unseen = rule.passthrough.then(|| {
        let opened = any(opening(rule, among).chain(opening_by_grant(rule, grants)));
        all([stage("tunnel"), not(opened)])
    });
    // A connection that will be looked into may be dialled; a request in it must then hold.
    let seen = [stage("dial"), all([stage("request"), asks(rule)])];
    all([stands(rule, among), any(seen.into_iter().chain(unseen))])
}

/// Rules of the same rank that look inside where this one would not.
fn opening<'r>(rule: &'r Allow, among: &'r [&'r Allow]) -> impl Iterator<Item = E> {
    among.iter().filter(|other| !other.passthrough && at_same_port(rule, other)).filter_map(
        |other| match (rule.host.exact(), other.host.exact()) {
            (Some(own), Some(others)) => (own == others).then(|| truth(true)),
            (None, None) => Some(host(&other.host)),
            _ => None,
        },
    )
}

fn opening_by_grant<'r>(rule: &'r Allow, grants: &'r [Granted<'r>]) -> impl Iterator<Item = E> {
    let same_port = |grant: &&Granted<'_>| at_same_port(rule, &Allow::host(grant.host.clone()));
    let same_rank = |grant: &&Granted<'_>| match rule.host.exact() {
        Some(own) => grant.host.exact() == Some(own),
        None => true,
    };
    let grants = grants.iter().filter(same_port).filter(same_rank);
    grants.map(|grant| all([elevated(grant.elevation.as_str()), host(grant.host)]))
}

/// What a request must be like under a rule.
fn asks(rule: &Allow) -> E {
    // Whoever adds a field says here what it asks of a request, or that it asks nothing.
    let Allow {
        methods,
        paths,
        git,
        // Asked by `reaches` and `inside`.
        host: _,
        scheme: _,
        port: _,
        passthrough: _,
        // They change how a request is served, and not which.
        name: _,
        addresses: _,
        secret: _,
    } = rule;
    let paths = (!paths.is_empty()).then(|| url_paths(paths));
    let git = git.as_ref().map(git_requests);
    all([one_of_methods(methods)].into_iter().chain(paths).chain(git))
}

fn git_requests(rights: &GitRights) -> E {
    any(ringwall_rules::git_requests(rights).map(|(method, end)| {
        let path = Glob(vec![Some("/".to_owned()), None, Some(end.to_owned())]);
        all([is(context("method"), method), like(context("path"), &path)])
    }))
}

/// Nothing means all of them.
fn one_of_methods(methods: &[String]) -> E {
    if methods.is_empty() {
        return truth(true);
    }
    let names: Vec<String> = methods.iter().map(|method| method.to_ascii_uppercase()).collect();
    one_of(&names, context("method"))
}

fn denied(rule: &Deny) -> E {
    let port = rule.port.map(|port| is_number(resource("port"), port.into()));
    let looks_inside = !rule.methods.is_empty() || !rule.paths.is_empty();
    // What cannot be looked into might be what is denied.
    let inside = looks_inside.then(|| {
        let paths = (!rule.paths.is_empty()).then(|| url_paths_in_any_letters(&rule.paths));
        let seen = all([is(context("stage"), "request"), one_of_methods(&rule.methods)]
            .into_iter()
            .chain(paths));
        any([is(context("stage"), "tunnel"), seen])
    });
    all([host(&rule.host)].into_iter().chain(port).chain(inside))
}
