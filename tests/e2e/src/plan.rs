//! `ringwall plan` and `run --dry-run` show the decision and every step, and start nothing.

use std::fs;
use std::os::unix::fs::chown;

use crate::support::{World, busybox_layout};

fn log(world: &World) -> String {
    fs::read_to_string(world.home().join("audit/log")).unwrap_or_default()
}

#[test]
fn a_plan_has_a_reason_for_each_step_and_leaves_nothing() {
    let world = World::new();
    let plan = world.ringwall(["plan", "--workspace", ".", "--memory", "64M", "--", "true"]);
    let text = plan.exits(0).out();
    assert!(text.starts_with("runs in process: your own order"), "{text}");
    for part in ["64 MiB memory", "network: none", "changes are kept apart", "\nring 1: process\n"]
    {
        assert!(text.contains(part), "{part}\n{text}");
    }
    let steps: Vec<&str> = text.lines().filter(|line| line.starts_with("    ")).collect();
    assert!(steps.len() > 40, "{text}");
    let without: Vec<&&str> = steps.iter().filter(|step| !step.contains("  # ")).collect();
    assert!(without.is_empty(), "{without:?}");
    let last = steps.last().unwrap();
    assert!(last.contains("start warden"), "{last}");
    assert!(world.sandboxes().is_empty());
    assert_eq!(log(&world), "", "nothing was decided about that anybody would look for");
}

/// Each sandbox has a random name, and those of root have a random range of users.
fn is_random(word: &str) -> bool {
    word.starts_with("ring-") || (word.len() > 6 && word.bytes().all(|byte| byte.is_ascii_digit()))
}

#[test]
fn run_with_dry_run_prints_the_same_and_does_not_run_the_command() {
    let world = World::new();
    // Root may not write straight to a directory of its own.
    if rustix::process::geteuid().is_root() {
        chown(world.project(), Some(12_345), Some(12_345)).unwrap();
    }
    let words = ["--workspace-rw", ".", "--", "touch", "made"];
    let planned = world.ringwall([&["plan"][..], &words].concat());
    let dry = world.ringwall([&["run", "--dry-run"][..], &words].concat());
    let same = |text: String| -> Vec<String> {
        text.split([' ', ':', ',']).filter(|word| !is_random(word)).map(str::to_owned).collect()
    };
    assert_eq!(same(dry.exits(0).out()), same(planned.exits(0).out()));
    assert!(!world.project().join("made").exists());
}

#[test]
fn the_rings_of_a_nested_wall_are_all_there_and_a_network_starts_no_gateway() {
    let world = World::new();
    let layout = busybox_layout(&world.path(""));
    world.ringwall(["image", "import", layout.to_str().unwrap(), "--name", "test:1"]).exits(0);
    let flags = ["--wall", "container/process", "--image", "test:1", "--net", "example.com"];
    let planned = world.ringwall([&["plan"][..], &flags, &["-o", "json"]].concat());
    let plan = planned.exits(0).json();
    assert_eq!(plan["wall"], "container/process");
    assert_eq!(plan["network"], serde_json::json!(["example.com:443"]));
    let rings = plan["rings"].as_array().unwrap();
    let steps = |ring: usize| rings[ring]["steps"].to_string();
    assert_eq!((&rings[0]["ring"], &rings[1]["ring"]), (&"container".into(), &"process".into()));
    assert!(steps(0).contains("the gateway"), "{}", steps(0));
    assert!(steps(1).contains("all other system calls are denied"), "{}", steps(1));
}

#[test]
fn a_policy_is_named_with_file_and_line_and_what_it_refuses_has_no_plan() {
    let world = World::new();
    let policy = include_str!("../../../crates/authority/policy/src/default.toml");
    let place = world.path("nobody-home/.config/ringwall");
    fs::create_dir_all(&place).unwrap();
    fs::write(place.join("ringwall.toml"), policy.replace("\"medium\"", "\"low\"")).unwrap();
    let planned = world.ringwall(["plan", "--kind", "files", "--", "true"]);
    let text = planned.exits(0).out();
    assert!(text.starts_with("files work runs in process\n"), "{text}");
    assert!(text.contains("ringwall.toml:"), "{text}");
    let refused = world.ringwall(["plan", "--kind", "untrusted", "--", "true"]);
    refused.is_refused().says(&["untrusted work"]);
}

#[test]
fn what_could_change_something_is_refused() {
    let world = World::new();
    for (flag, value) in [("--preset", "aider"), ("--grant", "token")] {
        let refused = world.ringwall(["plan", flag, value, "--", "true"]);
        refused.is_refused().says(&[&format!("leave {flag} out")]);
    }
    let missing = ["plan", "--wall", "container", "--image", "no.such/image:1", "--", "true"];
    world.ringwall(missing).is_refused().says(&["image pull"]);
}
