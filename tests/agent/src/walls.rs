//! Agents whose brain and sandbox are behind stronger walls than a process ring.

use std::path::PathBuf;

use serde_json::{Value, json};

use crate::support::{Model, Place, busybox_layout, call, entries, is_root, of_kind, say};
use crate::taint::POLICY;

/// A place with a small image, called `small`.
fn place() -> Place {
    let place = Place::new();
    let stronger = r#" = ["process", "container", "vm/container"]"#;
    let routes = POLICY.replace(r#"files = ["process"]"#, &format!("files{stronger}"));
    place.policy(&routes.replace(r#"build = ["process"]"#, &format!("build{stronger}")));
    let layout = busybox_layout(&place.path("outside")).display().to_string();
    place.ringwall(["image", "import", &layout, "--name", "small"]).exits(0);
    place
}

fn model() -> Model {
    Model::scripted(vec![
        call("exec", json!({"command": "echo written > made; cat /etc/motd"})),
        call("read_file", json!({"path": "made"})),
        say("done"),
    ])
}

/// That brain and sandbox were behind this wall, and that the work was done.
fn worked(place: &Place, seen: &[Value], wall: &str) {
    let walls = |kind: &str| -> Vec<String> {
        of_kind(seen, kind).iter().map(|one| one["wall"].as_str().unwrap().to_owned()).collect()
    };
    assert_eq!(walls("brain"), [wall], "{seen:?}");
    assert!(walls("sandbox").iter().all(|one| one.starts_with(wall)), "{seen:?}");
    let said: Vec<&str> =
        of_kind(seen, "call-ended").iter().filter_map(|one| one["content"].as_str()).collect();
    assert!(said[0].contains("made for tests"), "the image is what commands see: {said:?}");
    assert!(said[1].contains("written"), "{said:?}");
    assert_eq!(place.read("made"), "written\n");
}

#[test]
fn a_whole_agent_is_behind_containers() {
    let place = place();
    let flags = ["--risk", "medium", "--image", "small", "--apply"];
    let done = place.run(&model(), &flags).exits(0);
    worked(&place, &entries(&done), "container");
}

#[test]
fn a_whole_agent_is_behind_microvms_with_containers() {
    let Some(kernels) = kernels() else {
        eprintln!("not tested here: no guest kernel (`make setup` makes one), or no QEMU");
        return;
    };
    let place = place();
    let flags = ["--risk", "very-high", "--image", "small", "--apply", "--max-time", "9m"];
    let mut command = place.command(place.run_words(&model(), &flags));
    let output = command.env("RINGWALL_KERNELS", kernels).output().expect("it starts");
    let done = crate::support::Ended::new("agent run".to_owned(), &output).exits(0);
    worked(&place, &entries(&done), "vm/container");
}

/// Where this machine's kernels for guests are.
fn kernels() -> Option<PathBuf> {
    let usual = match (is_root(), std::env::var_os("HOME")) {
        (true, _) => Some(PathBuf::from("/var/lib/ringwall/kernels")),
        (false, home) => home.map(|home| PathBuf::from(home).join(".local/share/ringwall/kernels")),
    };
    let monitor = PathBuf::from("/usr/bin/qemu-system-x86_64").exists();
    let named = std::env::var_os("RINGWALL_KERNELS").map(PathBuf::from);
    named.or(usual).filter(|path| path.is_dir() && monitor)
}

#[test]
fn commands_behind_a_ring_for_tools_are_judged_by_the_rings_round_them() {
    let place = Place::new();
    place.policy(&POLICY.replace("build = [\"process\"]", "build = [\"container\"]"));
    for wall in ["process/wasm", "process"] {
        let model = Model::scripted(vec![
            call("exec", json!({"command": "echo ran > canary"})),
            say("done"),
        ]);
        let done = place.run(&model, &["--wall", wall, "--apply"]);
        let seen = entries(&done);
        let ended = of_kind(&seen, "call-ended");
        let why = ended[0]["refused"].as_str().unwrap_or_else(|| panic!("{wall}: {done:?}"));
        assert!(why.contains("build work") && why.contains("container"), "{wall}: {why}");
        assert_eq!(place.read("canary"), "");
    }
}
