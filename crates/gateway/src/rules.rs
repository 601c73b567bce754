//! The rules of a task: as a person or the engine writes them, and checked.

use std::collections::BTreeSet;

use hyper::Method;
use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::address::Range;
use crate::host::Host;
use crate::pattern::HostPattern;
use crate::presets::{self, Preset};
use crate::target;

/// What a task may reach. Empty: nothing.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct RuleSet {
    pub presets: Vec<Preset>,
    pub allow: Vec<Allow>,
    pub deny: Vec<Deny>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Scheme {
    #[default]
    Https,
    Http,
}

impl Scheme {
    pub const fn default_port(self) -> u16 {
        match self {
            Self::Https => 443,
            Self::Http => 80,
        }
    }
}

/// One destination that is allowed, and how far.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Allow {
    /// What events call the rule; without one, its destination.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    pub host: HostPattern,
    #[serde(default)]
    pub scheme: Scheme,
    /// Without one, the scheme's own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub port: Option<u16>,
    /// Empty: all.
    #[serde(default)]
    pub methods: Vec<String>,
    /// Empty: all. A prefix ends at a slash.
    #[serde(default)]
    pub paths: Vec<String>,
    /// Private ranges that this host may resolve to. Only here can an internal service be opened.
    #[serde(default)]
    pub addresses: Vec<Range>,
    /// The secret that requests under this rule may carry.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub secret: Option<String>,
    /// TLS is not opened: no methods, paths, secrets or redaction.
    #[serde(default)]
    pub passthrough: bool,
    /// Only git over HTTP, with these rights.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub git: Option<GitRights>,
}

/// What git may do with the repositories of one rule.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct GitRights {
    pub fetch: bool,
    /// Branches that may be pushed to, whole names without `refs/heads/`; a final `*` stands for
    /// any ending.
    pub push: Vec<String>,
    /// Tags that may be created, in the same way.
    pub tags: Vec<String>,
    /// Branches may also be rewritten (`push --force`).
    pub rewrite: bool,
}

/// What no allow rule opens.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Deny {
    /// `*.example.com` covers every depth here.
    pub host: HostPattern,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub port: Option<u16>,
    #[serde(default)]
    pub methods: Vec<String>,
    #[serde(default)]
    pub paths: Vec<String>,
}

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
    #[error("more than {MOST_RULES} rules")]
    TooMany,
}

const MOST_RULES: usize = 4096;

/// Checked rules.
#[derive(Debug, Default)]
pub struct Rules {
    pub(crate) allow: Vec<Rule>,
    pub(crate) deny: Vec<Refused>,
    /// Any public name on the two web ports.
    pub(crate) open: bool,
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
}

impl RuleSet {
    pub fn check(&self) -> Result<Rules, BadRules> {
        let mut rules = Rules { open: self.presets.contains(&Preset::Open), ..Rules::default() };
        let presets = self.presets.iter().flat_map(|preset| presets::rules_of(*preset));
        for allow in self.allow.iter().cloned().chain(presets) {
            rules.allow.push(allow.check()?);
        }
        for deny in &self.deny {
            let name = format!("deny {}", deny.host);
            rules.deny.push(Refused {
                matching: Matching::check(&name, &deny.methods, &deny.paths)?,
                host: deny.host.clone(),
                port: deny.port,
                name,
            });
        }
        if rules.allow.len() + rules.deny.len() > MOST_RULES {
            return Err(BadRules::TooMany);
        }
        Ok(rules)
    }
}

impl Allow {
    /// One host on its scheme's port, without further bounds.
    pub fn host(host: HostPattern) -> Self {
        Self {
            name: None,
            host,
            scheme: Scheme::Https,
            port: None,
            methods: Vec::new(),
            paths: Vec::new(),
            addresses: Vec::new(),
            secret: None,
            passthrough: false,
            git: None,
        }
    }

    fn check(self) -> Result<Rule, BadRules> {
        let port = self.port.unwrap_or(self.scheme.default_port());
        let name = self.name.unwrap_or_else(|| format!("{}:{port}", self.host));
        if port == 0 {
            return Err(BadRules::Port(name));
        }
        if let HostPattern::Exact(Host::Address(address)) = self.host
            && crate::address::judge(address, &self.addresses).is_err()
        {
            return Err(BadRules::Address(name));
        }
        if self.passthrough {
            let plain = self.methods.is_empty() && self.paths.is_empty();
            if !plain || self.secret.is_some() || self.git.is_some() {
                return Err(BadRules::Passthrough(name));
            }
            if self.scheme != Scheme::Https {
                return Err(BadRules::PassthroughScheme(name));
            }
        }
        if self.secret.is_some() && self.scheme != Scheme::Https {
            return Err(BadRules::SecretOverHttp(name));
        }
        for pattern in self.git.iter().flat_map(|git| git.push.iter().chain(&git.tags)) {
            let body = pattern.strip_suffix('*').unwrap_or(pattern);
            let odd = |byte: u8| byte <= b' ' || byte >= 0x7f || b"*?[\\^~:".contains(&byte);
            if pattern.is_empty() || body.contains("..") || body.bytes().any(odd) {
                return Err(BadRules::Branch { rule: name, pattern: pattern.clone() });
            }
        }
        Ok(Rule {
            matching: Matching::check(&name, &self.methods, &self.paths)?,
            name,
            host: self.host,
            scheme: self.scheme,
            port,
            addresses: self.addresses,
            secret: self.secret,
            passthrough: self.passthrough,
            git: self.git,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(json: serde_json::Value) -> Result<Rules, String> {
        let set: RuleSet = serde_json::from_value(json).map_err(|error| error.to_string())?;
        set.check().map_err(|error| error.to_string())
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
            assert!(check(serde_json::json!({"allow": [allow.clone()]})).is_err(), "{allow}");
        }
    }

    #[test]
    fn an_internal_service_needs_its_address() {
        let rules = serde_json::json!({"allow": [{"host": "10.0.0.1", "addresses": ["10.0.0.1"]}]});
        assert_eq!(check(rules).unwrap().allow.len(), 1);
    }
}
