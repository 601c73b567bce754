//! What a command leaves running is paid for, and ends when nothing is left to pay with.

use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::support::{Model, Place, call, entries, of_kind, say};

/// Longer than a budget of seconds lasts on the slowest machine.
const SPENT_WITHIN: Duration = Duration::from_secs(100);

fn denials(place: &Place) -> Vec<Value> {
    let log = std::fs::read_to_string(place.path("home/audit/log")).unwrap_or_default();
    // The last line may be one that is being written.
    let records = log.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    records.filter(|it| it["event"]["kind"] == "admission-denied").collect()
}

fn wait_for(mut question: impl FnMut() -> bool) -> bool {
    let give_up = Instant::now() + SPENT_WITHIN;
    while Instant::now() < give_up {
        if question() {
            return true;
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    false
}

/// What the tenant of agents without a grant has spent.
fn spent(home: &std::path::Path) -> Value {
    let accounts = std::fs::read_dir(home.join("grants/tenants")).into_iter().flatten().flatten();
    let texts = accounts.filter_map(|entry| std::fs::read(entry.path()).ok());
    let mut read = texts.filter_map(|text| serde_json::from_slice::<Value>(&text).ok());
    read.next().map(|account| account["spent"].clone()).unwrap_or_default()
}

#[test]
fn what_is_left_running_ends_when_the_budget_is_spent() {
    for (part, tenth) in [("cpu_seconds", "cpu_ms"), ("wall_seconds", "wall_ms")] {
        let place = Place::new();
        let tenants = json!({"tenants": {"local": {part: 6}}});
        std::fs::write(place.path("home/tenants.json"), tenants.to_string()).unwrap();
        let over = format!("the budget of {part} is spent");
        let log = place.path("home/audit/log");
        let model = Model::new(move |asked| match asked.turns {
            0 => {
                let work = "(while :; do :; done) > /dev/null 2>&1 & echo started";
                call("exec", json!({ "command": work }))
            }
            _ => {
                // It thinks until the sandbox has ended, and learns nothing of it.
                let ended = || std::fs::read_to_string(&log).is_ok_and(|log| log.contains(&over));
                wait_for(ended);
                say("done")
            }
        });
        let done = place.run(&model, &["--max-time", "10m"]).exits(0);
        let seen = entries(&done);
        let ran = &of_kind(&seen, "call-ended")[0];
        assert!(ran["content"].as_str().unwrap().contains("started"), "{done:?}");
        let sandbox = ran["place"]["sandbox"].clone();
        let over = denials(&place).into_iter().find(|it| it["ids"]["sandbox"] == sandbox);
        let over = over.unwrap_or_else(|| panic!("{part}: it went on: {done:?}"));
        assert_eq!(over["event"]["reason"], format!("the budget of {part} is spent"));
        let spent = spent(&place.path("home"))[tenth].as_u64().expect("a number");
        assert!(spent >= 6000, "{part}: {spent}");
        // Nothing more is done with it.
        let again = place.run(&model_that_works(), &["--max-errors", "1"]).exits(3);
        let refused = of_kind(&entries(&again), "call-ended")[0]["refused"].clone();
        assert!(refused.as_str().unwrap_or_default().contains(part), "{again:?}");
    }
}

fn model_that_works() -> Model {
    Model::scripted(vec![call("exec", json!({"command": "echo again"})), say("done")])
}

#[test]
fn a_sandbox_in_which_nothing_runs_costs_nothing_while_the_model_thinks() {
    let place = Place::new();
    let tenants = json!({"tenants": {"local": {"cpu_seconds": 100_000, "wall_seconds": 100_000}}});
    std::fs::write(place.path("home/tenants.json"), tenants.to_string()).unwrap();
    let model = Model::new(|asked| match asked.turns {
        0 => call("exec", json!({"command": "sleep 1000 > /dev/null 2>&1 & echo started"})),
        // Longer than the shim takes to look several times.
        1 => {
            std::thread::sleep(Duration::from_secs(4));
            say("done")
        }
        _ => say("done"),
    });
    place.run(&model, &[]).exits(0);
    let log = std::fs::read_to_string(place.path("home/audit/log")).expect("a log");
    let records = log.lines().map(|line| serde_json::from_str::<Value>(line).expect("JSON"));
    let of_command = records.filter(|it| it["event"]["kind"] == "call-ended");
    let usage: Vec<Value> = of_command.map(|it| it["event"]["usage"].clone()).collect();
    let command = usage.iter().find(|it| it["raise_ms"] == 0).expect("the command's own");
    let spent = spent(&place.path("home"));
    let (cpu, wall) = (spent["cpu_ms"].as_u64().unwrap(), spent["wall_ms"].as_u64().unwrap());
    assert_eq!(spent["calls"], 1);
    // What the sandbox itself needs may come on top, as time and as work alike.
    let beside = wall - command["wall_ms"].as_u64().unwrap();
    assert_eq!(cpu - command["cpu_ms"].as_u64().expect("measured"), beside, "{spent}");
    assert!(beside < 4000, "not the time of the model: {spent}");
}
