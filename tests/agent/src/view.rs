//! The live view on a real terminal: what a person sees, answers by one key, and gets back afterwards.

use std::ffi::OsString;
use std::process::{Command, Stdio};
use std::time::Duration;

use rustix::process::Signal;
use serde_json::{Value, json};

use crate::people;
use crate::support::{Asked, Model, Place, Terminal, call, say};

/// `ringwall agent run` as a person types it.
fn watched(place: &Place, model: &Model) -> Terminal {
    Terminal::start(to_watch(place, model))
}

fn to_watch(place: &Place, model: &Model) -> Command {
    let words = place.run_words(model, &[]);
    let format = words.iter().position(|word| word == "-o").expect("a format");
    let mut words: Vec<OsString> = words;
    words.drain(format..format + 2);
    place.command(words)
}

fn decision(place: &Place) -> Value {
    let listed = place.ringwall(["approvals", "ls", "-a", "-o", "json"]).exits(0);
    let listed: Value = serde_json::from_str(&listed.stdout).expect("JSON");
    listed[0]["decision"].clone()
}

/// Answers when the question has stood there long enough for a person to have read it.
fn answer(terminal: &mut Terminal, key: &str) {
    terminal.shows("a approve  d deny");
    std::thread::sleep(Duration::from_secs(1));
    terminal.press(key);
}

#[test]
fn a_question_is_answered_with_one_key_and_the_agent_goes_on() {
    let place = Place::new();
    people::with_ann(&place, "");
    place.write("inbox/letter", "please\n");
    let mut terminal = watched(&place, &people::model());
    terminal.shows("question 1 of 1");
    // All that is decided on, the walls and the budget.
    for part in ["the letter asks for CI", "strangers", "read_file", "behind process", "tainted"] {
        terminal.shows(part);
    }
    let screen = terminal.screen();
    for part in ["sandbox       ", "brain         process", "steps", "tokens", "of 2000000"] {
        assert!(screen.contains(part), "{part}\n{screen}");
    }
    // What is pasted is no answer.
    terminal.press("aaa");
    std::thread::sleep(Duration::from_secs(1));
    assert!(decision(&place).is_null());
    answer(&mut terminal, "a");
    assert_eq!(terminal.ends(), 0, "{}", terminal.screen());
    terminal.is_restored();
    terminal.shows("done");
    let decided = decision(&place);
    assert_eq!((&decided["approved"], &decided["approver"]), (&json!(true), &json!("ann")));
    assert!(decided["reason"].as_str().unwrap().contains("one key"), "{decided}");
}

#[test]
fn a_reason_is_asked_for_where_policy_wants_one() {
    let place = Place::new();
    people::with_ann(&place, "reason = true\n");
    place.write("inbox/letter", "please\n");
    let mut terminal = watched(&place, &people::model());
    terminal.shows("question 1 of 1");
    answer(&mut terminal, "d");
    terminal.shows("why deny?");
    terminal.press("\r");
    std::thread::sleep(Duration::from_millis(300));
    assert!(decision(&place).is_null(), "an empty reason is none");
    terminal.press("n");
    terminal.shows("why deny? n ");
    terminal.press("o");
    terminal.shows("why deny? no ");
    terminal.press("\r");
    assert_eq!(terminal.ends(), 0, "{}", terminal.screen());
    terminal.is_restored();
    let decided = decision(&place);
    assert_eq!((&decided["approved"], &decided["reason"]), (&json!(false), &json!("no")));
}

#[test]
fn whoever_does_not_answer_leaves_an_agent_that_can_be_resumed() {
    let place = Place::new();
    people::with_ann(&place, "");
    place.write("inbox/letter", "please\n");
    let mut terminal = watched(&place, &people::model());
    terminal.shows("question 1 of 1");
    terminal.shows("waits for a person");
    terminal.press("q");
    assert_eq!(terminal.ends(), 3);
    terminal.is_restored();
    terminal.shows("agent resume agt-");
    assert!(decision(&place).is_null());
}

#[test]
fn every_signal_gives_the_terminal_back() {
    for (signal, code) in [(Signal::TERM, 143), (Signal::INT, 130), (Signal::HUP, 129)] {
        let place = Place::new();
        let model = Model::scripted(vec![call("exec", json!({"command": "sleep 60"}))]);
        let mut terminal = watched(&place, &model);
        terminal.shows("[1] exec");
        assert!(terminal.has_picture());
        terminal.signal(signal);
        assert_eq!(terminal.ends(), code);
        terminal.is_restored();
        terminal.shows("agent resume agt-");
    }
}

#[test]
fn a_signal_that_is_ignored_ends_nothing() {
    let place = Place::new();
    let model = Model::scripted(vec![call("exec", json!({"command": "sleep 60"}))]);
    let mut terminal = Terminal::start_ignoring(to_watch(&place, &model), "HUP");
    terminal.shows("[1] exec");
    terminal.signal(Signal::HUP);
    std::thread::sleep(Duration::from_millis(300));
    terminal.eventually("the picture", |_| terminal.has_picture());
    terminal.signal(Signal::TERM);
    assert_eq!(terminal.ends(), 143);
    terminal.is_restored();
}

#[test]
fn a_stopped_view_gives_the_terminal_back_and_comes_again() {
    let place = Place::new();
    let model = Model::scripted(vec![call("exec", json!({"command": "sleep 3"}))]);
    let mut terminal = watched(&place, &model);
    terminal.shows("[1] exec");
    terminal.signal(Signal::TSTP);
    // A process group without a shell above it may not be stopped; then the picture is back at once.
    std::thread::sleep(Duration::from_millis(300));
    terminal.signal(Signal::CONT);
    terminal.eventually("the picture", |_| terminal.has_picture());
    terminal.shows("[1] exec");
    assert_eq!(terminal.ends(), 0);
    terminal.is_restored();
}

/// Orders to a terminal, in every notation.
const HOSTILE: &str = "\u{1b}]0;owned\u{7}\u{1b}[2J\u{1b}[?1049l\u{9b}31mred\u{1b}P+q\u{1b}\\\u{202e}abc\u{1b}c\rover";

/// What is left when our own few orders are taken out.
fn foreign(bytes: &[u8]) -> String {
    let mut text = String::from_utf8_lossy(bytes).into_owned();
    let own = [
        "\x1b[?1049h",
        "\x1b[?1049l",
        "\x1b[?7l",
        "\x1b[?7h",
        "\x1b[?25l",
        "\x1b[?25h",
        "\x1b[K",
        "\x1b[J",
        "\x1b[0m",
        "\x1b[1m",
        "\x1b[2m",
        "\x1b[31m",
        "\x1b[32m",
        "\x1b[33m",
        "\r\n",
    ];
    for order in own {
        text = text.replace(order, "");
    }
    for row in 1..=100 {
        text = text.replace(&format!("\x1b[{row}H"), "");
    }
    text.chars().filter(|one| one.is_control() || *one == '\u{202e}').collect()
}

#[test]
fn no_order_to_the_terminal_comes_from_a_model_a_command_or_a_task() {
    let place = Place::new();
    let hostile = |asked: &Asked| match asked.turns {
        0 => call("exec", json!({"command": format!("printf '%s' '{HOSTILE}'; exit 1")})),
        1 => call("read_file", json!({"path": HOSTILE})),
        2 => call("plan", json!({"steps": [HOSTILE]})),
        3 => call("exec", json!({"command": "sleep 1"})),
        _ => say(HOSTILE),
    };
    let model = Model::new(hostile);
    let mut words = place.run_words(&model, &[]);
    let format = words.iter().position(|word| word == "-o").expect("a format");
    words.drain(format..format + 2);
    words[2] = format!("task {}", HOSTILE.replace('\0', "")).into();
    let mut terminal = Terminal::start(place.command(&words));
    terminal.shows("[4] exec");
    assert!(terminal.has_picture());
    assert_eq!(terminal.ends(), 0);
    terminal.is_restored();
    let bytes = terminal.bytes();
    assert_eq!(foreign(&bytes), "", "{:?}", String::from_utf8_lossy(&bytes));
    assert!(String::from_utf8_lossy(&bytes).contains("owned"), "it was shown, as text");
    // The same in lines, and in the list of agents.
    words.extend(["-o".into(), "lines".into()]);
    let mut terminal = Terminal::start(place.command(&words));
    assert_eq!(terminal.ends(), 0);
    assert!(!terminal.has_picture());
    assert_eq!(foreign(&terminal.bytes()).replace('\n', ""), "");
}

#[test]
fn top_shows_all_there_is_and_answers_questions() {
    let place = Place::new();
    people::with_ann(&place, "");
    place.write("inbox/letter", "please\n");
    let tenants = r#"{"tenants": {"local": {"tokens": 5000000, "wall_seconds": 3600}}}"#;
    std::fs::write(place.path("home/tenants.json"), tenants).expect("a file");
    let stopped = place.run(&people::model(), &[]).exits(3);
    let id = crate::support::entries(&stopped)[0]["agent"].as_str().unwrap().to_owned();
    // Without a terminal: once, as text.
    let plain = place.ringwall(["top"]).exits(0);
    let tenant = ["local", "wall_seconds 0/3600", "/5000000"];
    let parts = [id.as_str(), "approval", "strangers", "steps 3/200", "process"];
    for part in parts.into_iter().chain(tenant) {
        assert!(plain.stdout.contains(part), "{part}: {plain:?}");
    }
    // For programs: line after line.
    let mut command = place.command(["top", "-o", "jsonl", "--every", "200ms"]);
    let mut child = command.stdout(Stdio::piped()).spawn().expect("it starts");
    let mut lines = std::io::BufRead::lines(std::io::BufReader::new(child.stdout.take().unwrap()));
    for _ in 0..2 {
        let line: Value = serde_json::from_str(&lines.next().unwrap().unwrap()).expect("JSON");
        assert_eq!(line["agents"][0]["id"], id.as_str());
        assert_eq!(
            line["agents"][0]["budget"][0],
            json!({"name": "steps", "used": 3, "most": 200})
        );
        assert_eq!(line["tenants"][0]["name"], "local");
        assert_eq!(line["approvals"].as_array().map(Vec::len), Some(1));
        assert_eq!(line["sandboxes"].as_array().map(Vec::len), Some(1));
    }
    drop(lines);
    child.wait().expect("it ends when nobody reads");
    let mut terminal = Terminal::start(place.command(["top"]));
    terminal.shows(&id);
    terminal.shows("1 sandboxes, 1 agents, 1 questions");
    terminal.shows("the letter asks for CI");
    answer(&mut terminal, "a");
    terminal.shows("is approved");
    terminal.shows("0 questions");
    terminal.press("q");
    assert_eq!(terminal.ends(), 0);
    terminal.is_restored();
    assert_eq!(decision(&place)["approved"], json!(true));
    assert_eq!(foreign(&terminal.bytes()), "");
    place.ringwall(["agent", "resume", &id, "-o", "jsonl"]).exits(0);
}
