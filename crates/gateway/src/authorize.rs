//! The one decision: may this task go there? Every door asks here and nowhere else.

use std::net::IpAddr;

use hyper::Method;
use thiserror::Error;

use crate::address::{BadAddress, Range};
use crate::host::{BadHost, Host};
use crate::pattern::HostPattern;
use crate::rules::{GitRights, Rule, Rules, Scheme};
use crate::target::{self, Ambiguous};

/// Where a client wants to go, and, once it is known, what it asks for there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ask {
    pub host: Host,
    pub port: u16,
    pub scheme: Scheme,
    pub request: Option<AskedRequest>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AskedRequest {
    pub method: Method,
    /// Without the query.
    pub path: String,
}

/// A yes, with what the rule says about how.
#[derive(Debug, Clone, Default)]
pub struct Permit {
    pub rule: String,
    pub addresses: Vec<Range>,
    pub passthrough: bool,
    pub secret: Option<String>,
    pub git: Option<GitRights>,
    /// The rule goes by method, so that a header must not change it.
    pub by_method: bool,
}

/// A no, in words for the person who reads the event and the program that reads the answer.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum Refusal {
    #[error(transparent)]
    Host(#[from] BadHost),
    #[error("{host} is an address; allow a name, or write a rule for exactly this address")]
    Literal { host: String },
    #[error("no rule allows {host} on port {port}")]
    NoRule { host: String, port: u16 },
    #[error("no rule for {host} allows {method} {path}")]
    NoRequestRule { host: String, method: String, path: String },
    #[error("{rule} forbids it")]
    Denied { rule: String },
    #[error(transparent)]
    Path(#[from] Ambiguous),
    #[error("{host} has no address that may be reached: {reason}")]
    Address { host: String, reason: BadAddress },
    #[error("{host} has no address")]
    NoAddress { host: String },
}

impl Refusal {
    pub(crate) fn address(host: &Host, reason: BadAddress) -> Self {
        Self::Address { host: host.to_string(), reason }
    }
}

impl Permit {
    /// What both say yes to. The first names the rule.
    fn and(mut self, other: Permit) -> Permit {
        self.addresses.retain(|range| other.addresses.contains(range));
        // Opened if one wants to look inside.
        self.passthrough &= other.passthrough;
        self.by_method |= other.by_method;
        self.secret = self.secret.or(other.secret);
        self.git = match (self.git, other.git) {
            (Some(ours), Some(theirs)) => Some(both(&ours, &theirs)),
            (ours, theirs) => ours.or(theirs),
        };
        self
    }
}

fn both(one: &GitRights, other: &GitRights) -> GitRights {
    let common = |one: &[String], other: &[String]| {
        one.iter().filter(|pattern| other.contains(pattern)).cloned().collect()
    };
    GitRights {
        fetch: one.fetch && other.fetch,
        push: common(&one.push, &other.push),
        tags: common(&one.tags, &other.tags),
        rewrite: one.rewrite && other.rewrite,
    }
}

/// Decides about a connection, or, with `ask.request`, about one request on it. Nothing has been
/// looked up in DNS before this says yes.
pub fn authorize(rules: &Rules, ask: &Ask) -> Result<Permit, Refusal> {
    let mut permit = authorize_by(rules, ask)?;
    for rules in &rules.also {
        permit = permit.and(authorize_by(rules, ask)?);
    }
    Ok(permit)
}

/// One set of rules by itself.
fn authorize_by(rules: &Rules, ask: &Ask) -> Result<Permit, Refusal> {
    check_denies(rules, ask)?;
    let mut destination: Vec<&Rule> =
        rules.allow.iter().filter(|rule| reaches(rule, ask)).collect();
    // Rules for exactly this host stand in place of those with a star, so that what they withhold
    // is withheld.
    if destination.iter().any(|rule| matches!(rule.host, HostPattern::Exact(_))) {
        destination.retain(|rule| matches!(rule.host, HostPattern::Exact(_)));
    }
    if destination.is_empty() {
        return authorize_without_rule(rules, ask);
    }
    let Some(request) = &ask.request else {
        return Ok(permit(connection_rule(&destination)));
    };
    if destination.iter().any(|rule| !rule.matching.paths.is_empty()) {
        target::check_path(&request.path)?;
    }
    let covers = |rule: &&&Rule| rule.matching.covers(&request.method, &request.path);
    let mut covering = destination.iter().filter(covers);
    // One that carries a secret, if there is one: without it the request could not be made at all.
    covering
        .clone()
        .find(|rule| rule.secret.is_some())
        .or_else(|| covering.next())
        .map(|rule| permit(rule))
        .ok_or_else(|| Refusal::NoRequestRule {
            host: ask.host.to_string(),
            method: request.method.to_string(),
            path: request.path.clone(),
        })
}

/// Whether any rule would let the task talk to this name at all; what the DNS stub asks.
pub fn authorize_name(rules: &Rules, host: &Host) -> Result<Permit, Refusal> {
    let mut refusal = Refusal::NoRule { host: host.to_string(), port: 0 };
    let mut ports: Vec<(u16, Scheme)> = rules
        .allow
        .iter()
        .filter(|rule| rule.host.matches(host))
        .map(|rule| (rule.port, rule.scheme))
        .collect();
    if rules.open {
        ports.extend([(443, Scheme::Https), (80, Scheme::Http)]);
    }
    for (port, scheme) in ports {
        let ask = Ask { host: host.clone(), port, scheme, request: None };
        match authorize(rules, &ask) {
            Ok(permit) => return Ok(permit),
            Err(reason) => refusal = reason,
        }
    }
    Err(refusal)
}

fn check_denies(rules: &Rules, ask: &Ask) -> Result<(), Refusal> {
    for deny in &rules.deny {
        if !deny.host.matches_at_any_depth(&ask.host) || deny.port.is_some_and(|p| p != ask.port) {
            continue;
        }
        let denied = match &ask.request {
            None => deny.matching.covers_everything(),
            Some(request) => {
                if !deny.matching.paths.is_empty() {
                    target::check_path(&request.path)?;
                }
                deny.matching.covers(&request.method, &request.path)
            }
        };
        if denied {
            return Err(Refusal::Denied { rule: deny.name.clone() });
        }
    }
    Ok(())
}

fn reaches(rule: &Rule, ask: &Ask) -> bool {
    rule.scheme == ask.scheme && rule.port == ask.port && rule.host.matches(&ask.host)
}

/// For the connection as a whole: TLS stays closed only if no rule wants it opened.
fn connection_rule<'a>(rules: &[&'a Rule]) -> &'a Rule {
    rules.iter().find(|rule| !rule.passthrough).unwrap_or(&rules[0])
}

fn authorize_without_rule(rules: &Rules, ask: &Ask) -> Result<Permit, Refusal> {
    if let Host::Address(_) = ask.host {
        return Err(Refusal::Literal { host: ask.host.to_string() });
    }
    let open = rules.open && ask.port == ask.scheme.default_port();
    // With `open`, a path rule of some deny still needs unambiguous paths; `check_denies` saw to it.
    if open {
        return Ok(Permit { rule: "preset open".into(), ..Permit::default() });
    }
    Err(Refusal::NoRule { host: ask.host.to_string(), port: ask.port })
}

fn permit(rule: &Rule) -> Permit {
    Permit {
        rule: rule.name.clone(),
        addresses: rule.addresses.clone(),
        passthrough: rule.passthrough,
        secret: rule.secret.clone(),
        git: rule.git.clone(),
        by_method: !rule.matching.methods.is_empty(),
    }
}

/// Keeps the addresses that may be dialled, in the order of the answer.
pub fn survivors(
    host: &Host,
    answers: &[IpAddr],
    permit: &Permit,
    exempt: &[Range],
) -> Result<Vec<IpAddr>, Refusal> {
    let mut kept = Vec::new();
    let mut refusal = Refusal::NoAddress { host: host.to_string() };
    for address in answers {
        if exempt.iter().any(|range| range.contains(*address)) {
            kept.push(*address);
            continue;
        }
        let verdict = crate::address::judge(*address, &permit.addresses).and_then(|()| {
            if crate::address::is_own(*address) { Err(BadAddress::Own(*address)) } else { Ok(()) }
        });
        match verdict {
            Ok(()) => kept.push(*address),
            Err(reason) => refusal = Refusal::address(host, reason),
        }
    }
    if kept.is_empty() { Err(refusal) } else { Ok(kept) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rules::RuleSet;

    fn rules(json: serde_json::Value) -> Rules {
        crate::rules::check(&[serde_json::from_value::<RuleSet>(json).unwrap()]).unwrap()
    }

    fn ask(url: &str, request: Option<(&str, &str)>) -> Ask {
        let (scheme, authority) = url.split_once("://").unwrap();
        let scheme = if scheme == "https" { Scheme::Https } else { Scheme::Http };
        let (host, port) = Host::parse_authority(authority, Some(scheme.default_port())).unwrap();
        let request = request.map(|(method, path)| AskedRequest {
            method: method.parse().unwrap(),
            path: path.into(),
        });
        Ask { host, port, scheme, request }
    }

    #[test]
    fn nothing_is_allowed_that_no_rule_names() {
        let empty = Rules::default();
        assert!(authorize(&empty, &ask("https://example.com", None)).is_err());
        let one = rules(serde_json::json!({"allow": [{"host": "example.com"}]}));
        assert!(authorize(&one, &ask("https://example.com", None)).is_ok());
        for other in [
            "http://example.com",
            "https://example.com:8443",
            "http://example.com:443",
            "https://a.example.com",
            "https://93.184.216.34",
        ] {
            assert!(authorize(&one, &ask(other, None)).is_err(), "{other}");
        }
    }

    #[test]
    fn methods_and_paths_bind_requests() {
        let rules = rules(serde_json::json!({"allow": [
            {"host": "api.example.com", "methods": ["get"], "paths": ["/v1"]},
            {"host": "api.example.com", "methods": ["POST"], "paths": ["/v1/messages"]}
        ]}));
        let may = |method, path| {
            authorize(&rules, &ask("https://api.example.com", Some((method, path)))).is_ok()
        };
        assert!(may("GET", "/v1/models"));
        assert!(may("POST", "/v1/messages"));
        assert!(!may("POST", "/v1/models"));
        assert!(!may("GET", "/v2"));
        assert!(!may("GET", "/v1/../v2"));
        assert!(!may("GET", "/v1/%2e%2e/v2"));
        assert!(!may("get", "/v1/models"));
    }

    #[test]
    fn deny_wins() {
        let rules = rules(serde_json::json!({
            "presets": ["open"],
            "allow": [{"host": "a.example.com"}],
            "deny": [{"host": "*.example.com", "paths": ["/admin"]}, {"host": "evil.example.net"}]
        }));
        let decide = |url, request| authorize(&rules, &ask(url, request));
        assert!(decide("https://a.example.com", None).is_ok());
        assert!(decide("https://a.example.com", Some(("GET", "/x"))).is_ok());
        assert!(decide("https://a.example.com", Some(("GET", "/admin/x"))).is_err());
        assert!(decide("https://a.example.com", Some(("GET", "/x/../admin"))).is_err());
        assert!(decide("https://b.a.example.com", Some(("GET", "/admin"))).is_err());
        assert!(decide("https://evil.example.net", None).is_err());
        assert!(decide("https://other.example.net", None).is_ok());
        assert!(decide("https://other.example.net:8443", None).is_err());
        assert!(decide("https://1.1.1.1", None).is_err());
    }

    #[test]
    fn the_exact_host_counts_before_the_star() {
        let rules = rules(serde_json::json!({"allow": [
            {"host": "*.example.com"},
            {"host": "git.example.com", "git": {"fetch": true}},
            {"host": "api.example.com", "methods": ["GET"]},
            {"host": "api.example.com", "paths": ["/v1"], "secret": "key"}
        ]}));
        let decide = |url, request| authorize(&rules, &ask(url, Some(request)));
        assert!(decide("https://git.example.com", ("GET", "/x")).unwrap().git.is_some());
        assert!(decide("https://api.example.com", ("POST", "/x")).is_err());
        let secret = |path| decide("https://api.example.com", ("GET", path)).unwrap().secret;
        assert_eq!(secret("/v1/x").as_deref(), Some("key"));
        assert_eq!(secret("/x"), None);
        assert!(decide("https://other.example.com", ("POST", "/x")).is_ok());
    }

    #[test]
    fn every_set_of_rules_must_allow() {
        let set = |json| serde_json::from_value::<RuleSet>(json).unwrap();
        let wide = serde_json::json!({"presets": ["open"], "allow": [
            {"host": "api.example.com", "secret": "key", "addresses": ["10.0.0.0/8"]},
            {"host": "raw.example.com", "passthrough": true},
            {"host": "git.example.com", "git": {"fetch": true, "push": ["agent/*", "main"]}},
        ]});
        let narrow = serde_json::json!({"allow": [
            {"host": "api.example.com", "methods": ["GET"]},
            {"host": "raw.example.com", "methods": ["GET"]},
            {"host": "git.example.com", "git": {"fetch": true, "push": ["agent/*"]}},
        ]});
        for sets in [[wide.clone(), narrow.clone()], [narrow, wide]] {
            let rules = crate::rules::check(&sets.map(set)).unwrap();
            let decide = |url, request| authorize(&rules, &ask(url, request));
            let api = decide("https://api.example.com", Some(("GET", "/"))).unwrap();
            assert_eq!(api.secret.as_deref(), Some("key"));
            assert!(api.addresses.is_empty() && api.by_method);
            assert!(decide("https://api.example.com", Some(("POST", "/"))).is_err());
            assert!(!decide("https://raw.example.com", None).unwrap().passthrough);
            let git = decide("https://git.example.com", None).unwrap().git.unwrap();
            assert_eq!(git.push, ["agent/*"]);
            assert!(decide("https://other.example.com", None).is_err());
            assert!(authorize_name(&rules, &Host::parse("other.example.com").unwrap()).is_err());
            assert!(authorize_name(&rules, &Host::parse("api.example.com").unwrap()).is_ok());
        }
    }

    #[test]
    fn a_name_resolves_only_if_some_rule_could_use_it() {
        let rules = rules(serde_json::json!({
            "allow": [{"host": "*.example.com", "port": 8443}, {"host": "b.example.com"}],
            "deny": [{"host": "b.example.com"}]
        }));
        assert!(authorize_name(&rules, &Host::parse("a.example.com").unwrap()).is_ok());
        assert!(authorize_name(&rules, &Host::parse("b.example.com").unwrap()).is_err());
        assert!(authorize_name(&rules, &Host::parse("example.com").unwrap()).is_err());
    }

    #[test]
    fn only_addresses_that_survive_are_dialled() {
        let host = Host::parse("a.example.com").unwrap();
        let answers: Vec<IpAddr> =
            ["10.0.0.1", "1.1.1.1", "127.0.0.1"].iter().map(|text| text.parse().unwrap()).collect();
        let permit = Permit::default();
        assert_eq!(survivors(&host, &answers, &permit, &[]), Ok(vec![answers[1]]));
        assert!(survivors(&host, &answers[2..], &permit, &[]).is_err());
        assert!(survivors(&host, &[], &permit, &[]).is_err());
        let exempt = [Range::parse("127.0.0.1").unwrap()];
        assert_eq!(survivors(&host, &answers[2..], &permit, &exempt), Ok(vec![answers[2]]));
    }
}
