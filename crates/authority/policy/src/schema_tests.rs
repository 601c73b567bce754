//! The JSON Schema for editors is made from the types that read the file, and must not drift.

use std::borrow::Cow;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};

use crate::commands::FirstWords;
use crate::file::PolicyFile;
use crate::pattern::{NamePattern, PathPattern};
use crate::stack::DEFAULT_POLICY;
use crate::values::{Cpus, Grant, Name, PublicKey, Size, TaintSource, Time, WallName, Walls};

const PATH: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../../resources/ringwall.schema.json");

/// Types that are text in the file.
macro_rules! texts {
    ($($type:ident: $example:literal),+ $(,)?) => {
        $(impl JsonSchema for $type {
            fn schema_name() -> Cow<'static, str> {
                stringify!($type).into()
            }

            fn json_schema(_: &mut SchemaGenerator) -> Schema {
                json_schema!({ "type": "string", "examples": [$example] })
            }
        })+
    };
}

texts!(
    NamePattern: "web-*", PathPattern: "./docs/**",
    Cpus: "0.5", FirstWords: "cargo build", Grant: "write:./docs/**", Name: "plan",
    PublicKey: "ed25519/0000000000000000000000000000000000000000000000000000000000000000",
    Size: "512M", TaintSource: "network", Time: "10m", WallName: "vm/container",
);

impl JsonSchema for Walls {
    fn schema_name() -> Cow<'static, str> {
        "Walls".into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        let wall = generator.subschema_for::<WallName>();
        json_schema!({ "anyOf": [wall, { "type": "array", "items": wall }] })
    }
}

/// A ready-made part of an allowlist.
#[derive(JsonSchema)]
#[serde(rename_all = "kebab-case")]
#[expect(dead_code, reason = "it only describes")]
pub(crate) enum Preset {
    /// Nothing; stands alone.
    None,
    /// Reading from the usual package registries.
    Packages,
    /// Fetching from the usual git hosts, never pushing.
    GitRead,
    /// Every public name at ports 80 and 443; stands alone.
    Open,
}

#[derive(JsonSchema)]
#[serde(rename_all = "lowercase")]
#[expect(dead_code, reason = "it only describes")]
pub(crate) enum Scheme {
    Https,
    Http,
}

/// One destination that may be reached, as `ringwall_spec::Allow` reads it.
#[derive(Default, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct AllowRule {
    /// What events call the rule; without one, its destination.
    name: Option<String>,
    /// api.example.com, *.example.com (one label more) or **.example.com (any number of labels more).
    #[schemars(required, example = "*.example.com")]
    host: String,
    /// https or http; without it, http at port 80 and https at all others.
    scheme: Option<Scheme>,
    /// Without it, the scheme's own.
    port: Option<u16>,
    /// Without it, all methods.
    methods: Vec<String>,
    /// Beginnings of paths; without it, all paths.
    paths: Vec<String>,
    /// Private ranges that this host may resolve to, such as 10.1.2.0/24.
    addresses: Vec<String>,
    /// The secret that the gateway adds, by name.
    secret: Option<String>,
    /// The gateway does not open TLS: no methods, no paths, no git, no secret.
    passthrough: bool,
    /// Only git over HTTP, with these rights.
    git: Option<GitRights>,
}

/// What git may do with the repositories of a rule.
#[derive(Default, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct GitRights {
    fetch: bool,
    /// Branches that may be pushed to; a final * stands for any ending.
    push: Vec<String>,
    /// Tags that may be created, in the same way.
    tags: Vec<String>,
    /// Branches may also be rewritten.
    rewrite: bool,
}

/// What no rule allows.
#[derive(Default, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct DenyRule {
    #[schemars(required)]
    host: String,
    /// Without it, every port.
    port: Option<u16>,
    methods: Vec<String>,
    paths: Vec<String>,
}

/// So that a new field cannot be forgotten here.
impl From<ringwall_spec::Allow> for AllowRule {
    fn from(allow: ringwall_spec::Allow) -> AllowRule {
        let ringwall_spec::Allow {
            name,
            host,
            scheme: _,
            port,
            methods,
            paths,
            addresses: _,
            secret,
            passthrough,
            git: _,
        } = allow;
        let host = host.to_string();
        let rest = AllowRule::default();
        AllowRule { name, host, port, methods, paths, secret, passthrough, ..rest }
    }
}

fn generated() -> serde_json::Value {
    let mut schema = schemars::schema_for!(PolicyFile).to_value();
    schema["title"] = "ringwall.toml".into();
    schema
}

#[test]
fn the_schema_for_editors_is_the_one_of_the_types() {
    let text = serde_json::to_string_pretty(&generated()).unwrap() + "\n";
    if std::env::var_os("RINGWALL_BLESS").is_some_and(|value| value == "1") {
        std::fs::write(PATH, &text).unwrap();
    }
    let present = std::fs::read_to_string(PATH).unwrap_or_default();
    assert!(
        present == text,
        "resources/ringwall.schema.json: RINGWALL_BLESS=1 cargo test writes it"
    );
}

#[test]
fn the_schema_takes_the_shipped_policy_and_refuses_an_unknown_key() {
    let validator = jsonschema::validator_for(&generated()).unwrap();
    let mut policy: serde_json::Value =
        serde_json::to_value(toml::from_str::<toml::Table>(DEFAULT_POLICY).unwrap()).unwrap();
    assert!(validator.is_valid(&policy), "{:?}", validator.iter_errors(&policy).next());
    policy["trust-levels"]["low"]["netwrok"] = "open".into();
    assert!(!validator.is_valid(&policy));
}
