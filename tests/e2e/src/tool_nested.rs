//! A wasm ring inside another: commands run in the ring outside, tools in the one inside.

use serde_json::Value;

use crate::support::tool::{Does, component, manifest};
use crate::support::{World, busybox_layout};

const IMAGE: &str = "test:latest";

fn world() -> World {
    let world = World::new();
    let layout = busybox_layout(&world.path(""));
    world.ringwall(["image", "import", &layout.display().to_string(), "--name", IMAGE]).exits(0);
    let wasm = component(&manifest("yes"), &Does::Returns(r#"{"ok": true}"#));
    world.write("yes.wasm", wasm);
    let wasm = component(&manifest("loop"), &Does::Loops);
    world.write("loop.wasm", wasm);
    world
}

fn rings(document: &Value) -> String {
    let evidence = document["evidence"].as_array().expect("a list");
    let names = evidence.iter().map(|ring| ring["ring"].as_str().expect("a name"));
    names.collect::<Vec<_>>().join("/")
}

#[test]
fn a_living_sandbox_runs_commands_in_its_container_and_tools_inside_it() {
    let world = world();
    let flags = ["--wall", "container/wasm", "--image", IMAGE, "--workspace", ".", "--name", "box"];
    world.ringwall([&["create"], &flags[..]].concat()).exits(0);
    world.ringwall(["exec", "box", "--", "cat", "/etc/motd"]).exits(0).prints("made for tests\n");
    let call = ["tool", "call", "./yes.wasm", "--sandbox", "box", "--dir", "/work=."];
    world.ringwall(call).exits(0).prints("{\"ok\":true}\n");
    let looping = ["tool", "call", "./loop.wasm", "--sandbox", "box", "--timeout", "200ms"];
    world.ringwall(looping).exits(124);
    let told = world.ringwall([&call[..], &["-o", "json"]].concat()).exits(0).json();
    assert_eq!(rings(&told), "container/wasm");
    assert_eq!(told["sandbox_totals"]["calls"], 3);
    assert_eq!(told["sandbox_totals"]["failures"], 1);
    assert!(told["meter"]["fuel"].as_u64().is_some_and(|fuel| fuel > 0));

    let host = world.path("home").display().to_string();
    let dir = format!("/work={host}");
    let call = ["tool", "call", "./yes.wasm", "--sandbox", "box", "--dir", &dir];
    world.ringwall(call).is_refused().says(&["cannot be granted"]);
    world.ringwall(["rm", "--force", "box"]).exits(0);
    let call = ["tool", "call", "./yes.wasm", "--sandbox", "box"];
    world.ringwall(call).is_refused();
}

#[test]
fn one_call_behind_a_fresh_wall() {
    let world = world();
    for (wall, image) in [("process/wasm", None), ("container/wasm", Some(IMAGE))] {
        let mut line = vec!["tool", "call", "./yes.wasm", "--wall", wall, "--workspace", "."];
        line.extend(image.iter().flat_map(|image| ["--image", image]));
        world.ringwall(&line).exits(0).prints("{\"ok\":true}\n").says_nothing();
        line.extend(["-o", "json"]);
        let told = world.ringwall(&line).exits(0).json();
        assert_eq!(rings(&told), wall);
        assert!(world.sandboxes().is_empty(), "{wall}");
    }
    let call = ["tool", "call", "./yes.wasm", "--wall", "wasm"];
    world.ringwall(call).exits(0).prints("{\"ok\":true}\n");
}

#[test]
fn a_run_behind_such_a_wall_shows_the_wasm_ring_too() {
    let world = world();
    let flags = ["run", "--wall", "container/wasm", "--image", IMAGE, "-o", "json"];
    let told = world.ringwall([&flags[..], &["--", "id", "-u"]].concat()).exits(0).json();
    assert_eq!(rings(&told), "container/wasm");
    assert_eq!(told["tools"]["calls"], 0);
}

#[test]
fn walls_that_make_no_sense_are_refused_with_the_reason() {
    let world = world();
    let run = |wall| world.ringwall(["run", "--wall", wall, "--", "true"]);
    run("wasm/process").is_refused().says(&["no ring can be inside", "put it last"]);
    run("wasm").is_refused().says(&["runs tools, not programs"]);
    let call = ["tool", "call", "./yes.wasm", "--wall", "process"];
    world.ringwall(call).is_refused().says(&["use process/wasm"]);
    let call = ["tool", "call", "./yes.wasm", "--image", IMAGE];
    world.ringwall(call).is_refused().says(&["--wall"]);
}
