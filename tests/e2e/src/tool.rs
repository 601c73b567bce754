//! Tools: installed, named, called and made, as people do it.

use std::fs;

use serde_json::{Value, json};

use crate::support::tool::{Does, command, component, manifest};
use crate::support::{Finished, World};

/// Puts a tool into the project and gives its path.
fn write_tool(world: &World, file: &str, wasm: &[u8]) -> String {
    world.write(file, wasm);
    format!("./{file}")
}

fn good(world: &World, name: &str) -> String {
    let wasm = component(&manifest(name), &Does::Returns(r#"{"ok": true}"#));
    write_tool(world, &format!("{name}.wasm"), &wasm)
}

#[track_caller]
fn call_that(does: &Does<'_>, flags: &[&str]) -> Finished {
    let world = World::new();
    let file = write_tool(&world, "t.wasm", &component(&manifest("t"), does));
    world.ringwall([&["tool", "call", &file], flags].concat())
}

fn digest_in(entry: &Value) -> String {
    entry["digest"].as_str().expect("a digest").to_owned()
}

#[test]
fn an_installed_tool_is_listed_called_and_removed() {
    let world = World::new();
    let file = good(&world, "yes");
    let added = world.ringwall(["tool", "add", &file, "-o", "json"]);
    let digest = digest_in(&added.exits(0).json());
    let listed = world.ringwall(["tool", "ls", "-o", "json"]);
    assert_eq!(digest_in(&listed.exits(0).json()[0]), digest);
    for name in ["yes", "yes@0.1.0", &format!("yes@{digest}")] {
        world.ringwall(["tool", "call", name]).exits(0).says_nothing().prints("{\"ok\":true}\n");
    }
    world.ringwall(["tool", "rm", "yes"]).exits(0);
    world.ringwall(["tool", "call", "yes"]).is_refused().says(&["there is no tool yes"]);
}

#[test]
fn a_file_can_be_called_without_being_installed() {
    let done = call_that(&Does::Returns(r#"{"ok": 1}"#), &["--input", r#"{"n": 3}"#]);
    done.exits(0).prints("{\"ok\":1}\n");
}

#[test]
fn bad_input_is_refused_with_its_place_before_anything_runs() {
    let call = |input| call_that(&Does::Loops, &["--input", input]);
    call(r#"{"n": 0}"#).is_refused().says(&["at /n", "ringwall tool inspect"]);
    call(r#"{"n": "x"}"#).is_refused().says(&["at /n: expected integer, found string"]);
    call(r#"{"m": 1}"#).is_refused().says(&["at /m"]);
    call("{").is_refused().says(&["no JSON"]);
    call("@missing.json").is_refused().says(&["missing.json", "@FILE"]);
}

#[test]
fn input_comes_from_a_file_or_from_standard_input() {
    let world = World::new();
    let file = good(&world, "yes");
    world.write("in.json", r#"{"n": 1}"#);
    world.ringwall(["tool", "call", &file, "--input", "@in.json"]).exits(0);
    let arguments = ["tool", "call", &file, "--input", "-"];
    world.ringwall_with_input(&arguments, br#"{"n": 2}"#).exits(0);
    world.ringwall_with_input(&arguments, br#"{"n": -2}"#).is_refused().says(&["at /n"]);
}

#[test]
fn output_that_breaks_its_own_schema_is_not_passed_on() {
    let call = |output| call_that(&Does::Returns(output), &[]);
    call(r#"{"no": 1}"#).exits(1).prints("").says(&["bad-output", "\"ok\" is missing"]);
    call("nonsense").exits(1).prints("").says(&["bad-output", "no JSON"]);
}

#[test]
fn every_way_to_end_has_its_exit_code() {
    let failed = call_that(&Does::Fails("not-found", "no such thing"), &[]);
    failed.exits(1).prints("").says(&["not-found: no such thing"]);
    call_that(&Does::Loops, &["--timeout", "200ms"]).exits(124).says(&["timeout", "--timeout"]);
    call_that(&Does::Loops, &["--fuel", "100000"]).exits(137).says(&["fuel"]);
    call_that(&Does::Traps, &[]).exits(137).says(&["trapped"]);
    call_that(&Does::Loops, &["--timeout", "9h"]).is_refused().says(&["more than"]);
}

#[test]
fn one_document_carries_output_meter_and_evidence() {
    let done = call_that(&Does::Returns(r#"{"ok": true}"#), &["-o", "json"]);
    let document = done.exits(0).json();
    assert_eq!(document["output"], json!({ "ok": true }));
    assert_eq!(document["exit_code"], 0);
    assert!(document["meter"]["fuel"].as_u64().expect("a number") > 0);
    let rings = document["evidence"].as_array().expect("a list");
    assert!(!rings.is_empty(), "{document}");
    let failed = call_that(&Does::Fails("conflict", "no"), &["-o", "json"]);
    assert_eq!(failed.exits(1).json()["error"], json!({ "code": "conflict", "message": "no" }));
}

#[test]
fn only_what_a_tool_asks_for_can_be_granted() {
    let call = |flags: &[&str]| call_that(&Does::Returns(r#"{"ok": true}"#), flags);
    call(&["--dir", "/work=.", "-e", "WORD=x"]).exits(0);
    call(&["--dir", "/etc=/etc"]).is_refused().says(&["does not ask for the directory /etc"]);
    call(&["-e", "PATH=/bin"]).is_refused().says(&["does not ask for the variable PATH"]);
    call(&["--dir", "/work=./missing"]).is_refused().says(&["missing"]);
}

#[test]
fn a_directory_that_a_tool_needs_is_asked_for_with_the_flag_to_give() {
    let world = World::new();
    let mut needs = manifest("needs");
    needs["wants"]["dirs"][0]["optional"] = json!(false);
    let wasm = component(&needs, &Does::Returns(r#"{"ok": true}"#));
    let file = write_tool(&world, "needs.wasm", &wasm);
    let done = world.ringwall(["tool", "call", &file]);
    done.is_refused().says(&["needs the directory /work", "--dir /work=DIR"]);
    world.ringwall(["tool", "call", &file, "--dir", "/work=."]).exits(0);
}

#[test]
fn a_plain_program_is_described_by_its_help() {
    let world = World::new();
    let file = write_tool(&world, "Say_It.wasm", &command(None, "Says it.", 3));
    world.ringwall(["tool", "add", &file]).exits(0).says(&["no manifest", "--help"]);
    let shown = world.ringwall(["tool", "inspect", "say-it", "-o", "json"]);
    assert_eq!(shown.exits(0).json()["manifest"]["summary"], "Says it.");
    let called = world.ringwall(["tool", "call", "say-it", "--input", r#"{"args": ["-x"]}"#]);
    let output = json!({ "stdout": "Says it.", "stderr": "", "exit_code": 3 });
    assert_eq!(called.exits(0).json(), output);
}

#[test]
fn a_program_with_a_manifest_gives_json_or_fails_by_its_exit_code() {
    let world = World::new();
    let mut described = manifest("say");
    described["kind"] = json!("command");
    described["command"] = json!({ "args": ["--n={n}"], "stdout": "json" });
    let wasm = |code| command(Some(&described), r#"{"ok":7}"#, code);
    let file = write_tool(&world, "say.wasm", &wasm(0));
    world.ringwall(["tool", "call", &file]).exits(0).prints("{\"ok\":7}\n");
    let file = write_tool(&world, "fail.wasm", &wasm(2));
    world.ringwall(["tool", "call", &file]).exits(1).says(&["exit code 2"]);
}

#[test]
fn a_tool_is_installed_only_if_it_is_the_one_expected_and_stays_while_pinned() {
    let world = World::new();
    let file = good(&world, "yes");
    let zeros = format!("sha256:{}", "0".repeat(64));
    let refused = world.ringwall(["tool", "add", &file, "--digest", &zeros]);
    refused.is_refused().says(&["nothing was installed"]);
    world.ringwall(["tool", "add", &file, "--pin"]).exits(0);
    let other = component(&manifest("yes"), &Does::Returns(r#"{"ok": false}"#));
    let other = write_tool(&world, "other.wasm", &other);
    world.ringwall(["tool", "add", &other]).is_refused().says(&["pinned", "tool rm yes"]);
    world.ringwall(["tool", "call", "yes"]).exits(0).prints("{\"ok\":true}\n");
}

#[test]
fn what_is_no_tool_is_refused_with_the_reason() {
    let world = World::new();
    let add = |file: &str, content: &[u8]| {
        let file = write_tool(&world, file, content);
        world.ringwall(["tool", "add", &file])
    };
    add("text.wasm", b"no wasm at all").is_refused().says(&["cannot be compiled"]);
    add("empty.wasm", b"").is_refused();
    let mut wrong = manifest("x");
    wrong["colour"] = json!("red");
    let wasm = component(&wrong, &Does::Traps);
    add("wrong.wasm", &wasm).is_refused().says(&["unknown field `colour`"]);
    world.ringwall(["tool", "add", "./missing.wasm"]).is_refused().says(&["missing.wasm"]);
    world.ringwall(["tool", "rm", "nothing"]).is_refused().says(&["there is no tool nothing"]);
    let listed = world.ringwall(["tool", "ls", "-o", "json"]);
    let left = listed.exits(0).json();
    let left = left.as_array().expect("a list");
    assert!(left.iter().all(|entry| entry["source"]["kind"] == "built-in"), "{left:?}");
}

#[test]
fn tools_beside_the_programs_are_built_in() {
    let world = World::new();
    fs::create_dir(world.path("built-in")).expect("a directory");
    let wasm = component(&manifest("mine"), &Does::Returns(r#"{"ok": true}"#));
    fs::write(world.path("built-in/mine.wasm"), wasm).expect("a file");
    let ringwall = |arguments: &[&str]| {
        let mut command = world.command(arguments);
        command.env("RINGWALL_TOOLS", world.path("built-in"));
        Finished::new(format!("{arguments:?}"), command.output().expect("it starts"))
    };
    ringwall(&["tool", "call", "mine"]).exits(0).prints("{\"ok\":true}\n");
    let listed = ringwall(&["tool", "ls", "-o", "json"]).exits(0).json();
    assert_eq!(listed[0]["source"]["kind"], "built-in");
    ringwall(&["tool", "rm", "mine"]).is_refused().says(&["built in"]);
}

#[test]
fn a_new_tool_is_made_in_an_empty_directory_only() {
    let world = World::new();
    for language in ["rust", "python", "javascript"] {
        let made = world.ringwall(["tool", "new", "hello", language, "--lang", language]);
        made.exits(0);
        let text = world.read(&format!("{language}/tool.json"));
        let manifest: Value = serde_json::from_str(&text).expect("a manifest");
        assert_eq!(manifest["name"], "hello");
        let again = world.ringwall(["tool", "new", "hello", language, "--lang", language]);
        again.is_refused().says(&["not empty"]);
    }
    world.ringwall(["tool", "new", "Hello"]).is_refused().says(&["no name of a tool"]);
}

#[test]
fn a_policy_can_ask_for_strict_calls() {
    let world = World::new();
    let mut wanted = manifest("eval-it");
    wanted["input"]["properties"]["strict"] = json!({ "type": "boolean" });
    let file = write_tool(&world, "t.wasm", &component(&wanted, &Does::Returns(r#"{"ok": 1}"#)));
    world.ringwall(["tool", "add", &file]).exits(0);
    let rule =
        "[[tool]]\nnames = [\"eval-*\"]\nkind = \"compute\"\napproved = true\nread-only = true\n";
    let place = world.path("nobody-home/.config/ringwall");
    fs::create_dir_all(&place).unwrap();
    let shipped = include_str!("../../../crates/authority/policy/src/default.toml");
    fs::write(place.join("ringwall.toml"), format!("{shipped}\n{rule}strict = true\n")).unwrap();
    let call = |input| world.ringwall(["tool", "call", "eval-it", "--input", input]);
    for input in [r#"{"n": 3}"#, r#"{"n": 3, "strict": false}"#] {
        call(input).is_refused().says(&["strict mode only", "[[tool]]"]);
    }
    call(r#"{"n": 3, "strict": true}"#).exits(0).prints("{\"ok\":1}\n");
}
