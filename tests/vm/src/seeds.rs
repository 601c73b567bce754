//! The rows of the tables that Ringwall was made from which need a machine: the policy calls for
//! one, and the evidence shows one.

use std::fs;

use serde_json::{Value, json};

use crate::site::Site;
use crate::support::tool::{Does, component, manifest};
use ringwall_testkit::ground::IMAGE;

pub(crate) const SHIPPED: &str = include_str!("../../../crates/authority/policy/src/default.toml");

/// A site whose user has the shipped policy with this risk level, and a tool that it approves.
fn site(risk: &str) -> Site {
    let site = Site::new();
    let world = &site.ground.world;
    let config = world.path("nobody-home/.config/ringwall");
    fs::create_dir_all(&config).expect("a directory");
    let policy = SHIPPED.replace("risk = \"medium\"", &format!("risk = {risk:?}"));
    let tool = "\n[[tool]]\nnames = [\"yes\"]\nkind = \"compute\"\napproved = true\n";
    fs::write(config.join("ringwall.toml"), policy + tool).expect("a policy");
    world.write("yes.wasm", component(&manifest("yes"), &Does::Returns(r#"{"ok": true}"#)));
    world.ringwall(["tool", "add", "./yes.wasm"]).exits(0);
    site
}

/// What a run of this kind shows of its rings, and the boot of the guest.
#[track_caller]
fn run(site: &Site, flags: &[&str]) -> (String, Value) {
    let line = [&["run", "-o", "json", "--image", IMAGE], flags, &["--", "true"]].concat();
    shown(&site.ringwall(&line).exits(0).json())
}

/// The rings, each with a kernel that is not the host's and no network device but loopback.
#[track_caller]
fn shown(document: &Value) -> (String, Value) {
    let host = fs::read_to_string("/proc/sys/kernel/random/boot_id").expect("a file");
    let evidence = document["evidence"].as_array().expect("evidence");
    for ring in evidence {
        assert_ne!(ring["facts"]["boot_id"], host.trim(), "{}", ring["ring"]);
        assert_eq!(ring["facts"]["network_devices"], json!(["lo"]), "{}", ring["ring"]);
        assert!(!ring["checks"].as_array().expect("checks").is_empty());
    }
    let rings: Vec<&str> = evidence.iter().filter_map(|ring| ring["ring"].as_str()).collect();
    (rings.join("/"), evidence[0]["facts"]["boot_id"].clone())
}

#[test]
fn route_of_untrusted_scripts_is_a_machine_of_their_own() {
    let site = site("medium");
    // Of no declared kind, and of one that nobody knows.
    let (wall, first) = run(&site, &[]);
    assert_eq!(wall, "vm");
    let (wall, second) = run(&site, &["--kind", "nonsense"]);
    assert_eq!(wall, "vm");
    assert_ne!(first, second, "two scripts in one machine");
    let living = site.ringwall(&["create", "--kind", "untrusted", "--image", IMAGE]);
    let id = living.exits(0).word();
    let again = site.ringwall(&["exec", "--kind", "untrusted", &id, "--", "true"]);
    again.is_refused().says(&["ringwall run --kind untrusted"]);
    site.ringwall(&["exec", &id, "--", "true"]).exits(0);
    site.ringwall(&["rm", "--force", &id]).exits(0);
}

#[test]
fn very_high_risk_is_a_container_in_a_machine() {
    let site = site("very-high");
    for kind in ["files", "build", "untrusted"] {
        assert_eq!(run(&site, &["--kind", kind]).0, "vm/container", "{kind}");
    }
}

#[test]
fn very_high_risk_is_wasm_in_a_container_in_a_machine() {
    let site = site("very-high");
    let line = ["tool", "call", "yes", "-o", "json", "--timeout", "20s"];
    let weaker = [&line[..], &["--wall", "container/wasm", "--image", IMAGE]].concat();
    site.ringwall(&weaker).is_refused().says(&["risk-levels.very-high"]);
    let whole = [&line[..], &["--wall", "vm/container/wasm", "--image", IMAGE]].concat();
    let told = site.ringwall(&whole).exits(0).json();
    assert_eq!(shown(&told).0, "vm/container/wasm");
    assert_eq!(told["output"], json!({ "ok": true }));
}

#[test]
fn tiers_of_trust_reach_no_network_from_a_machine() {
    let site = site("medium");
    for trust in ["high", "medium", "low"] {
        assert_eq!(run(&site, &["--trust", trust]).0, "vm", "{trust}");
    }
}
