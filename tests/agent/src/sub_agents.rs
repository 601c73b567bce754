//! Sub-agents: no more rights than whoever started them, and what they use counts there.

use serde_json::{Value, json};

use crate::support::{Asked, Model, Place, Reply, call, entries, of_kind, say};

fn helper(asked: &Asked) -> Reply {
    match (asked.task.as_str(), asked.turns) {
        ("do the task", 0) => call(
            "sub_agent",
            json!({"task": "helper", "tools": ["write_file", "read_file"], "max_steps": 5}),
        ),
        ("do the task", 1) => call("read_file", json!({"path": "by-helper"})),
        ("helper", 0) => call("write_file", json!({"path": "by-helper", "content": "helped\n"})),
        ("helper", 1) => call("exec", json!({"command": "echo out of bounds > escaped"})),
        _ => say("done"),
    }
}

#[test]
fn a_sub_agent_works_in_the_same_workspace_with_fewer_tools() {
    let place = Place::new();
    let model = Model::new(helper);
    let done = place.run(&model, &["--apply"]).exits(0);
    assert_eq!(place.read("by-helper"), "helped\n", "{done:?}");
    assert!(!place.project().join("escaped").exists());
    let asked = model.asked();
    let of_helper = asked.iter().find(|asked| asked.task == "helper").expect("it was asked");
    assert_eq!(of_helper.tools, ["read_file", "write_file"], "only these are offered");
    let seen = entries(&done);
    let refused = seen.iter().find(|entry| entry["refused"].is_string()).expect("a refusal");
    assert_eq!(refused["depth"], 1);
    assert!(refused["refused"].as_str().unwrap().contains("exec"), "{refused}");
    // Three turns of the parent and three of the helper, 120 tokens each; four calls.
    let id = seen[0]["agent"].as_str().unwrap();
    let show = place.ringwall(["agent", "show", id, "-o", "json"]).exits(0);
    let show: Value = serde_json::from_str(&show.stdout).unwrap();
    assert_eq!(show["spent"]["input_tokens"], 600, "{}", show["spent"]);
    assert_eq!(show["spent"]["steps"], 4);
    let chain = place.ringwall(["agent", "show", id]).exits(0);
    assert!(chain.stdout.contains("write_file"), "the helper's steps are shown: {chain:?}");
}

#[test]
fn sub_agents_have_no_end_of_sub_agents() {
    let place = Place::new();
    let model = Model::new(|asked| match asked.turns {
        0 => call("sub_agent", json!({"task": format!("deeper than {}", asked.number)})),
        _ => say("done"),
    });
    let done = place.run(&model, &[]).exits(0);
    let seen = entries(&done);
    assert_eq!(of_kind(&seen, "begun").len(), 3, "an agent, its own and theirs\n{done:?}");
    let deepest = model.asked().into_iter().max_by_key(|asked| asked.number).unwrap();
    assert!(!deepest.task.is_empty());
    let offered = |asked: &&Asked| asked.tools.iter().any(|tool| tool == "sub_agent");
    assert_eq!(
        model
            .asked()
            .iter()
            .filter(offered)
            .map(|asked| &asked.task)
            .collect::<std::collections::BTreeSet<_>>()
            .len(),
        2
    );
}

#[test]
fn the_steps_of_sub_agents_count_for_whoever_started_them() {
    let place = Place::new();
    let model = Model::new(|asked| match (asked.task.as_str(), asked.turns) {
        ("do the task", _) => call("sub_agent", json!({"task": format!("work {}", asked.turns)})),
        (_, turn @ 0..=2) => call("exec", json!({"command": format!("echo {turn}")})),
        _ => say("done"),
    });
    let stopped = place.run(&model, &["--max-steps", "10"]).exits(3);
    let seen = entries(&stopped);
    assert_eq!(seen.last().unwrap()["ending"], "steps", "{stopped:?}");
    assert!(of_kind(&seen, "call-begun").len() <= 10, "{stopped:?}");
}

#[test]
fn a_read_only_sub_agent_changes_nothing() {
    let place = Place::new();
    place.write("file", "as it was\n");
    let model = Model::new(|asked| match (asked.task.as_str(), asked.turns) {
        ("do the task", 0) => call("sub_agent", json!({"task": "reader", "read_only": true})),
        ("reader", 0) => call("read_file", json!({"path": "file"})),
        ("reader", 1) => call("write_file", json!({"path": "file", "content": "changed"})),
        ("reader", 2) => call("exec", json!({"command": "echo changed > file"})),
        _ => say("done"),
    });
    let done = place.run(&model, &["--apply"]).exits(0);
    let seen = entries(&done);
    assert_eq!(seen.iter().filter(|entry| entry["refused"].is_string()).count(), 2, "{done:?}");
    assert_eq!(place.read("file"), "as it was\n");
}
