//! WASM tools of an agent: in the ring inside its sandbox, with the files that commands see.

use std::time::Instant;

use serde_json::json;

use crate::support::{Asked, Model, Place, Reply, call, entries, of_kind, say};

/// Copies built-in tools for the place; false where they were not built.
fn with_tools(place: &Place, names: &[&str]) -> bool {
    let from = place.programs.join("tools");
    for name in names {
        let file = format!("{name}.wasm");
        if std::fs::copy(from.join(&file), place.path("no-tools").join(&file)).is_err() {
            return false;
        }
    }
    place.programs.join("ringwall-wasm-warden").exists()
}

#[test]
fn a_tool_sees_what_commands_wrote_and_says_where_it_ran() {
    let place = Place::new();
    if !with_tools(&place, &["grep", "json"]) {
        say_untested();
        return;
    }
    place.write("src/old", "needle one\n");
    let model = Model::scripted(vec![
        call("exec", json!({"command": "echo needle two > src/new"})),
        call("grep", json!({"pattern": "needle"})),
        call("grep", json!({"nonsense": true})),
        say("done"),
    ]);
    let done = place.run(&model, &[]).exits(0);
    let seen = entries(&done);
    let ended = of_kind(&seen, "call-ended");
    let found = ended[1]["content"].as_str().unwrap();
    assert!(found.contains("src/old") && found.contains("src/new"), "{done:?}");
    assert_eq!(ended[1]["place"]["wall"], "process/wasm");
    assert!(ended[1]["place"]["evidence"].is_string() && ended[1]["place"]["sandbox"].is_string());
    assert_eq!(ended[2]["failed"], true, "what does not fit the schema is told: {}", ended[2]);
    let offered = &model.asked()[0].tools;
    assert!(offered.contains(&"grep".to_owned()) && offered.contains(&"json".to_owned()));
}

/// Prints what Ringwall adds to a step; it is looked at, not asserted.
#[test]
fn the_cost_of_a_step_is_measured() {
    let place = Place::new();
    if !with_tools(&place, &["hash"]) {
        say_untested();
        return;
    }
    let steps = 40;
    let script = move |asked: &Asked| -> Reply {
        match asked.turns {
            turn if turn < steps => call("hash", json!({"text": format!("step {turn}")})),
            _ => say("done"),
        }
    };
    let model = Model::new(script);
    let begun = Instant::now();
    let done = place.run(&model, &["--tool", "hash"]).exits(0);
    let all = begun.elapsed();
    let seen = entries(&done);
    let ended = of_kind(&seen, "call-ended");
    assert_eq!(ended.len(), steps);
    let mut own: Vec<u64> = ended.iter().filter_map(|call| call["ms"].as_u64()).collect();
    own.sort_unstable();
    let result = ended[0]["content"].as_str().unwrap_or_default();
    let middle = own[own.len() / 2];
    eprintln!(
        "a step: {middle} ms p50, {} ms most; {steps} steps in {all:?}; {result}",
        own[own.len() - 1]
    );
}

fn say_untested() {
    eprintln!("not tested here: the built-in tools or the WASM warden were not built");
}
