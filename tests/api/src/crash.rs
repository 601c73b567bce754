//! A daemon that is killed at any moment forgets nothing that it has acknowledged.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde_json::json;

use crate::sandboxes::sh;
use crate::support::{Client, Daemon};

/// More where somebody has the time.
fn rounds() -> usize {
    std::env::var("RINGWALL_CRASHES").ok().and_then(|text| text.parse().ok()).unwrap_or(4)
}

/// What clients were told.
#[derive(Default)]
struct Acknowledged {
    calls: Vec<String>,
    sandboxes: Vec<String>,
}

fn keep_asking(
    socket: std::path::PathBuf,
    sandbox: String,
    told: Arc<Mutex<Acknowledged>>,
    ending: Arc<AtomicBool>,
    makes_sandboxes: bool,
) {
    let mut client = Client::unix(&socket);
    let json_type = [("content-type", "application/json")];
    while !ending.load(Ordering::SeqCst) {
        let exec = format!("/v1/sandboxes/{sandbox}/exec");
        let body = sh("true").to_string();
        let Ok(answer) = client.try_send("POST", &exec, &json_type, body.as_bytes()) else {
            return;
        };
        if answer.status == 200 {
            told.lock().expect("whole").calls.push(answer.field("call"));
        }
        if makes_sandboxes {
            let body = json!({ "wall": "process", "limits": { "memory_bytes": 32 << 20 } });
            let body = body.to_string();
            let made = client.try_send("POST", "/v1/sandboxes", &json_type, body.as_bytes());
            let Ok(answer) = made else { return };
            if answer.status == 201 {
                told.lock().expect("whole").sandboxes.push(answer.field("id"));
            }
        }
    }
}

#[test]
fn nothing_that_was_acknowledged_is_lost_when_the_daemon_is_killed() {
    let mut daemon = Daemon::start();
    let sandbox = crate::sandboxes::create(&mut daemon.client());
    let told = Arc::new(Mutex::new(Acknowledged::default()));
    for round in 0..rounds() {
        let ending = Arc::new(AtomicBool::new(false));
        let threads: Vec<_> = (0..8)
            .map(|number| {
                let socket = daemon.world.home().join("api.sock");
                let (sandbox, told) = (sandbox.clone(), Arc::clone(&told));
                let ending = Arc::clone(&ending);
                std::thread::spawn(move || keep_asking(socket, sandbox, told, ending, number == 0))
            })
            .collect();
        std::thread::sleep(Duration::from_millis(300 + 170 * (round as u64 % 5)));
        daemon.kill();
        ending.store(true, Ordering::SeqCst);
        for thread in threads {
            thread.join().expect("the client has ended");
        }
        daemon.start_again();
    }
    let mut client = daemon.client();
    let told = told.lock().expect("whole");
    assert!(!told.calls.is_empty() && !told.sandboxes.is_empty());
    for call in &told.calls {
        let stored = client.get(&format!("/v1/calls/{call}")).is(200).json();
        assert_eq!(
            (&stored["state"], &stored["result"]["exit_code"]),
            (&json!("ended"), &json!(0))
        );
    }
    for id in &told.sandboxes {
        let stored = client.get(&format!("/v1/sandboxes/{id}")).is(200).json();
        assert_eq!(stored["state"], "running");
        let said = client.post(&format!("/v1/sandboxes/{id}/exec"), &sh("echo alive"));
        assert_eq!(said.is(200).json()["stdout"], "alive\n");
    }
    // The audit log is whole, and knows of every call that was answered.
    daemon.world.ringwall(["audit", "verify"]).exits(0);
    // Nothing lives that the owner does not see.
    let living = client.get("/v1/sandboxes?state=running&limit=500").is(200).json();
    assert_eq!(living["items"].as_array().expect("a list").len(), daemon.world.sandboxes().len());
}
