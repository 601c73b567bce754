//! Dependencies between our own crates point down, along the edges written here and no others.

use std::collections::{BTreeMap, BTreeSet};

use crate::repository::{Package, assert_none, packages};

/// Each crate with the crates of ours that it may use, lowest first. A new crate or edge is a
/// change of architecture: write it here and in ARCHITECTURE.md.
const MAY_USE: [(&str, &[&str]); 56] = [
    ("spec", &[]),
    ("linux", &[]),
    ("image", &[]),
    ("tree", &[]),
    ("workspace", &["spec"]),
    ("policy", &["spec"]),
    ("audit", &["spec"]),
    ("rules", &["spec"]),
    ("proof", &["rules"]),
    ("wire", &["spec"]),
    ("facts", &["spec", "linux"]),
    ("guest", &["linux"]),
    ("probes", &["linux"]),
    ("tool", &["spec", "image"]),
    ("wasm", &[]),
    ("egress", &["spec", "linux"]),
    ("gateway", &["spec", "linux", "egress"]),
    ("grant", &["spec"]),
    ("approval", &["spec", "audit", "grant"]),
    ("ring", &["spec", "policy", "linux", "wire"]),
    ("ring-process", &["spec", "policy", "linux", "ring"]),
    ("ring-container", &["spec", "policy", "linux", "ring"]),
    ("ring-wasm", &["spec", "policy", "linux", "wire", "ring"]),
    ("ring-vm", &["spec", "policy", "linux", "wire", "ring"]),
    (
        "engine",
        &[
            "audit",
            "egress",
            "rules",
            "spec",
            "policy",
            "wire",
            "linux",
            "image",
            "workspace",
            "ring",
            "ring-process",
            "ring-container",
            "ring-wasm",
            "ring-vm",
            "guest",
            "tree",
        ],
    ),
    ("verify", &["spec", "policy", "rules", "audit", "image", "workspace", "probes", "engine"]),
    ("desk", &["spec", "policy", "rules", "audit", "workspace", "grant", "approval", "engine"]),
    ("store", &[]),
    ("tool-host", &["spec", "tool", "engine"]),
    ("mcp", &[]),
    (
        "api",
        &[
            "spec",
            "policy",
            "rules",
            "wire",
            "audit",
            "workspace",
            "tool",
            "grant",
            "approval",
            "engine",
            "desk",
            "tool-host",
            "store",
            "mcp",
        ],
    ),
    ("agent-model", &[]),
    (
        "agent",
        &[
            "spec",
            "policy",
            "rules",
            "wire",
            "audit",
            "workspace",
            "tool",
            "grant",
            "approval",
            "engine",
            "desk",
            "tool-host",
            "agent-model",
        ],
    ),
    ("daemon", &["api", "engine", "linux", "mcp"]),
    ("launcher", &["linux"]),
    ("probe", &["linux", "probes"]),
    ("agent-program", &["agent-model"]),
    ("gateway-program", &["egress", "gateway", "linux"]),
    ("warden", &["spec", "wire", "linux", "facts", "tree"]),
    ("wasm-warden", &["spec", "wire", "linux", "facts", "wasm"]),
    ("wasm-compiler", &["spec", "wire", "linux", "facts", "wasm"]),
    ("bench", &["spec", "policy", "engine", "guest", "wire", "wasm"]),
    ("e2e", &["spec", "policy", "wire", "linux", "image", "workspace", "engine"]),
    ("escape", &[]),
    ("wasm-e2e", &["spec", "policy", "wire", "ring-wasm", "engine"]),
    ("vm-e2e", &["guest", "ring-vm", "spec", "wire"]),
    ("soak", &["spec", "policy", "engine"]),
    ("net-e2e", &[]),
    ("weakened", &["spec", "policy", "engine", "verify"]),
    ("api-e2e", &[]),
    ("faults", &[]),
    ("mcp-e2e", &[]),
    ("agent-e2e", &[]),
    ("lab", &[]),
    ("suite", &[]),
    ("tidy", &[]),
];

/// The command line may use whatever stands below the engine's surface.
const COMMAND_LINE: (&str, &[&str]) = (
    "ringwall",
    &[
        "spec",
        "policy",
        "rules",
        "proof",
        "wire",
        "audit",
        "egress",
        "engine",
        "desk",
        "tool-host",
        "agent-model",
        "agent",
        "verify",
        "linux",
        "image",
        "workspace",
        "tool",
        "guest",
        "ring-vm",
        "grant",
        "approval",
    ],
);

#[test]
fn crates_use_only_the_crates_below_them() {
    let allowed = allowed();
    let mut findings = Vec::new();
    for package in packages() {
        let name = short(&package.name);
        let Some(may_use) = allowed.get(name) else {
            findings.push(format!("{name} is not in the table of tests/tidy/src/layering.rs"));
            continue;
        };
        for used in ours(&package) {
            if !may_use.contains(&used) {
                findings.push(format!("{name} must not use {used}"));
            }
        }
    }
    assert_none("a dependency between our crates that the layering does not allow:", &findings);
}

#[test]
fn the_table_names_no_crate_that_is_gone() {
    let present: BTreeSet<String> =
        packages().iter().map(|package| short(&package.name).to_owned()).collect();
    let findings: Vec<String> = allowed()
        .keys()
        .filter(|name| !present.contains(**name))
        .map(|name| format!("{name}: remove its row"))
        .collect();
    assert_none("the layering table names crates that do not exist:", &findings);
}

#[test]
fn ring_crates_never_see_each_other() {
    let findings: Vec<String> = packages()
        .iter()
        .filter(|package| short(&package.name).starts_with("ring-"))
        .flat_map(|package| {
            let name = short(&package.name).to_owned();
            ours(package)
                .filter(|used| used.starts_with("ring-"))
                .map(|used| format!("{name} uses {used}"))
                .collect::<Vec<_>>()
        })
        .collect();
    assert_none("a ring knows one boundary and nothing of the other rings:", &findings);
}

fn allowed() -> BTreeMap<&'static str, &'static [&'static str]> {
    MAY_USE.into_iter().chain([COMMAND_LINE]).collect()
}

fn ours(package: &Package) -> impl Iterator<Item = &str> {
    package.dependencies.iter().filter_map(|name| name.strip_prefix("ringwall-"))
}

fn short(name: &str) -> &str {
    name.strip_prefix("ringwall-").unwrap_or(name)
}
