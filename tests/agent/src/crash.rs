//! Killed at any moment, an agent goes on without doing anything twice.

use std::io::{BufRead, BufReader};
use std::process::Stdio;

use serde_json::{Value, json};

use crate::support::{Asked, Model, Place, Reply, call, calls, say};

/// Four steps, each of which leaves a mark that shows how often it was done.
fn marks(asked: &Asked) -> Reply {
    let mark = |number: u32| json!({"command": format!("echo mark-{number} >> marks")});
    match asked.turns {
        0 => call("exec", mark(1)),
        1 => calls(&[("exec", mark(2)), ("exec", mark(3))]),
        2 => call("write_file", json!({"path": "written", "content": "whole\n"})),
        3 => call("exec", mark(4)),
        _ => say("done"),
    }
}

/// Starts an agent, kills it with its `nth` line, and gives its id; none if it ended before.
fn killed_at(place: &Place, words: Vec<std::ffi::OsString>, nth: usize) -> (Option<String>, bool) {
    let mut child =
        place.command(words).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
    let lines = BufReader::new(child.stdout.take().expect("a pipe")).lines();
    let mut id = None;
    for (number, line) in lines.map_while(Result::ok).enumerate() {
        let entry: Value = serde_json::from_str(&line).expect("JSON");
        id = entry["agent"].as_str().map(str::to_owned).or(id);
        if number + 1 == nth {
            child.kill().expect("it runs");
            child.wait().expect("it ends");
            return (id, true);
        }
    }
    child.wait().expect("it ends");
    (id, false)
}

#[test]
fn killed_at_every_line_of_its_journal_it_does_nothing_twice() {
    let model = Model::new(marks);
    let mut nth = 1;
    loop {
        let place = Place::new();
        let (id, was_killed) = killed_at(&place, place.run_words(&model, &[]), nth);
        let id = id.expect("an agent");
        if was_killed {
            let words = ["agent", "resume", &id, "-o", "jsonl", "--apply"];
            let resumed = place.ringwall(words);
            // The last line says that it had ended: then there is nothing to go on with.
            if resumed.stderr.contains("has finished") {
                break;
            }
            let resumed = resumed.exits(0);
            let marks = place.read("marks");
            for number in 1..=4 {
                let times = marks.matches(&format!("mark-{number}\n")).count();
                assert!(
                    times <= 1,
                    "mark {number} is there {times} times, killed at {nth}\n{resumed:?}"
                );
                let unknown = resumed.stdout.contains("it is not known whether");
                assert!(
                    times == 1 || unknown,
                    "mark {number} is lost, killed at {nth}\n{resumed:?}"
                );
            }
            assert_eq!(place.read("written"), "whole\n", "killed at {nth}\n{resumed:?}");
        } else {
            break;
        }
        nth += 1;
    }
    assert!(nth > 12, "there were too few moments: {nth}");
}

#[test]
fn a_finished_call_is_never_repeated_however_often_it_is_killed() {
    let model = Model::new(marks);
    let place = Place::new();
    let (id, _) = killed_at(&place, place.run_words(&model, &[]), 6);
    let id = id.expect("an agent");
    for _ in 0..12 {
        let words = ["agent", "resume", &id, "-o", "jsonl"].map(Into::into).to_vec();
        if !killed_at(&place, words, 4).1 {
            break;
        }
    }
    let show = place.ringwall(["agent", "show", &id, "-o", "json"]).exits(0);
    let show: Value = serde_json::from_str(&show.stdout).expect("JSON");
    if show["doing"] != "finished" {
        place.ringwall(["agent", "resume", &id]).exits(0);
    }
    let show = place.ringwall(["agent", "show", &id, "-o", "json"]).exits(0);
    let show: Value = serde_json::from_str(&show.stdout).expect("JSON");
    let journal = show["journal"].as_array().expect("a journal");
    let mut steps: Vec<u64> = Vec::new();
    for line in journal.iter().filter(|line| line["kind"] == "call-ended") {
        let step = line["step"].as_u64().expect("a step");
        assert!(!steps.contains(&step), "step {step} ended twice");
        steps.push(step);
    }
    assert_eq!(steps.len(), 5);
    let sandbox = show["sandbox"].as_str().expect("a sandbox");
    place.ringwall(["apply", sandbox]).exits(0);
    let marks = place.read("marks");
    for number in 1..=4 {
        assert!(marks.matches(&format!("mark-{number}\n")).count() <= 1, "{marks}");
    }
}

#[test]
fn two_at_once_do_not_go_on_with_the_same_agent() {
    let model = Model::new(|asked| match asked.turns {
        0 => call("exec", json!({"command": "sleep 3"})),
        _ => say("done"),
    });
    let place = Place::new();
    let mut child = place
        .command(place.run_words(&model, &[]))
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let mut line = String::new();
    BufReader::new(child.stdout.as_mut().expect("a pipe")).read_line(&mut line).unwrap();
    let begun: Value = serde_json::from_str(&line).expect("JSON");
    let id = begun["agent"].as_str().expect("an id");
    place.ringwall(["agent", "resume", id]).exits(125).holds("is running");
    child.wait().unwrap();
}

#[test]
fn an_edited_journal_is_not_gone_on_with() {
    let place = Place::new();
    let model = Model::new(|_| call("exec", json!({"command": "echo x >> marks"})));
    place.run(&model, &["--max-steps", "2"]).exits(3);
    let journal = place.journals().pop().expect("a journal");
    let text = std::fs::read_to_string(&journal).unwrap();
    std::fs::write(&journal, text.replacen("do the task", "do another", 1)).unwrap();
    let id = journal.file_stem().unwrap().to_str().unwrap().to_owned();
    place.ringwall(["agent", "resume", &id]).exits(125).holds("damaged or edited at line 1");
}

#[test]
fn a_sandbox_that_has_ended_is_gone_on_from_with_its_changes() {
    let place = Place::new();
    place.write("kept", "as it was\n");
    place.write("gone", "to be removed\n");
    let model = Model::new(|asked| match asked.turns {
        0 => call(
            "exec",
            json!({"command":
            "mkdir -p a/b && echo one > a/b/new && echo two >> kept && rm gone && ln -s kept link && chmod 700 a && echo ok"}),
        ),
        1 => call(
            "exec",
            json!({"command":
            "cat a/b/new kept && test ! -e gone && readlink link && stat -c %a a && echo three >> kept"}),
        ),
        _ => say("done"),
    });
    let stopped = place.run(&model, &["--max-steps", "1"]).exits(3);
    let seen = crate::support::entries(&stopped);
    let sandbox = crate::support::of_kind(&seen, "sandbox")[0]["id"].as_str().unwrap().to_owned();
    place.ringwall(["stop", &sandbox]).exits(0);
    let id = seen.last().unwrap()["agent"].as_str().unwrap().to_owned();
    let words = ["agent", "resume", &id, "--max-steps", "9", "--apply", "-o", "jsonl"];
    let done = place.ringwall(words).exits(0);
    let seen = crate::support::entries(&done);
    let result =
        crate::support::of_kind(&seen, "call-ended")[0]["content"].as_str().unwrap().to_owned();
    assert!(result.contains("one\nas it was\ntwo\nkept\n700"), "{result}\n{done:?}");
    assert_eq!(place.read("kept"), "as it was\ntwo\nthree\n");
    assert!(!place.project().join("gone").exists());
    // The one before is not left behind.
    place.ringwall(["diff", &sandbox]).fails();
}
