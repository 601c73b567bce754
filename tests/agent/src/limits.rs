//! Every limit stops an agent in its own way, and every stop can be gone on from.

use serde_json::{Value, json};

use crate::support::{Asked, Model, Place, Reply, call, entries, of_kind, say};
use crate::taint::POLICY;

/// Writes a file with another number in every turn, `most` times.
fn busy(most: usize) -> impl Fn(&Asked) -> Reply + Send + Sync {
    move |asked| match asked.turns {
        turn if turn < most => {
            call("exec", json!({"command": format!("echo {turn} >> log; echo {turn}")}))
        }
        _ => say("done"),
    }
}

/// Runs with the flags until the stop, goes on with others, and gives all that was printed.
#[track_caller]
fn stops_and_goes_on(
    model: &Model,
    flags: &[&str],
    word: &str,
    more: &[&str],
) -> (Place, Vec<Value>) {
    let place = Place::new();
    let stopped = place.run(model, flags).exits(3);
    let mut seen = entries(&stopped);
    let ending = seen.last().expect("an ending").clone();
    assert_eq!(ending["ending"], word, "{stopped:?}");
    let id = ending["agent"].as_str().expect("an id").to_owned();
    let listed = place.ringwall(["agent", "ls", "-o", "json"]).exits(0);
    let listed: Value = serde_json::from_str(&listed.stdout).expect("JSON");
    assert_eq!(listed[0]["doing"], word);
    let words = [&["agent", "resume", &id, "-o", "jsonl", "--apply"][..], more].concat();
    let done = place.ringwall(words).exits(0);
    seen.extend(entries(&done));
    (place, seen)
}

fn numbers(most: usize) -> String {
    (0..most).map(|number| format!("{number}\n")).collect()
}

#[test]
fn steps_are_limited() {
    let model = Model::new(busy(5));
    let (place, seen) =
        stops_and_goes_on(&model, &["--max-steps", "3"], "steps", &["--max-steps", "50"]);
    assert_eq!(place.read("log"), numbers(5));
    assert_eq!(of_kind(&seen, "call-begun").len(), 5);
}

#[test]
fn tokens_are_limited_by_what_the_gateway_counts() {
    // 120 tokens a turn.
    let model = Model::new(busy(5));
    let flags = ["--max-tokens", "300"];
    let (place, seen) = stops_and_goes_on(&model, &flags, "tokens", &["--max-tokens", "100000"]);
    assert_eq!(place.read("log"), numbers(5));
    let before = seen.iter().take_while(|entry| entry["kind"] != "stopped");
    let turns = before.filter(|entry| entry["kind"] == "turn").count();
    assert_eq!(turns, 3, "300 tokens are reached by the third turn");
}

#[test]
fn money_is_limited_by_the_price_of_the_model() {
    let model = Model::new(busy(4));
    let place = Place::new();
    // A turn of 100 and 20 tokens costs 100 * 1.00 + 20 * 5.00 millionths of a million: 200.
    let prices = json!({"scripted": {"input": 1_000_000, "output": 5_000_000}});
    std::fs::write(place.path("home/prices.json"), prices.to_string()).unwrap();
    let stopped = place.run(&model, &["--max-money", "0.0004"]).exits(3);
    let seen = entries(&stopped);
    let ending = seen.last().expect("an ending");
    assert_eq!(ending["ending"], "money", "{stopped:?}");
    assert!(of_kind(&seen, "turn").iter().all(|turn| turn["money_micros"] == 200), "{seen:?}");
    let id = ending["agent"].as_str().expect("an id");
    place.ringwall(["agent", "resume", id, "--max-money", "1", "--apply"]).exits(0);
    assert_eq!(place.read("log"), numbers(4));
}

#[test]
fn time_is_limited_also_while_the_model_thinks() {
    let model = Model::new(|asked| match asked.number {
        0 => Reply::Late(20_000),
        _ => say("done"),
    });
    stops_and_goes_on(&model, &["--max-time", "1s"], "time", &["--max-time", "10m"]);
}

#[test]
fn the_time_of_tools_is_limited() {
    let model = Model::new(|asked| match asked.turns {
        0 => call("exec", json!({"command": "sleep 30; echo never >> log"})),
        1 => call("exec", json!({"command": "echo 1 >> log"})),
        _ => say("done"),
    });
    let flags = ["--max-tool-time", "1s"];
    let (place, seen) = stops_and_goes_on(&model, &flags, "tool-time", &["--max-tool-time", "5m"]);
    assert_eq!(place.read("log"), "1\n");
    let first = of_kind(&seen, "call-ended")[0];
    assert!(first["content"].as_str().unwrap().contains("Timeout"), "{first}");
}

#[test]
fn failures_in_a_row_are_limited() {
    let model = Model::new(|asked| match asked.turns {
        turn @ 0..=2 => call("read_file", json!({"path": format!("missing-{turn}")})),
        _ => say("done"),
    });
    stops_and_goes_on(&model, &["--max-errors", "2"], "errors", &["--max-errors", "9"]);
}

#[test]
fn the_same_call_over_and_over_is_noticed() {
    let model = Model::new(|asked| match asked.number {
        0..=2 => call("exec", json!({"command": "echo same"})),
        _ => say("done"),
    });
    let (_, seen) = stops_and_goes_on(&model, &[], "repeating", &[]);
    assert_eq!(of_kind(&seen, "call-begun").len(), 3);
}

#[test]
fn going_round_in_a_circle_is_noticed() {
    let model = Model::new(|asked| match asked.number {
        number @ 0..=7 => {
            call("exec", json!({"command": format!("echo {}", ["left", "right"][number % 2])}))
        }
        _ => say("done"),
    });
    let (_, seen) = stops_and_goes_on(&model, &[], "cycle", &[]);
    assert_eq!(of_kind(&seen, "call-begun").len(), 8);
}

#[test]
fn a_grant_with_a_budget_limits_too() {
    let place = Place::new();
    place.policy(POLICY);
    let project = place.project().display().to_string();
    let token = place.ringwall([
        "grant",
        "new",
        "--task",
        "t",
        "--tool",
        "*",
        "--read",
        &project,
        "--write",
        &project,
        "--kind",
        "build",
        "--kind",
        "files",
        "--wall",
        "process/wasm",
        "--wall",
        "process",
        "--budget",
        "calls=2",
    ]);
    let token = token.exits(0).word();
    std::fs::write(place.path("token"), token).unwrap();
    let model = Model::new(busy(5));
    let file = place.path("token").display().to_string();
    let stopped = place.run(&model, &["--grant", &file]).exits(3);
    let seen = entries(&stopped);
    assert_eq!(seen.last().unwrap()["ending"], "steps", "{stopped:?}");
    assert_eq!(of_kind(&seen, "call-begun").len(), 2);
    // Another agent under the same grant finds nothing left.
    let again = place.run(&model, &["--grant", &file, "--max-errors", "1"]).exits(3);
    let refused = of_kind(&entries(&again), "call-ended")[0]["refused"].clone();
    assert!(refused.as_str().unwrap().contains("budget of calls is spent"), "{again:?}");
}

#[test]
fn tokens_and_money_of_a_grant_are_for_all_agents_under_it() {
    let place = Place::new();
    place.policy(POLICY);
    let project = place.project().display().to_string();
    let grant = |budget: &str| {
        let rights = ["--tool", "*", "--read", &project, "--write", &project];
        let walls =
            ["--kind", "build", "--kind", "files", "--wall", "process/wasm", "--wall", "process"];
        let line = [&["grant", "new", "--task", "t"], &rights[..], &walls, &["--budget", budget]];
        std::fs::write(place.path("token"), place.ringwall(line.concat()).exits(0).word()).unwrap();
        place.path("token").display().to_string()
    };
    let model = Model::new(busy(50));
    let file = grant("tokens=400");
    let stopped = place.run(&model, &["--grant", &file]).exits(3);
    assert_eq!(entries(&stopped).last().unwrap()["ending"], "tokens", "{stopped:?}");
    // Another one finds nothing left, and asks the model nothing.
    let again = place.run(&model, &["--grant", &file]).exits(3);
    let last = entries(&again).last().unwrap().clone();
    assert!(["tokens", "grant"].contains(&last["ending"].as_str().unwrap()), "{again:?}");
    assert!(of_kind(&entries(&again), "turn").is_empty(), "{again:?}");
    let prices = json!({"scripted": {"input": 1_000_000, "output": 5_000_000}});
    std::fs::write(place.path("home/prices.json"), prices.to_string()).unwrap();
    let file = grant("money_micros=400");
    let stopped = place.run(&model, &["--grant", &file]).exits(3);
    assert_eq!(entries(&stopped).last().unwrap()["ending"], "money", "{stopped:?}");
    let again = place.run(&model, &["--grant", &file]).exits(3);
    assert!(of_kind(&entries(&again), "turn").is_empty(), "{again:?}");
}

#[test]
fn tokens_and_money_of_a_tenant_are_for_all_its_agents() {
    let place = Place::new();
    let model = Model::new(busy(50));
    let may_spend = |budget: Value| {
        let tenants = json!({"tenants": {"local": budget}});
        std::fs::write(place.path("home/tenants.json"), tenants.to_string()).unwrap();
    };
    let turns = |told: &_| of_kind(&entries(told), "turn").len();
    may_spend(json!({"tokens": 400}));
    // Without a grant of its own an agent is of the tenant `local`.
    let stopped = place.run(&model, &[]).exits(3);
    assert_eq!(entries(&stopped).last().unwrap()["ending"], "tokens", "{stopped:?}");
    assert!((1..=4).contains(&turns(&stopped)), "{stopped:?}");
    let again = place.run(&model, &[]).exits(3);
    let last = entries(&again).last().unwrap().clone();
    assert!(["tokens", "grant"].contains(&last["ending"].as_str().unwrap()), "{again:?}");
    assert_eq!(turns(&again), 0, "{again:?}");
    let prices = json!({"scripted": {"input": 1_000_000, "output": 5_000_000}});
    std::fs::write(place.path("home/prices.json"), prices.to_string()).unwrap();
    may_spend(json!({"money_micros": 1000}));
    let stopped = place.run(&model, &[]).exits(3);
    assert_eq!(entries(&stopped).last().unwrap()["ending"], "money", "{stopped:?}");
    let again = place.run(&model, &[]).exits(3);
    assert_eq!(turns(&again), 0, "{again:?}");
    // More is given by writing down more.
    may_spend(json!({"money_micros": 1_000_000}));
    let flags = ["--max-steps", "1"];
    assert_eq!(turns(&place.run(&model, &flags).exits(3)), 1);
}

#[test]
fn what_commands_take_of_processors_is_paid_for_by_the_tenant() {
    let place = Place::new();
    let tenants = json!({"tenants": {"local": {"cpu_seconds": 5}}});
    std::fs::write(place.path("home/tenants.json"), tenants.to_string()).unwrap();
    // What sleeps uses no processor. What works uses a second or more each time.
    let work = "i=0; while [ $i -lt 4000000 ]; do i=$((i+1)); done";
    let model = Model::new(move |asked: &Asked| match asked.turns {
        turn @ 0..9 => call("exec", json!({"command": format!("sleep 1; echo {turn} >> log")})),
        turn @ 9..49 => {
            call("exec", json!({"command": format!("{work}; echo {turn} >> log"), "kind": "build"}))
        }
        _ => say("done"),
    });
    let told = place.run(&model, &["--apply", "--max-errors", "60"]).exits(0);
    let ran = place.read("log").lines().count();
    assert!((9..49).contains(&ran), "{ran} commands: {told:?}");
    assert!(told.stdout.contains("cpu_seconds"), "the refusal names the budget: {told:?}");
}

#[test]
fn commands_write_where_the_grant_says_and_nowhere_else() {
    let place = Place::new();
    place.policy(POLICY);
    place.write("docs/a", "old\n");
    let project = place.project().display().to_string();
    let docs = place.project().join("docs").display().to_string();
    let token = place.ringwall([
        "grant",
        "new",
        "--task",
        "t",
        "--tool",
        "*",
        "--read",
        &project,
        "--write",
        &docs,
        "--kind",
        "build",
        "--kind",
        "files",
        "--wall",
        "process/wasm",
        "--wall",
        "process",
    ]);
    std::fs::write(place.path("token"), token.exits(0).word()).unwrap();
    let model = Model::new(|asked| match asked.turns {
        0 => call("exec", json!({"command": "echo new > docs/a; echo new > elsewhere; ls"})),
        1 => call("write_file", json!({"path": "elsewhere", "content": "new"})),
        _ => say("done"),
    });
    let file = place.path("token").display().to_string();
    let done = place.run(&model, &["--grant", &file, "--apply"]).exits(0);
    assert_eq!(place.read("docs/a"), "new\n", "{done:?}");
    assert!(!place.project().join("elsewhere").exists(), "{done:?}");
    let seen = entries(&done);
    assert!(of_kind(&seen, "call-ended")[1]["refused"].is_string(), "{done:?}");
}
