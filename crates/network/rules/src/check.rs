//! Rules, checked: what cannot be kept is refused before it is used.

use std::collections::BTreeSet;

use ringwall_spec::{Allow, Deny, GitRights, Host, HostPattern, Preset, Range, RuleSet, Scheme};
use thiserror::Error;

use crate::{names, target};

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
    #[error(
        "host pattern {0}: anybody can register a name there; name the domain of one owner, as in *.example.com"
    )]
    PublicSuffix(HostPattern),
    #[error("host pattern {0}: a label that begins with xn-- is not valid punycode; write it anew")]
    Punycode(HostPattern),
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
pub struct Refused {
    pub name: String,
    pub host: HostPattern,
    pub port: Option<u16>,
    pub matching: Matching,
}

/// Methods and paths; empty means any.
#[derive(Debug, Clone, Default)]
pub struct Matching {
    pub methods: BTreeSet<String>,
    pub paths: Vec<String>,
}

impl Matching {
    pub fn check(rule: &str, methods: &[String], paths: &[String]) -> Result<Self, BadRules> {
        let mut checked = BTreeSet::new();
        for method in methods {
            let upper = method.to_ascii_uppercase();
            if !is_method(&upper) || upper == "CONNECT" {
                return Err(BadRules::Method { rule: rule.into(), method: method.clone() });
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

    pub fn covers(&self, method: &str, path: &str) -> bool {
        let method = self.methods.is_empty() || self.methods.contains(method);
        method && (self.paths.is_empty() || self.paths.iter().any(|p| target::lies_below(path, p)))
    }

    /// For rules that deny, which cover a path however a server may read its letters.
    pub(crate) fn may_cover(&self, method: &str, path: &str) -> bool {
        let below = |prefix: &String| target::may_lie_below(path, prefix);
        let method = self.methods.is_empty() || self.methods.contains(method);
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
    let presets = set.presets.iter().flat_map(|preset| preset.rules());
    for allow in set.allow.iter().cloned().chain(presets) {
        rules.allow.push(check_allow(allow)?);
    }
    for deny in &set.deny {
        rules.deny.push(check_deny(deny)?);
    }
    if rules.allow.len() + rules.deny.len() > MOST_RULES {
        return Err(BadRules::TooMany);
    }
    Ok(rules)
}

/// Whether a rule may let somebody reach these hosts: not where anybody can register a name.
pub fn check_host(host: &HostPattern) -> Result<(), BadRules> {
    names::check_pattern(host)?;
    match host.domain() {
        Some(domain) if psl::domain_str(domain).is_none() => {
            Err(BadRules::PublicSuffix(host.clone()))
        }
        _ => Ok(()),
    }
}

/// Checks one rule that denies. What anybody can register may be denied as a whole.
pub fn check_deny(deny: &Deny) -> Result<Refused, BadRules> {
    let Deny { host, port, methods, paths } = deny;
    names::check_pattern(host)?;
    let name = format!("deny {host}");
    if *port == Some(0) {
        return Err(BadRules::Port(name));
    }
    let matching = Matching::check(&name, methods, paths)?;
    Ok(Refused { matching, host: host.clone(), port: *port, name })
}

/// Checks one rule that allows.
pub fn check_allow(allow: Allow) -> Result<Rule, BadRules> {
    let (scheme, port) = (allow.scheme(), allow.port());
    // Whoever adds a field decides here what it means.
    let Allow {
        name,
        host,
        scheme: _,
        port: _,
        methods,
        paths,
        addresses,
        secret,
        passthrough,
        git,
    } = allow;
    check_host(&host)?;
    let name = name.unwrap_or_else(|| format!("{host}:{port}"));
    if port == 0 {
        return Err(BadRules::Port(name));
    }
    if let Some(Host::Address(address)) = host.exact()
        && crate::address::judge(*address, &addresses).is_err()
    {
        return Err(BadRules::Address(name));
    }
    let bounded = !methods.is_empty() || !paths.is_empty() || secret.is_some() || git.is_some();
    if passthrough && bounded {
        return Err(BadRules::Passthrough(name));
    }
    if passthrough && scheme != Scheme::Https {
        return Err(BadRules::PassthroughScheme(name));
    }
    if secret.is_some() && scheme != Scheme::Https {
        return Err(BadRules::SecretOverHttp(name));
    }
    check_branches(&name, git.as_ref())?;
    let matching = Matching::check(&name, &methods, &paths)?;
    Ok(Rule { name, host, scheme, port, matching, addresses, secret, passthrough, git })
}

fn check_branches(rule: &str, git: Option<&GitRights>) -> Result<(), BadRules> {
    for pattern in git.iter().flat_map(|git| git.push.iter().chain(&git.tags)) {
        let body = pattern.strip_suffix('*').unwrap_or(pattern);
        let odd = |byte: u8| byte <= b' ' || byte >= 0x7f || b"*?[\\^~:".contains(&byte);
        if pattern.is_empty() || body.contains("..") || body.bytes().any(odd) {
            return Err(BadRules::Branch { rule: rule.to_owned(), pattern: pattern.clone() });
        }
    }
    Ok(())
}

/// A token of HTTP without small letters: some servers take `get` for `GET`, and others do not.
pub fn is_method(text: &str) -> bool {
    let token =
        |b: u8| b.is_ascii_uppercase() || b.is_ascii_digit() || b"!#$%&'*+-.^_`|~".contains(&b);
    !text.is_empty() && text.bytes().all(token)
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

    #[test]
    fn nobody_may_allow_what_anybody_can_register() {
        for host in ["*.com", "**.com", "*.co.uk", "*.github.io", "**.s3.amazonaws.com", "*.corp"] {
            let refused = checked(serde_json::json!({"allow": [{"host": host}]})).unwrap_err();
            assert!(refused.contains("*.example.com"), "{refused}");
            assert!(checked(serde_json::json!({"deny": [{"host": host}]})).is_ok(), "{host}");
        }
    }

    #[test]
    fn broken_punycode_is_in_no_rule() {
        for host in ["xn--a-ecp.ru", "*.xn--a-ecp.ru", "xn--\u{80}", "xn--.example.com"] {
            for list in ["allow", "deny"] {
                assert!(checked(serde_json::json!({list: [{"host": host}]})).is_err(), "{host}");
            }
        }
        assert!(checked(serde_json::json!({"allow": [{"host": "xn--bcher-kva.example"}]})).is_ok());
    }
}
