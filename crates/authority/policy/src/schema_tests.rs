//! The JSON Schema for editors is made from the types that read the file, and must not drift.

use std::borrow::Cow;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};

use crate::commands::FirstWords;
use crate::file::PolicyFile;
use crate::pattern::{HostPattern, NamePattern, PathPattern, UrlPrefix};
use crate::stack::DEFAULT_POLICY;
use crate::values::{
    Cpus, Grant, Method, Name, PublicKey, Size, TaintSource, Time, WallName, Walls,
};

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
    HostPattern: "*.example.com", NamePattern: "web-*", PathPattern: "./docs/**",
    UrlPrefix: "/v1/", Cpus: "0.5", FirstWords: "cargo build", Grant: "write:./docs/**", Method: "GET", Name: "plan",
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
    policy["tiers"]["low"]["netwrok"] = "open".into();
    assert!(!validator.is_valid(&policy));
}
