//! Any bytes as a tool's description, its schemas and an input for it: nothing may panic or hang, and
//! an input that is taken is one that the schema allows.

#![no_main]

use libfuzzer_sys::fuzz_target;
use ringwall_tool::{Manifest, Schema, manifest_from_help};
use serde_json::Value;

fuzz_target!(|input: &str| {
    // A NUL stands between the description and the input: neither holds one.
    let (described, value) = input.split_once('\0').unwrap_or((input, ""));
    if let Ok(manifest) = Manifest::parse(described.as_bytes()) {
        for schema in [&manifest.input, &manifest.output] {
            let Ok(schema) = Schema::compile(schema) else {
                continue;
            };
            if let Ok(value) = serde_json::from_str::<Value>(value) {
                let bytes = value.to_string().len();
                if let Ok(taken) = schema.check(value, bytes) {
                    assert!(schema.check(taken, bytes).is_ok(), "taken once and then refused");
                }
            }
        }
    }
    // What a program says of itself is as little to be trusted.
    if let Ok(manifest) = manifest_from_help("tool", value) {
        let again = serde_json::to_vec(&manifest).expect("it was made of JSON");
        assert!(Manifest::parse(&again).is_ok(), "what we write we cannot read");
    }
});
