//! The folders of `crates` are layers: a crate uses crates of its own folder and of those below it.

use std::collections::BTreeMap;

use crate::repository::{Package, assert_none, packages, read};

/// Lowest first. A new folder is a change of architecture: write it here and in ARCHITECTURE.md.
const LAYERS: [&str; 10] = [
    "crates/base",
    "crates/content",
    "crates/network",
    "crates/rings",
    "crates/authority",
    "crates/core",
    "crates/doors",
    "crates/proofs",
    "bins",
    // Programs that test and measure.
    "tests",
];

/// Programs that stand where a job can attack them, or that hold secrets or privileges, and all that each
/// may link of ours. More code in them is more to trust.
const SMALL_PROGRAMS: [(&str, &[&str]); 6] = [
    ("launcher", &["linux"]),
    ("probe", &["linux", "probes"]),
    ("agent-program", &["agent-model"]),
    ("gateway-program", &["egress", "gateway", "linux"]),
    ("warden", &["spec", "wire", "linux", "facts", "tree"]),
    ("wasm-warden", &["spec", "wire", "linux", "facts", "wasm"]),
];

/// What every crate may test with, as it uses none of ours.
const KIT: &str = "testkit";

#[test]
fn crates_use_only_their_own_layer_and_those_below() {
    let packages = packages();
    let layers: BTreeMap<&str, usize> = packages
        .iter()
        .filter_map(|package| Some((short(&package.name), layer(package)?)))
        .collect();
    let mut findings = Vec::new();
    for package in &packages {
        let name = short(&package.name);
        let Some(own) = layers.get(name) else {
            let place = &package.directory;
            findings.push(format!("{place} lies in no layer of tests/tidy/src/layering.rs"));
            continue;
        };
        let used = ours(package).filter(|used| *used != KIT);
        let above = used.filter(|used| layers.get(used).is_none_or(|layer| layer > own));
        findings
            .extend(above.map(|used| format!("{name} must not use {used}, which lies above it")));
    }
    assert_none("a dependency that points up:", &findings);
}

#[test]
fn the_kit_of_the_tests_uses_none_of_our_crates_and_no_product_uses_it() {
    let packages = packages();
    let kit = packages.iter().find(|package| short(&package.name) == KIT).expect("the kit");
    let mut findings: Vec<String> =
        ours(kit).map(|used| format!("{KIT} must not use {used}")).collect();
    for package in &packages {
        let manifest = read(&format!("{}/Cargo.toml", package.directory));
        let product = manifest.split("[dev-dependencies]").next().unwrap_or_default();
        if product.contains("ringwall-testkit.workspace") {
            findings.push(format!("{} must use {KIT} in tests only", package.name));
        }
    }
    assert_none("what tests are made of stays apart:", &findings);
}

#[test]
fn every_folder_of_crates_is_a_layer_with_crates_in_it() {
    let packages = packages();
    let empty =
        LAYERS.iter().filter(|layer| !packages.iter().any(|package| lies_in(package, layer)));
    let findings: Vec<String> =
        empty.map(|layer| format!("{layer}: no crate lies there")).collect();
    assert_none("the list of layers names a folder that is gone:", &findings);
}

#[test]
fn small_programs_link_no_more_than_they_need() {
    let packages = packages();
    let mut findings = Vec::new();
    for (name, may_use) in SMALL_PROGRAMS {
        let Some(package) = packages.iter().find(|package| short(&package.name) == name) else {
            findings.push(format!("{name} is gone: remove its row"));
            continue;
        };
        let more = ours(package).filter(|used| !may_use.contains(used));
        findings.extend(more.map(|used| format!("{name} must not use {used}")));
    }
    assert_none("a small program grew:", &findings);
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

fn layer(package: &Package) -> Option<usize> {
    // The benches are tests that measure.
    if package.directory == "benches" {
        return Some(LAYERS.len());
    }
    LAYERS.iter().position(|layer| lies_in(package, layer))
}

fn lies_in(package: &Package, layer: &str) -> bool {
    package.directory.strip_prefix(layer).is_some_and(|rest| rest.starts_with('/'))
}

fn ours(package: &Package) -> impl Iterator<Item = &str> {
    package.dependencies.iter().filter_map(|name| name.strip_prefix("ringwall-"))
}

fn short(name: &str) -> &str {
    name.strip_prefix("ringwall-").unwrap_or(name)
}
