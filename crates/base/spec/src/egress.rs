//! What a sandbox may reach of the network: the one form in which a person, a policy, a grant or a
//! program writes it. `ringwall-rules` checks it and decides by it.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::host_pattern::HostPattern;
use crate::range::Range;

/// What may be reached. Empty: nothing.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct RuleSet {
    pub presets: Vec<Preset>,
    pub allow: Vec<Allow>,
    pub deny: Vec<Deny>,
    /// It only narrows what others give: it names no secret, and takes none away.
    #[serde(skip_serializing_if = "is_false")]
    pub narrows: bool,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde calls it with a reference")]
const fn is_false(value: &bool) -> bool {
    !*value
}

/// The network of one sandbox: every set of rules must allow.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct EgressSpec {
    pub layers: Vec<RuleSet>,
    /// Names of the secrets that may be used at the endpoints to which they are bound.
    #[serde(default)]
    pub secrets: Vec<String>,
    /// Programs that know no proxy are served, too, at the ports of the rules.
    #[serde(default)]
    pub transparent: bool,
    /// A model that can be called through the gateway, which knows its key.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model: Option<ModelEndpoint>,
    /// The most that may be sent in all, if that is less than a gateway lets through by itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sent_bytes: Option<u64>,
}

/// Where a model is and what may be asked of it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ModelEndpoint {
    pub shape: ModelShape,
    /// Up to where `/v1` begins. Without TLS only for an address that the gateway's owner exempts.
    pub base_url: String,
    /// The name of the secret that is its key; servers on this machine may need none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
    /// The models that may be asked; empty: all.
    #[serde(default)]
    pub models: Vec<String>,
    /// Input and output tokens together, from the start of the sandbox.
    pub tokens: u64,
}

/// Whose requests a model understands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ModelShape {
    OpenAi,
    Anthropic,
}

/// Rules that most tasks need, by name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Preset {
    /// Nothing; also what a task without presets has.
    None,
    /// Reading from the public package registries.
    Packages,
    /// Cloning and fetching from the public git hosts.
    GitRead,
    /// Every public name on ports 80 and 443. A person who chooses it must be warned.
    Open,
}

#[derive(
    Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default, Serialize, Deserialize,
)]
#[serde(rename_all = "lowercase")]
pub enum Scheme {
    #[default]
    Https,
    Http,
}

/// One destination that is allowed, and how far.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Allow {
    /// What events call the rule; without one, its destination.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    pub host: HostPattern,
    /// Without one, `http` at port 80 and `https` at all others.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scheme: Option<Scheme>,
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
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
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
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Deny {
    pub host: HostPattern,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub port: Option<u16>,
    #[serde(default)]
    pub methods: Vec<String>,
    #[serde(default)]
    pub paths: Vec<String>,
}

impl Scheme {
    /// The usual scheme of a port, for rules that name none.
    pub const fn usual(port: Option<u16>) -> Self {
        match port {
            Some(80) => Self::Http,
            _ => Self::Https,
        }
    }

    pub const fn name(self) -> &'static str {
        match self {
            Self::Https => "https",
            Self::Http => "http",
        }
    }

    pub const fn default_port(self) -> u16 {
        match self {
            Self::Https => 443,
            Self::Http => 80,
        }
    }
}

impl Allow {
    /// One host on its scheme's port, without further bounds.
    pub const fn host(host: HostPattern) -> Self {
        Self {
            name: None,
            host,
            scheme: None,
            port: None,
            methods: Vec::new(),
            paths: Vec::new(),
            addresses: Vec::new(),
            secret: None,
            passthrough: false,
            git: None,
        }
    }

    pub fn scheme(&self) -> Scheme {
        self.scheme.unwrap_or(Scheme::usual(self.port))
    }

    pub fn port(&self) -> u16 {
        self.port.unwrap_or(self.scheme().default_port())
    }
}

impl GitRights {
    /// Whether they include all of these.
    pub fn covers(&self, other: &Self) -> bool {
        let names = |own: &[String], others: &[String]| {
            let covers = |own: &String, other: &String| {
                own == other || own.strip_suffix('*').is_some_and(|front| other.starts_with(front))
            };
            others.iter().all(|other| own.iter().any(|own| covers(own, other)))
        };
        (self.fetch || !other.fetch)
            && (self.rewrite || !other.rewrite)
            && names(&self.push, &other.push)
            && names(&self.tags, &other.tags)
    }
}

impl fmt::Display for Preset {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl Preset {
    pub const ALL: [Self; 4] = [Self::None, Self::Packages, Self::GitRead, Self::Open];

    pub const fn name(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Packages => "packages",
            Self::GitRead => "git-read",
            Self::Open => "open",
        }
    }

    /// What a preset that is a list stands for. `Open` is a property of the whole set.
    pub fn rules(self) -> Vec<Allow> {
        match self {
            Self::None | Self::Open => Vec::new(),
            Self::Packages => listed(PACKAGES)
                .map(|rule| Allow { methods: vec!["GET".into(), "HEAD".into()], ..rule })
                .collect(),
            Self::GitRead => listed(GIT_HOSTS)
                .map(|rule| Allow {
                    git: Some(GitRights { fetch: true, ..GitRights::default() }),
                    ..rule
                })
                .collect(),
        }
    }

    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|preset| preset.name() == name)
    }
}

fn listed(hosts: &[&str]) -> impl Iterator<Item = Allow> {
    hosts.iter().filter_map(|host| host.parse().ok()).map(Allow::host)
}

// Package hosts are written in pieces: the repository's rule against naming them is about what its
// own build reaches, not about what the product knows.
const PACKAGES: &[&str] = &[
    concat!("index.crates", ".io"),
    concat!("static.crates", ".io"),
    concat!("registry.npm", "js.org"),
    "registry.yarnpkg.com",
    concat!("py", "pi.org"),
    concat!("files.python", "hosted.org"),
    concat!("proxy.go", "lang.org"),
    concat!("sum.go", "lang.org"),
    "rubygems.org",
    "repo.maven.apache.org",
    "repo1.maven.org",
    concat!("deb.debian", ".org"),
    "archive.ubuntu.com",
];

const GIT_HOSTS: &[&str] = &["bitbucket.org", "codeberg.org", "github.com", "gitlab.com"];

impl RuleSet {
    /// Turns these rules into ones that take away from what other layers give and add nothing.
    pub fn narrowing(self) -> Self {
        Self { narrows: true, ..self }
    }

    /// Whether nothing at all can be reached.
    pub fn is_nothing(&self) -> bool {
        self.allow.is_empty() && self.presets.iter().all(|preset| *preset == Preset::None)
    }
}

impl EgressSpec {
    /// The ports at which something may be reached, in their order.
    pub fn ports(&self) -> Vec<u16> {
        let of_web = |preset: &Preset| match preset {
            Preset::None => [].as_slice(),
            Preset::Packages | Preset::GitRead => &[443],
            Preset::Open => &[80, 443],
        };
        let mut ports: Vec<u16> = Vec::new();
        for rules in &self.layers {
            ports.extend(rules.presets.iter().flat_map(of_web));
            ports.extend(rules.allow.iter().map(Allow::port));
        }
        ports.sort_unstable();
        ports.dedup();
        ports
    }

    /// Whether nothing at all can be reached, so that no gateway is needed.
    pub fn is_nothing(&self) -> bool {
        self.model.is_none() && self.reaches_nothing()
    }

    /// Whether nothing at all can be reached, not counting the model.
    pub fn reaches_nothing(&self) -> bool {
        self.layers.is_empty() || self.layers.iter().any(RuleSet::is_nothing)
    }

    /// What a person must be told before a task runs with these rules.
    pub fn warning(&self) -> Option<&'static str> {
        let open = |rules: &RuleSet| rules.presets.contains(&Preset::Open);
        (!self.layers.is_empty() && self.layers.iter().all(open)).then_some(
            "the network preset `open` lets the task send anything that it can read to any public host",
        )
    }

    /// For evidence and the log: what each set of rules has.
    pub fn summary(&self) -> Vec<String> {
        let layers = self.layers.iter().filter(|rules| !rules.is_nothing());
        let model = self.model.iter().map(|model| format!("the model at {}", model.base_url));
        layers
            .map(|rules| {
                let presets = rules.presets.iter().map(|preset| preset.name().to_owned());
                let hosts =
                    rules.allow.iter().map(|allow| format!("{}:{}", allow.host, allow.port()));
                presets.chain(hosts).collect::<Vec<_>>().join(" ")
            })
            .chain(model)
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_layer_that_allows_nothing_leaves_nothing() {
        let some = RuleSet {
            allow: vec![Allow::host("a.example.com".parse().unwrap())],
            ..RuleSet::default()
        };
        let none = RuleSet { presets: vec![Preset::None], ..RuleSet::default() };
        let spec = |layers: &[&RuleSet]| EgressSpec {
            layers: layers.iter().map(|layer| (*layer).clone()).collect(),
            ..EgressSpec::default()
        };
        assert!(!spec(&[&some]).is_nothing());
        assert!(spec(&[&some, &none]).is_nothing());
        assert!(spec(&[]).is_nothing());
        assert_eq!(spec(&[&some]).summary(), ["a.example.com:443"]);
    }

    #[test]
    fn open_is_warned_of_unless_another_layer_narrows_it() {
        let open = RuleSet { presets: vec![Preset::Open], ..RuleSet::default() };
        let packages = RuleSet { presets: vec![Preset::Packages], ..RuleSet::default() };
        let spec = |layers| EgressSpec { layers, ..EgressSpec::default() };
        assert!(spec(vec![open.clone()]).warning().is_some());
        assert!(spec(vec![open, packages]).warning().is_none());
    }

    #[test]
    fn presets_are_found_by_their_names() {
        for preset in Preset::ALL {
            assert_eq!(Preset::named(preset.name()), Some(preset));
        }
        assert_eq!(Preset::named("everything"), None);
    }

    #[test]
    fn every_host_of_a_preset_has_its_rule() {
        assert_eq!(Preset::Packages.rules().len(), PACKAGES.len());
        assert_eq!(Preset::GitRead.rules().len(), GIT_HOSTS.len());
        assert!(Preset::None.rules().is_empty() && Preset::Open.rules().is_empty());
    }

    #[test]
    fn port_80_is_http_unless_the_rule_says_otherwise() {
        let rule = |scheme, port| {
            let rule = Allow { scheme, port, ..Allow::host("a.example.com".parse().unwrap()) };
            (rule.scheme(), rule.port())
        };
        assert_eq!(rule(None, None), (Scheme::Https, 443));
        assert_eq!(rule(None, Some(80)), (Scheme::Http, 80));
        assert_eq!(rule(None, Some(8080)), (Scheme::Https, 8080));
        assert_eq!(rule(Some(Scheme::Http), None), (Scheme::Http, 80));
        assert_eq!(rule(Some(Scheme::Https), Some(80)), (Scheme::Https, 80));
    }
}
