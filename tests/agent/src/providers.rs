//! The same task with every provider, through the real gateway and behind real walls.

use serde_json::json;

use crate::support::{Model, Place, Reply, call, calls, entries, of_kind, say};

const PROVIDERS: [&str; 3] = ["anthropic", "openai", "openai-responses"];

fn task() -> Vec<Reply> {
    vec![
        call("plan", json!({"steps": ["read", "change", "check"]})),
        calls(&[("list_files", json!({})), ("read_file", json!({"path": "greeting.txt"}))]),
        call("edit_file", json!({"path": "greeting.txt", "old": "world", "new": "walls"})),
        call("write_file", json!({"path": "new/note.txt", "content": "written\n"})),
        call("exec", json!({"command": "cat greeting.txt new/note.txt && echo checked"})),
        say("The greeting is changed."),
    ]
}

#[test]
fn a_file_is_changed_through_walls_with_every_provider() {
    for provider in PROVIDERS {
        let place = Place::new();
        place.write("greeting.txt", "hello world\n");
        let model = Model::scripted(task());
        let done = place.run(&model, &["--provider", provider, "--apply"]).exits(0);
        let seen = entries(&done);
        assert_eq!(place.read("greeting.txt"), "hello walls\n", "{provider}\n{done:?}");
        assert_eq!(place.read("new/note.txt"), "written\n");
        assert_eq!(of_kind(&seen, "call-ended").len(), 6, "{done:?}");
        let asked = model.asked();
        let last = asked.last().expect("it was asked");
        assert!(last.results[5].contains("hello walls\nwritten\nchecked"), "{:?}", last.results);
        // Results say where they ran and what is not to be trusted.
        assert!(last.results[5].contains(r#""wall":"process/"#), "{}", last.results[5]);
        assert!(last.results[5].contains("[untrusted "), "{}", last.results[5]);
        // The key is added on the way, and is nowhere else.
        assert!(asked.iter().all(|asked| asked.key.ends_with("sk-canary-of-the-model-8c1f")));
        assert!(!done.stdout.contains("sk-canary"), "the key is in the output");
        for journal in place.journals() {
            let text = std::fs::read_to_string(&journal).unwrap();
            let token = place.tokens().iter().any(|token| text.contains(token));
            assert!(!text.contains("sk-canary") && !token, "{journal:?}");
        }
        let turns = of_kind(&seen, "turn");
        assert!(
            turns.iter().all(|turn| turn["tokens"] == json!({"input": 100, "output": 20})),
            "{turns:?}"
        );
    }
}

#[test]
fn nothing_is_written_to_the_workspace_before_somebody_applies_it() {
    let place = Place::new();
    place.write("greeting.txt", "hello world\n");
    let model = Model::scripted(task());
    let done = place.run(&model, &[]).exits(0);
    assert_eq!(place.read("greeting.txt"), "hello world\n");
    let ending = entries(&done).pop().expect("an ending");
    let sandbox = ending["sandbox"].as_str().expect("a sandbox").to_owned();
    place.ringwall(["diff", &sandbox]).exits(0).holds("+hello walls");
    place.ringwall(["apply", &sandbox]).exits(0);
    assert_eq!(place.read("greeting.txt"), "hello walls\n");
}

#[test]
fn answers_that_break_off_or_are_refused_for_a_while_are_asked_for_again() {
    for provider in PROVIDERS {
        let place = Place::new();
        let model = Model::new(|asked| match asked.number {
            0 => Reply::Status(503, r#"{"error":{"message":"busy"}}"#),
            1 => Reply::Cut,
            _ => say("done at last"),
        });
        let done = place.run(&model, &["--provider", provider]).exits(0);
        assert_eq!(model.asked().len(), 3, "{provider}\n{done:?}");
        assert_eq!(of_kind(&entries(&done), "turn").len(), 1, "half an answer counts for nothing");
    }
}

#[test]
fn a_model_that_cannot_be_asked_is_a_stop_that_can_be_gone_on_from() {
    let place = Place::new();
    let model = Model::new(|asked| match asked.number {
        0 => Reply::Status(401, r#"{"error":{"message":"bad key"}}"#),
        _ => say("done"),
    });
    let stopped = place.run(&model, &[]).exits(3).holds("bad key");
    let ending = entries(&stopped).pop().expect("an ending");
    assert_eq!(ending["ending"], "model");
    let id = ending["agent"].as_str().expect("an id");
    place.ringwall(["agent", "resume", id]).exits(0);
}

#[test]
fn a_model_without_a_price_is_refused_unless_somebody_takes_the_risk() {
    let place = Place::new();
    let project = place.project().display().to_string();
    let words = ["agent", "run", "x", "--model", "mystery", "--workspace", &project];
    place.ringwall(words).exits(125).holds("no price is known").holds("--allow-unpriced");
}

#[test]
fn people_get_plain_lines_and_the_answer_on_standard_output() {
    let place = Place::new();
    place.write("greeting.txt", "hello world\n");
    let model = Model::scripted(task());
    let words = place.run_words(&model, &[]);
    let plain: Vec<_> = words.into_iter().filter(|word| word != "-o" && word != "jsonl").collect();
    let done = place.ringwall(plain).exits(0).prints("The greeting is changed.\n");
    for shown in ["[2] list_files", "behind process/wasm", "greeting.txt", "ringwall diff"] {
        assert!(done.stderr.contains(shown), "{shown}\n{done:?}");
    }
}
