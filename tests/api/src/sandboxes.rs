//! Sandboxes, commands, files and changes through the API.

use serde_json::json;

use crate::support::{Client, Daemon, eventually};

pub(crate) fn create(client: &mut Client) -> String {
    client.post("/v1/sandboxes", &json!({ "wall": "process" })).is(201).field("id")
}

pub(crate) fn sh(script: &str) -> serde_json::Value {
    json!({ "argv": ["sh", "-c", script] })
}

/// The same as work of a kind that a holder's policy allows.
pub(crate) fn files(script: &str) -> serde_json::Value {
    json!({ "argv": ["sh", "-c", script], "kind": "files" })
}

#[test]
fn a_sandbox_is_made_used_and_ended() {
    let daemon = Daemon::start();
    let mut client = daemon.client();
    let made = client.post("/v1/sandboxes", &json!({ "wall": "process", "name": "web" }));
    let id = made.is(201).field("id");
    assert_eq!(made.json()["state"], "running");
    let exec = format!("/v1/sandboxes/{id}/exec");
    let said = client.post(&exec, &sh("echo out; echo err >&2; cat; exit 3"));
    let result = said.is(200).json();
    assert_eq!((&result["exit_code"], &result["ending"]), (&json!(3), &json!("exited")));
    assert_eq!((&result["stdout"], &result["stderr"]), (&json!("out\n"), &json!("err\n")));
    // By its name, with input, and bytes that are no text.
    let with_input = json!({ "argv": ["cat"], "stdin": "hello" });
    let said = client.post("/v1/sandboxes/web/exec", &with_input);
    assert_eq!(said.is(200).json()["stdout"], "hello");
    let said = client.post(&exec, &sh("printf '\\377'"));
    assert_eq!(said.is(200).json()["stdout_base64"], "/w==");
    client
        .post(&exec, &json!({ "argv": ["no-such-program"] }))
        .is_problem(422, "program-not-found");
    let slow = json!({ "argv": ["sleep", "60"], "timeout_ms": 200 });
    assert_eq!(client.post(&exec, &slow).is(200).json()["exit_code"], 124);
    // Seen by the command line, which is the same owner.
    let listed = daemon.world.sandboxes();
    assert_eq!(listed.len(), 1);
    assert_eq!(listed[0]["id"], id);
    client.delete(&format!("/v1/sandboxes/{id}")).is(204);
    let ended = client.get(&format!("/v1/sandboxes/{id}"));
    assert_eq!(ended.is(200).json()["state"], "ended");
    client.post(&exec, &sh("true")).is_problem(409, "not-running");
    assert!(daemon.world.sandboxes().is_empty());
    let calls = client.get(&format!("/v1/calls?sandbox={id}")).is(200).json();
    assert_eq!(calls["items"].as_array().expect("a list").len(), 5);
}

#[test]
fn a_command_runs_behind_a_fresh_wall() {
    let daemon = Daemon::start();
    let mut client = daemon.client();
    let run = json!({ "wall": "process", "command": { "argv": ["sh", "-c", "id -u; exit 7"] } });
    let result = client.post("/v1/runs", &run).is(200).json();
    assert_eq!(result["exit_code"], 7);
    assert!(!result["outcome"]["evidence"].as_array().expect("a list").is_empty());
    let limited = json!({
        "limits": { "timeout_ms": 300 }, "command": { "argv": ["sleep", "60"] }
    });
    assert_eq!(client.post("/v1/runs", &limited).is(200).json()["ending"], "timeout");
    client.post("/v1/runs", &json!({ "wall": "process" })).is_problem(400, "bad-request");
    let absurd = json!({ "limits": { "pids": 0 }, "command": { "argv": ["true"] } });
    client.post("/v1/runs", &absurd).is_problem(422, "refused");
    assert!(daemon.world.sandboxes().is_empty());
}

#[test]
fn a_job_ends_when_its_client_goes_away() {
    let daemon = Daemon::start();
    let mut client = daemon.client();
    let id = create(&mut client);
    let mut gone = std::os::unix::net::UnixStream::connect(daemon.world.home().join("api.sock"))
        .expect("a connection");
    let body = sh("sleep 1000").to_string();
    let request = format!(
        "POST /v1/sandboxes/{id}/exec HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    );
    std::io::Write::write_all(&mut gone, request.as_bytes()).expect("a request");
    let running = |client: &mut Client| {
        let said = client.post(&format!("/v1/sandboxes/{id}/exec"), &sh("pidof sleep || true"));
        said.is(200).json()["stdout"].as_str().expect("text").trim().to_owned()
    };
    eventually("the job has begun", || (!running(&mut client).is_empty()).then_some(()));
    drop(gone);
    eventually("the job was killed", || running(&mut client).is_empty().then_some(()));
}

#[test]
fn files_go_in_and_come_out() {
    let daemon = Daemon::start();
    let mut client = daemon.client();
    let id = create(&mut client);
    let at = |path: &str| format!("/v1/sandboxes/{id}/files?path={path}");
    let content: Vec<u8> = (0..3_000_000u32).map(|n| (n % 251) as u8).collect();
    client.send("PUT", &at("/tmp/big"), &[], &content).is(204);
    let back = client.get(&at("/tmp/big"));
    assert_eq!(back.is(200).headers["content-type"], "application/octet-stream");
    assert!(back.body == content);
    let listed = client.get(&format!("/v1/sandboxes/{id}/directory?path=/tmp")).is(200).json();
    let entry = listed.as_array().expect("a list").iter().find(|entry| entry["name"] == "big");
    assert_eq!(entry.expect("it is there")["size"], 3_000_000);
    client.delete(&at("/tmp/big")).is(204);
    client.get(&at("/tmp/big")).is_problem(404, "not-found");
    client.get(&at("relative")).is_problem(400, "bad-request");
    client.get(&at("/tmp")).is_problem(422, "refused");
    client.send("PUT", &at("/proc/version"), &[], b"x").is(422);
}

#[test]
fn changes_are_shown_and_taken_over() {
    let daemon = Daemon::start();
    daemon.world.write("a.txt", "old\n");
    let mut client = daemon.client();
    let project = daemon.world.project();
    let asked = json!({ "wall": "process", "workspace": { "path": project } });
    let id = client.post("/v1/sandboxes", &asked).is(201).field("id");
    let script = sh("echo new > a.txt");
    let said = client.post(&format!("/v1/sandboxes/{id}/exec"), &script).is(200).json();
    assert_eq!(said["exit_code"], 0, "{said}");
    client.get(&format!("/v1/sandboxes/{id}/diff")).is_problem(409, "still-running");
    client.delete(&format!("/v1/sandboxes/{id}?keep=true")).is(204);
    let diff = client.get(&format!("/v1/sandboxes/{id}/diff"));
    assert!(diff.is(200).text().contains("-old\n+new\n"), "{}", diff.text());
    assert_eq!(daemon.world.read("a.txt"), "old\n");
    let applied = client.post(&format!("/v1/sandboxes/{id}/apply"), &json!({}));
    assert_eq!(applied.is(200).json()["applied"], json!(["a.txt"]));
    assert_eq!(daemon.world.read("a.txt"), "new\n");
    client.delete(&format!("/v1/sandboxes/{id}")).is(204);
    client.get(&format!("/v1/sandboxes/{id}/diff")).is_problem(409, "not-running");
}

#[test]
fn a_restart_finds_what_lives_and_settles_what_does_not() {
    let mut daemon = Daemon::start();
    let mut client = daemon.client();
    let (lives, dies) = (create(&mut client), create(&mut client));
    let call = client.post(&format!("/v1/sandboxes/{lives}/calls"), &sh("sleep 1000"));
    let call = call.is(202).field("id");
    daemon.kill();
    daemon.world.ringwall(["rm", "--force", &dies]).exits(0);
    daemon.start_again();
    let mut client = daemon.client();
    let said = client.post(&format!("/v1/sandboxes/{lives}/exec"), &sh("echo still here"));
    assert_eq!(said.is(200).json()["stdout"], "still here\n");
    assert_eq!(client.get(&format!("/v1/calls/{call}")).is(200).json()["state"], "lost");
    eventually("the dead one is settled", || {
        let state = client.get(&format!("/v1/sandboxes/{dies}")).is(200).json()["state"].clone();
        (state == "ended").then_some(())
    });
}

#[test]
fn a_daemon_that_is_told_to_end_answers_first() {
    let mut daemon = Daemon::start();
    let mut client = daemon.client();
    let id = create(&mut client);
    let waiting = std::thread::spawn(move || {
        client.post(&format!("/v1/sandboxes/{id}/exec"), &sh("sleep 1; echo done"))
    });
    let mut other = daemon.client();
    eventually("the job runs", || {
        let calls = other.get("/v1/calls").is(200).json();
        (calls["items"][0]["state"] == "running").then_some(())
    });
    drop(other);
    assert_eq!(daemon.end(), Some(0));
    let answer = waiting.join().expect("an answer");
    assert_eq!(answer.is(200).json()["stdout"], "done\n");
    assert!(!daemon.world.home().join("api.sock").exists());
}
