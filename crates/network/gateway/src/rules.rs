//! The rules of a task, checked.

use std::collections::BTreeSet;

use hyper::Method;
pub use ringwall_spec::{Allow, Deny, GitRights, Preset, RuleSet, Scheme};
use thiserror::Error;

use crate::address::{BadRange, Range};
use crate::host::Host;
use crate::pattern::{BadPattern, HostPattern};
use crate::presets;
use crate::target;

#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum BadRules {
    #[error("rule {rule}: {method:?} is no method that can be allowed")]
    Method { rule: String, method: String },
    #[error("rule {rule}: path {path:?} must begin with a slash and hold no dot segments or codes")]
    Path { rule: String, path: String },
    #[error("rule {0}: port 0")]
    Port(String),
    #[error("rule {0}: an address in `host` must also stand in `addresses` unless it is public")]
    Address(String),
    #[error(
        "rule {0}: passthrough does not open TLS, so it cannot have methods, paths, git rights or a secret"
    )]
    Passthrough(String),
    #[error("rule {0}: passthrough is for https")]
    PassthroughScheme(String),
    #[error("rule {0}: a secret is only sent over https")]
    SecretOverHttp(String),
    #[error("rule {rule}: {pattern:?} is no branch or tag")]
    Branch { rule: String, pattern: String },
    #[error(transparent)]
    Host(#[from] BadPattern),
    #[error("rule {rule}: {reason}")]
    Range { rule: String, reason: BadRange },
    #[error("more than {MOST_RULES} rules, or {MOST_LAYERS} sets of rules")]
    TooMany,
}

const MOST_RULES: usize = 4096;
const MOST_LAYERS: usize = 64;

/// Checked rules.
#[derive(Debug, Default)]
pub struct Rules {
    pub(crate) allow: Vec<Rule>,
    pub(crate) deny: Vec<Refused>,
    /// Any public name on the two web ports.
    pub(crate) open: bool,
    /// It has no say about secrets.
    pub(crate) narrows: bool,
    /// Each of these must allow, too.
    pub(crate) also: Vec<Rules>,
}

#[derive(Debug)]
pub struct Rule {
    pub name: String,
    pub host: HostPattern,
    pub scheme: Scheme,
    pub port: u16,
    pub matching: Matching,
    pub addresses: Vec<Range>,
    pub secret: Option<String>,
    pub passthrough: bool,
    pub git: Option<GitRights>,
}

#[derive(Debug)]
pub(crate) struct Refused {
    pub(crate) name: String,
    pub(crate) host: HostPattern,
    pub(crate) port: Option<u16>,
    pub(crate) matching: Matching,
}

/// Methods and paths; empty means any.
#[derive(Debug, Clone, Default)]
pub struct Matching {
    pub methods: BTreeSet<String>,
    pub paths: Vec<String>,
}

impl Matching {
    pub fn check(rule: &str, methods: &[String], paths: &[String]) -> Result<Self, BadRules> {
        let bad_method =
            |method: &String| BadRules::Method { rule: rule.into(), method: method.clone() };
        let mut checked = BTreeSet::new();
        for method in methods {
            let upper = method.to_ascii_uppercase();
            Method::from_bytes(upper.as_bytes()).map_err(|_| bad_method(method))?;
            if upper == "CONNECT" {
                return Err(bad_method(method));
            }
            checked.insert(upper);
        }
        for path in paths {
            target::check_path(path)
                .map_err(|_| BadRules::Path { rule: rule.into(), path: path.clone() })?;
        }
        Ok(Self { methods: checked, paths: paths.to_vec() })
    }

    pub fn covers_everything(&self) -> bool {
        self.methods.is_empty() && self.paths.is_empty()
    }

    pub fn covers(&self, method: &Method, path: &str) -> bool {
        let method = self.methods.is_empty() || self.methods.contains(method.as_str());
        method && (self.paths.is_empty() || self.paths.iter().any(|p| target::lies_below(path, p)))
    }

    /// For rules that deny, which cover a path however a server may read its letters.
    pub(crate) fn may_cover(&self, method: &Method, path: &str) -> bool {
        let below = |prefix: &String| target::may_lie_below(path, prefix);
        let method = self.methods.is_empty() || self.methods.contains(method.as_str());
        method && (self.paths.is_empty() || self.paths.iter().any(below))
    }
}

/// Checks sets of rules, every one of which must allow. Without any, nothing is allowed.
pub fn check(sets: &[RuleSet]) -> Result<Rules, BadRules> {
    let [first, others @ ..] = sets else {
        return Ok(Rules::default());
    };
    if others.len() >= MOST_LAYERS {
        return Err(BadRules::TooMany);
    }
    let mut rules = check_set(first)?;
    rules.also = others.iter().map(check_set).collect::<Result<_, _>>()?;
    Ok(rules)
}

fn check_set(set: &RuleSet) -> Result<Rules, BadRules> {
    let open = set.presets.contains(&Preset::Open);
    let mut rules = Rules { open, narrows: set.narrows, ..Rules::default() };
    let presets = set.presets.iter().flat_map(|preset| presets::rules_of(*preset));
    for allow in set.allow.iter().cloned().chain(presets) {
        rules.allow.push(check_allow(allow)?);
    }
    for deny in &set.deny {
        let host = HostPattern::parse_denied(&deny.host)?;
        let name = format!("deny {host}");
        rules.deny.push(Refused {
            matching: Matching::check(&name, &deny.methods, &deny.paths)?,
            host,
            port: deny.port,
            name,
        });
    }
    if rules.allow.len() + rules.deny.len() > MOST_RULES {
        return Err(BadRules::TooMany);
    }
    Ok(rules)
}

fn check_allow(allow: Allow) -> Result<Rule, BadRules> {
    let host = HostPattern::parse(&allow.host)?;
    let port = allow.port.unwrap_or(allow.scheme.default_port());
    let name = allow.name.unwrap_or_else(|| format!("{host}:{port}"));
    if port == 0 {
        return Err(BadRules::Port(name));
    }
    let ranges = allow.addresses.iter().map(|range| Range::parse(range));
    let addresses: Vec<Range> = ranges
        .collect::<Result<_, _>>()
        .map_err(|reason| BadRules::Range { rule: name.clone(), reason })?;
    if let HostPattern::Exact(Host::Address(address)) = host
        && crate::address::judge(address, &addresses).is_err()
    {
        return Err(BadRules::Address(name));
    }
    if allow.passthrough {
        let plain = allow.methods.is_empty() && allow.paths.is_empty();
        if !plain || allow.secret.is_some() || allow.git.is_some() {
            return Err(BadRules::Passthrough(name));
        }
        if allow.scheme != Scheme::Https {
            return Err(BadRules::PassthroughScheme(name));
        }
    }
    if allow.secret.is_some() && allow.scheme != Scheme::Https {
        return Err(BadRules::SecretOverHttp(name));
    }
    for pattern in allow.git.iter().flat_map(|git| git.push.iter().chain(&git.tags)) {
        let body = pattern.strip_suffix('*').unwrap_or(pattern);
        let odd = |byte: u8| byte <= b' ' || byte >= 0x7f || b"*?[\\^~:".contains(&byte);
        if pattern.is_empty() || body.contains("..") || body.bytes().any(odd) {
            return Err(BadRules::Branch { rule: name, pattern: pattern.clone() });
        }
    }
    Ok(Rule {
        matching: Matching::check(&name, &allow.methods, &allow.paths)?,
        name,
        host,
        scheme: allow.scheme,
        port,
        addresses,
        secret: allow.secret,
        passthrough: allow.passthrough,
        git: allow.git,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn checked(json: serde_json::Value) -> Result<Rules, String> {
        let set: RuleSet = serde_json::from_value(json).map_err(|error| error.to_string())?;
        check(&[set]).map_err(|error| error.to_string())
    }

    #[test]
    fn what_cannot_be_kept_is_refused() {
        for allow in [
            serde_json::json!({"host": "*.com"}),
            serde_json::json!({"host": "a.example", "passthrough": true, "secret": "s"}),
            serde_json::json!({"host": "a.example", "passthrough": true, "paths": ["/a"]}),
            serde_json::json!({"host": "a.example", "passthrough": true, "scheme": "http"}),
            serde_json::json!({"host": "a.example", "scheme": "http", "secret": "s"}),
            serde_json::json!({"host": "a.example", "methods": ["CONNECT"]}),
            serde_json::json!({"host": "a.example", "methods": ["G T"]}),
            serde_json::json!({"host": "a.example", "paths": ["/a/../b"]}),
            serde_json::json!({"host": "a.example", "port": 0}),
            serde_json::json!({"host": "127.0.0.1"}),
            serde_json::json!({"host": "127.0.0.1", "addresses": ["127.0.0.0/8"]}),
            serde_json::json!({"host": "10.0.0.1"}),
            serde_json::json!({"host": "a.example", "git": {"push": ["a..b"]}}),
            serde_json::json!({"host": "a.example", "unknown": 1}),
        ] {
            assert!(checked(serde_json::json!({"allow": [allow.clone()]})).is_err(), "{allow}");
        }
    }

    #[test]
    fn an_internal_service_needs_its_address() {
        let rules = serde_json::json!({"allow": [{"host": "10.0.0.1", "addresses": ["10.0.0.1"]}]});
        assert_eq!(checked(rules).unwrap().allow.len(), 1);
    }
}
