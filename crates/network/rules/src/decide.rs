//! The one decision: may this task go there? Every door asks here and nowhere else.

use ringwall_spec::{BadHost, GitRights, Host, Range, Scheme};
use thiserror::Error;

use crate::address::BadAddress;
use crate::check::{Matching, Refused, Rule, Rules, is_method};
use crate::target::{self, Ambiguous};
use crate::{git, names};

/// Where a client wants to go, and, once it is known, what it asks for there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ask {
    pub host: Host,
    pub port: u16,
    pub scheme: Scheme,
    pub request: Option<AskedRequest>,
}

/// Where a connection goes; DNS is asked without a port.
#[derive(Debug, Clone, Copy)]
pub struct Destination<'a> {
    pub host: &'a Host,
    pub port: Option<u16>,
}

impl Ask {
    pub fn destination(&self) -> Destination<'_> {
        Destination { host: &self.host, port: Some(self.port) }
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AskedRequest {
    pub method: String,
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
    /// What rules for the host go by, so that nothing else in a request must change it.
    pub goes_by: GoesBy,
}

/// What the rules for a host look at.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct GoesBy {
    pub methods: bool,
    pub paths: bool,
}

impl GoesBy {
    pub fn of(matching: &Matching) -> Self {
        Self { methods: !matching.methods.is_empty(), paths: !matching.paths.is_empty() }
    }

    pub fn or(self, other: Self) -> Self {
        Self { methods: self.methods || other.methods, paths: self.paths || other.paths }
    }
}

/// A no, in words for the person who reads the event and the program that reads the answer.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum Refusal {
    #[error(transparent)]
    Host(#[from] BadHost),
    #[error("{host} is not valid punycode; a label of it begins with xn--")]
    Punycode { host: String },
    #[error("{host} is an address; allow a name, or write a rule for exactly this address")]
    Literal { host: String },
    #[error("no rule allows {host} on port {port}")]
    NoRule { host: String, port: u16 },
    #[error("no rule for {host} allows {method} {path}")]
    NoRequestRule { host: String, method: String, path: String },
    #[error(
        "the rule for {host} allows git only, over its smart protocol, and not {method} {path}"
    )]
    NotGit { host: String, method: String, path: String },
    #[error(
        "{0:?} is not written in capital letters, as methods are; some servers take it for another"
    )]
    Method(String),
    #[error("{rule} forbids it")]
    Denied { rule: String },
    #[error(transparent)]
    Path(#[from] Ambiguous),
    #[error("{host} has no address that may be reached: {reason}")]
    Address { host: String, reason: BadAddress },
    #[error("{host} has no address")]
    NoAddress { host: String },
}

impl Permit {
    /// What both say yes to. The first names the rule.
    fn and(mut self, other: Permit) -> Permit {
        self.addresses.retain(|range| other.addresses.contains(range));
        // Opened if one wants to look inside.
        self.passthrough &= other.passthrough;
        self.goes_by = self.goes_by.or(other.goes_by);
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

/// Letters of a method that no rule allows.
const MOST_SHOWN: usize = 32;

/// Decides about a connection, or, with `ask.request`, about one request on it. Nothing has been
/// looked up in DNS before this says yes.
pub fn authorize(rules: &Rules, ask: &Ask) -> Result<Permit, Refusal> {
    if !names::is_clear(&ask.host) {
        return Err(Refusal::Punycode { host: ask.host.to_string() });
    }
    if let Some(request) = ask.request.as_ref().filter(|request| !is_method(&request.method)) {
        return Err(Refusal::Method(request.method.chars().take(MOST_SHOWN).collect()));
    }
    let mut permit = authorize_by(rules, ask)?;
    let mut named = (!rules.narrows).then(|| permit.secret.take());
    for rules in &rules.also {
        let mut other = authorize_by(rules, ask)?;
        if !rules.narrows {
            let secret = other.secret.take();
            // All that give must name the same one.
            named = match named {
                Some(first) if first != secret => Some(None),
                _ => Some(secret),
            };
        }
        permit = permit.and(other);
    }
    permit.secret = named.flatten();
    Ok(permit)
}

/// One set of rules by itself.
fn authorize_by(rules: &Rules, ask: &Ask) -> Result<Permit, Refusal> {
    let goes_by = goes_by(rules, ask);
    if let Some(request) = ask.request.as_ref().filter(|_| goes_by.paths) {
        target::check_path(&request.path)?;
    }
    check_denies(rules, ask)?;
    let permit = allowed(rules, ask)?;
    // What a denial looks at inside must be seen.
    let passthrough = permit.passthrough && !denials(rules, ask).any(|_| true);
    Ok(Permit { goes_by, passthrough, ..permit })
}

/// What any rule for the host goes by, also one for another port: a server may listen at both.
fn goes_by(rules: &Rules, ask: &Ask) -> GoesBy {
    let allowed = rules.allow.iter().filter(|rule| rule.host.matches(&ask.host));
    let of_allowed = |rule: &Rule| {
        let git = GoesBy { methods: rule.git.is_some(), paths: rule.git.is_some() };
        GoesBy::of(&rule.matching).or(git)
    };
    let denied = rules.deny.iter().filter(|rule| rule.host.matches(&ask.host));
    let denied = denied.map(|rule| GoesBy::of(&rule.matching));
    allowed.map(of_allowed).chain(denied).fold(GoesBy::default(), GoesBy::or)
}

fn allowed(rules: &Rules, ask: &Ask) -> Result<Permit, Refusal> {
    let mut destination: Vec<&Rule> =
        rules.allow.iter().filter(|rule| reaches(rule, ask)).collect();
    // Rules for exactly this host stand in place of those with a star, so that what they withhold
    // is withheld.
    if destination.iter().any(|rule| rule.host.exact().is_some()) {
        destination.retain(|rule| rule.host.exact().is_some());
    }
    if destination.is_empty() {
        return authorize_without_rule(rules, ask);
    }
    let Some(request) = &ask.request else {
        return Ok(permit(connection_rule(&destination)));
    };
    let matches = |rule: &&&Rule| rule.matching.covers(&request.method, &request.path);
    let is_served = |rule: &&&Rule| {
        let git = rule.git.as_ref();
        git.is_none_or(|rights| git::may_serve(rights, &request.method, &request.path))
    };
    let mut covering = destination.iter().filter(matches).filter(is_served);
    // One that carries a secret, if there is one: without it the request could not be made at all.
    covering
        .clone()
        .find(|rule| rule.secret.is_some())
        .or_else(|| covering.next())
        .map(|rule| permit(rule))
        .ok_or_else(|| {
            let host = ask.host.to_string();
            let (method, path) = (request.method.clone(), request.path.clone());
            match destination.iter().filter(matches).any(|rule| rule.git.is_some()) {
                true => Refusal::NotGit { host, method, path },
                false => Refusal::NoRequestRule { host, method, path },
            }
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

/// What denies something at this host and port.
fn denials<'r>(rules: &'r Rules, ask: &'r Ask) -> impl Iterator<Item = &'r Refused> {
    let here = |deny: &&Refused| {
        deny.host.matches(&ask.host) && deny.port.is_none_or(|port| port == ask.port)
    };
    rules.deny.iter().filter(here)
}

fn check_denies(rules: &Rules, ask: &Ask) -> Result<(), Refusal> {
    let denies = |deny: &&Refused| match &ask.request {
        None => deny.matching.covers_everything(),
        Some(request) => deny.matching.may_cover(&request.method, &request.path),
    };
    match denials(rules, ask).find(denies) {
        Some(deny) => Err(Refusal::Denied { rule: deny.name.clone() }),
        None => Ok(()),
    }
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
        goes_by: GoesBy::default(),
    }
}

#[cfg(test)]
mod tests;
