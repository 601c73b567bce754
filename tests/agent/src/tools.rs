//! WASM tools of an agent: in the ring inside its sandbox, with the files that commands see.

use serde_json::{Value, json};

use crate::support::{Asked, Model, Place, Reply, call, entries, of_kind, say};
use crate::taint::POLICY;

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

#[test]
fn a_tool_that_could_read_a_file_from_outside_taints() {
    let place = Place::new();
    if !with_tools(&place, &["grep", "echo"]) {
        say_untested();
        return;
    }
    place.policy(POLICY);
    place.write("inbox/letter", "needle\n");
    let model = Model::scripted(vec![
        call("echo", json!({"text": "it sees no files"})),
        call("grep", json!({"pattern": "needle"})),
        say("done"),
    ]);
    let done = place.run(&model, &["--tool", "grep", "--tool", "echo"]).exits(0);
    let seen = entries(&done);
    let tainted = of_kind(&seen, "tainted");
    let source = "output of the tool grep that could read path:./inbox/**";
    assert!(of_kind(&seen, "call-ended").iter().all(|call| call["failed"] == false), "{done:?}");
    assert_eq!((&tainted[0]["step"], &tainted[0]["source"]), (&json!(2), &json!(source)));
}

/// What Ringwall adds to a step: from the model's answer in the journal to the result in the journal. It is
/// printed, and held against its bound where the machine has nothing else to do (`make test-agents`).
#[test]
fn the_cost_of_a_step_is_measured() {
    let place = Place::new();
    if !with_tools(&place, &["hash"]) {
        say_untested();
        return;
    }
    let steps = 100;
    let script = move |asked: &Asked| -> Reply {
        match asked.turns {
            turn if turn < steps => call("hash", json!({"text": format!("step {turn}")})),
            _ => say("done"),
        }
    };
    let done = place.run(&Model::new(script), &["--tool", "hash"]).exits(0);
    let id = entries(&done)[0]["agent"].as_str().expect("an id").to_owned();
    let shown = place.ringwall(["agent", "show", &id, "-o", "json"]).exits(0);
    let shown: Value = serde_json::from_str(&shown.stdout).expect("JSON");
    let journal = shown["journal"].as_array().expect("lines");
    let at = |kind: &str| -> Vec<u64> {
        let of_kind = journal.iter().filter(|line| line["kind"] == kind);
        of_kind.filter_map(|line| line["at_unix_ms"].as_u64()).collect()
    };
    let (turns, ends) = (at("turn"), at("call-ended"));
    assert_eq!(ends.len(), steps);
    let mut own: Vec<u64> = turns.iter().zip(&ends).map(|(turn, end)| end - turn).collect();
    own.sort_unstable();
    let (middle, most) = (own[own.len() / 2], own[own.len() - 1]);
    eprintln!("a step with its journal: {middle} ms p50, {most} ms most, of {steps}");
    if std::env::var_os("RINGWALL_MANY_AGENTS").is_some() {
        assert!(middle < 5, "{middle} ms p50");
    }
}

fn say_untested() {
    eprintln!("not tested here: the built-in tools or the WASM warden were not built");
}
