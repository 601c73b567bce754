//! `ringwall tool serve`: many calls at a time, and tools that change while they are in use.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::path::PathBuf;
use std::process::{Child, ChildStdin, ChildStdout, Stdio};

use serde_json::{Value, json};

use crate::support::World;
use crate::support::tool::{Does, component, manifest};

/// A service and both ends of it.
struct Service {
    process: Child,
    input: Option<ChildStdin>,
    output: BufReader<ChildStdout>,
}

impl Service {
    fn start(world: &World, flags: &[&str]) -> Service {
        let mut command = world.command([&["tool", "serve"], flags].concat());
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut process = command.spawn().expect("ringwall can be started");
        let input = process.stdin.take();
        let output = BufReader::new(process.stdout.take().expect("a pipe"));
        Service { process, input, output }
    }

    fn send(&mut self, line: &str) {
        let input = self.input.as_mut().expect("the input is open");
        writeln!(input, "{line}").expect("the service reads");
    }

    /// The next line, an answer or an event.
    fn next(&mut self) -> Value {
        let mut line = String::new();
        let read = self.output.read_line(&mut line).expect("the service writes");
        assert!(read > 0, "the service has ended");
        serde_json::from_str(&line).expect("a line of JSON")
    }

    fn call(&mut self, tool: &str) -> Value {
        self.send(&json!({ "id": "c", "tool": tool, "input": {} }).to_string());
        let answer = self.next();
        assert_eq!(answer["id"], "c", "{answer}");
        answer
    }

    fn ends(mut self) {
        drop(self.input.take());
        assert!(self.process.wait().expect("the service ends").success());
    }
}

/// Ends a service that a failing test left running.
impl Drop for Service {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

fn returning(name: &str, version: &str, output: &str) -> Vec<u8> {
    let mut manifest = manifest(name);
    manifest["version"] = json!(version);
    component(&manifest, &Does::Returns(output))
}

/// As builds do it: beside, then by rename.
fn replace(world: &World, file: &str, content: &[u8]) {
    let folder = world.path("watched");
    fs::write(folder.join("unfinished"), content).expect("a file");
    fs::rename(folder.join("unfinished"), folder.join(file)).expect("a rename");
}

fn watched(world: &World) -> PathBuf {
    let folder = world.path("watched");
    fs::create_dir(&folder).expect("a directory");
    folder
}

#[test]
fn requests_are_answered_by_their_id_many_at_a_time() {
    let world = World::new();
    world.write("yes.wasm", returning("yes", "0.1.0", r#"{"ok":1}"#));
    world.ringwall(["tool", "add", "./yes.wasm"]).exits(0);
    let mut service = Service::start(&world, &[]);
    let mut waiting: Vec<u64> = (0..200).collect();
    for id in &waiting {
        service.send(&json!({ "id": id, "tool": "yes" }).to_string());
    }
    for _ in 0..200 {
        let answer = service.next();
        assert_eq!(answer["output"], json!({ "ok": 1 }), "{answer}");
        assert!(answer["meter"]["fuel"].as_u64().is_some_and(|fuel| fuel > 0), "{answer}");
        let id = answer["id"].as_u64().expect("the number that was sent");
        waiting.retain(|waiting| *waiting != id);
    }
    assert!(waiting.is_empty(), "never answered: {waiting:?}");
    service.ends();
}

#[test]
fn what_is_wrong_is_answered_and_the_service_goes_on() {
    let world = World::new();
    world.write("yes.wasm", returning("yes", "0.1.0", r#"{"ok":1}"#));
    world.ringwall(["tool", "add", "./yes.wasm"]).exits(0);
    let mut service = Service::start(&world, &[]);
    let mut code_of = |line: &str| {
        service.send(line);
        service.next()["error"]["code"].clone()
    };
    assert_eq!(code_of("nonsense"), "bad-request");
    assert_eq!(code_of(r#"{"id": 1, "tool": "yes", "dirs": ["/"]}"#), "bad-request");
    assert_eq!(code_of(r#"{"id": 1, "tool": "nothing"}"#), "no-such-tool");
    assert_eq!(code_of(r#"{"id": 1, "tool": "../yes"}"#), "no-such-tool");
    assert_eq!(code_of(r#"{"id": 1, "tool": "yes", "input": {"n": 0}}"#), "bad-input");
    assert_eq!(service.call("yes")["output"], json!({ "ok": 1 }));
    service.ends();
}

#[test]
fn a_watched_tool_is_swapped_and_a_broken_one_leaves_the_old_in_service() {
    let world = World::new();
    let folder = watched(&world);
    fs::write(folder.join("t.wasm"), returning("t", "1.0.0", r#"{"ok":1}"#)).expect("a file");
    let mut service = Service::start(&world, &["--watch", folder.to_str().expect("text")]);
    assert_eq!(service.next()["event"], "swapped");
    assert_eq!(service.call("t")["output"], json!({ "ok": 1 }));

    replace(&world, "t.wasm", &returning("t", "2.0.0", r#"{"ok":2}"#));
    let event = service.next();
    assert_eq!((&event["event"], &event["version"]), (&json!("swapped"), &json!("2.0.0")));
    let served = service.call("t");
    assert_eq!((&served["output"]["ok"], &served["digest"]), (&json!(2), &event["digest"]));

    replace(&world, "t.wasm", b"broken");
    let refused = service.next();
    assert_eq!((&refused["event"], &refused["serving"]), (&json!("refused"), &event["digest"]));
    assert_eq!(service.call("t")["output"], json!({ "ok": 2 }));

    fs::remove_file(folder.join("t.wasm")).expect("it is there");
    assert_eq!(service.next()["event"], "removed");
    assert_eq!(service.call("t")["error"]["code"], "no-such-tool");
    service.ends();
}

#[test]
fn a_running_call_ends_on_the_version_it_began_with() {
    let world = World::new();
    let folder = watched(&world);
    let mut slow = manifest("t");
    slow["limits"] = json!({ "time_ms": 1500 });
    fs::write(folder.join("t.wasm"), component(&slow, &Does::Loops)).expect("a file");
    let mut service = Service::start(&world, &["--watch", folder.to_str().expect("text")]);
    let old = service.next()["digest"].clone();
    service.send(r#"{"id": "slow", "tool": "t"}"#);
    // Requests are taken in order: when a later one is answered, this one is running.
    assert_eq!(service.call("nothing")["error"]["code"], "no-such-tool");
    replace(&world, "t.wasm", &returning("t", "2.0.0", r#"{"ok":2}"#));
    let (mut answers, mut swapped) = (Vec::new(), false);
    while answers.len() < 2 {
        let line = service.next();
        if line["event"] == "swapped" {
            swapped = true;
            service.send(r#"{"id": "quick", "tool": "t"}"#);
        } else {
            answers.push(line);
        }
    }
    assert!(swapped);
    let answer = |id: &str| answers.iter().find(|answer| answer["id"] == id).expect("an answer");
    assert_eq!(answer("quick")["output"], json!({ "ok": 2 }));
    assert_eq!(answer("slow")["digest"], old);
    assert_eq!(answer("slow")["error"]["code"], "timeout");
    service.ends();
}

#[test]
fn a_pinned_name_is_not_given_to_a_watched_file() {
    let world = World::new();
    world.write("t.wasm", returning("t", "1.0.0", r#"{"ok":1}"#));
    world.ringwall(["tool", "add", "./t.wasm", "--pin"]).exits(0);
    let folder = watched(&world);
    fs::write(folder.join("t.wasm"), returning("t", "2.0.0", r#"{"ok":2}"#)).expect("a file");
    let mut service = Service::start(&world, &["--watch", folder.to_str().expect("text")]);
    assert_eq!(service.next()["event"], "refused");
    assert_eq!(service.call("t")["output"], json!({ "ok": 1 }));
    service.ends();
}
