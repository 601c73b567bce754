//! The rules for dependencies in `deny.toml`, checked on what Cargo resolves: licences, banned crates and
//! sources. Cargo-deny reads the same file; it is needed for advisories only, whose database has to
//! be fetched.

use std::collections::{BTreeMap, BTreeSet};

use serde::Deserialize;
use serde_json::Value;

use crate::repository::{assert_none, cargo, read};

#[derive(Deserialize)]
struct Rules {
    graph: Graph,
    licenses: Licenses,
    bans: Bans,
    sources: Sources,
}

#[derive(Deserialize)]
struct Graph {
    targets: Vec<String>,
}

#[derive(Deserialize)]
struct Licenses {
    allow: Vec<String>,
}

#[derive(Deserialize)]
struct Bans {
    deny: Vec<Ban>,
}

#[derive(Deserialize)]
struct Ban {
    #[serde(rename = "crate")]
    name: String,
    #[serde(default)]
    wrappers: Vec<String>,
    reason: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "kebab-case")]
struct Sources {
    unknown_registry: String,
    unknown_git: String,
}

/// What Cargo resolves for one target, with every feature, as programs and tests use it.
struct Resolved {
    packages: Vec<Value>,
    /// Which packages use which, by name.
    users: BTreeMap<String, BTreeSet<String>>,
}

fn rules() -> Rules {
    toml::from_str(&read("deny.toml")).expect("deny.toml is as cargo-deny wants it")
}

fn resolved(target: &str) -> Resolved {
    let arguments =
        ["metadata", "--format-version", "1", "--all-features", "--filter-platform", target];
    let metadata: Value = serde_json::from_str(&cargo(&arguments)).expect("cargo prints JSON");
    let packages = metadata["packages"].as_array().expect("a list").clone();
    let name_of: BTreeMap<&str, &str> = packages
        .iter()
        .filter_map(|package| Some((package["id"].as_str()?, package["name"].as_str()?)))
        .collect();
    let mut users: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    let mut used = BTreeSet::new();
    for node in metadata["resolve"]["nodes"].as_array().expect("a list") {
        let user = node["id"].as_str().expect("an id");
        used.insert(user.to_owned());
        for dependency in node["dependencies"].as_array().expect("a list") {
            let name = name_of[dependency.as_str().expect("an id")];
            users.entry(name.to_owned()).or_default().insert(name_of[user].to_owned());
        }
    }
    let packages = packages
        .iter()
        .filter(|package| package["id"].as_str().is_some_and(|id| used.contains(id)))
        .cloned()
        .collect();
    Resolved { packages, users }
}

fn for_every_target(check: impl Fn(&Rules, &Resolved) -> Vec<String>) -> Vec<String> {
    let rules = rules();
    let all: BTreeSet<String> =
        rules.graph.targets.iter().flat_map(|target| check(&rules, &resolved(target))).collect();
    all.into_iter().collect()
}

fn text<'v>(package: &'v Value, key: &str) -> &'v str {
    package[key].as_str().unwrap_or("")
}

/// `MIT/Apache-2.0` is an old way to write `MIT OR Apache-2.0`.
fn is_allowed(expression: &str, allowed: &[String]) -> bool {
    let mode = spdx::ParseMode::LAX;
    let Ok(parsed) = spdx::Expression::parse_mode(expression, mode) else {
        return false;
    };
    parsed.evaluate(|requirement| allowed.contains(&requirement.to_string()))
}

#[test]
fn every_dependency_has_a_licence_that_is_allowed() {
    let findings = for_every_target(|rules, resolved| {
        let ours = |package: &Value| text(package, "name").starts_with("ringwall");
        let packages = resolved.packages.iter().filter(|package| !ours(package));
        packages
            .filter(|package| !is_allowed(text(package, "license"), &rules.licenses.allow))
            .map(|package| format!("{}: {:?}", text(package, "name"), text(package, "license")))
            .collect()
    });
    assert_none("licences that deny.toml does not allow:", &findings);
}

#[test]
fn no_banned_crate_is_used_except_by_its_wrappers() {
    let findings = for_every_target(|rules, resolved| {
        let banned = rules.bans.deny.iter().filter_map(|ban| {
            let users = resolved.users.get(&ban.name)?;
            let others: Vec<_> = users.iter().filter(|user| !ban.wrappers.contains(user)).collect();
            let finding = format!("{} is used by {others:?}: {}", ban.name, ban.reason);
            (!others.is_empty()).then_some(finding)
        });
        banned.collect()
    });
    assert_none("crates that deny.toml bans:", &findings);
}

#[test]
fn every_dependency_comes_from_the_registry() {
    let rules = rules();
    assert_eq!((&*rules.sources.unknown_registry, &*rules.sources.unknown_git), ("deny", "deny"));
    let findings = for_every_target(|_, resolved| {
        let sources = resolved.packages.iter().map(|package| text(package, "source"));
        let sources: BTreeSet<&str> = sources.filter(|source| !source.is_empty()).collect();
        // Cargo's own registry is one; a second one was added by hand.
        let registries = sources.iter().filter(|source| source.starts_with("registry+")).count();
        let expected = registries == sources.len() && registries == 1;
        if expected { Vec::new() } else { sources.into_iter().map(str::to_owned).collect() }
    });
    assert_none("dependencies come from one registry, and from nowhere else:", &findings);
}

#[test]
fn licences_are_judged_as_expressions() {
    let allowed = ["MIT".to_owned(), "Apache-2.0 WITH LLVM-exception".to_owned()];
    assert!(is_allowed("GPL-3.0-only OR MIT", &allowed));
    assert!(is_allowed("MIT/Apache-2.0", &allowed));
    assert!(is_allowed("(Apache-2.0 WITH LLVM-exception) AND MIT", &allowed));
    for other in ["GPL-3.0-only AND MIT", "Apache-2.0", "", "no licence at all"] {
        assert!(!is_allowed(other, &allowed), "{other}");
    }
}
