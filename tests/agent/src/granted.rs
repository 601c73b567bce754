//! Agents under somebody's grant: they reach what grant and policy both allow.

use std::io::{Read, Write};
use std::net::TcpListener;
use std::process::{Output, Stdio};

use ringwall_testkit::eventually;
use ringwall_testkit::tool::{Does, component, manifest};
use serde_json::{Value, json};

use crate::support::{Model, Place, call, entries, of_kind, say};

const POLICY: &str = r#"
[network]
[[network.allow]]
host = "api.example.com"
port = 80
[[network.allow]]
host = "git.example.com"
port = 80
"#;

/// A web server at an address of its own; nothing where ports below 1024 are not ours.
fn server() -> Option<String> {
    let mut bytes = [0; 3];
    std::fs::File::open("/dev/urandom").and_then(|mut file| file.read_exact(&mut bytes)).ok()?;
    let address = format!("127.{}.{}.{}", bytes[0] | 1, bytes[1], bytes[2] | 1);
    let listener = TcpListener::bind((address.as_str(), 80)).ok()?;
    std::thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            let mut head = [0; 4096];
            let _ = stream.read(&mut head);
            let answer = "HTTP/1.1 200 OK\r\nContent-Length: 6\r\nConnection: close\r\n\r\nhello\n";
            let _ = stream.write_all(answer.as_bytes());
        }
    });
    Some(address)
}

fn place_with(address: &str) -> Place {
    let place = Place::new();
    let settings = json!({
        "names": {"zone": {"api.example.com": [address], "git.example.com": [address]}},
        "exempt": [format!("api.example.com:80={address}"), format!("git.example.com:80={address}")],
    });
    std::fs::write(place.path("home/gateway.json"), settings.to_string()).expect("a file");
    let trust = crate::taint::POLICY.replace("network = \"none\"", "network = \"allowlist\"");
    place.policy(&trust.replace("[network]\npresets = [\"none\"]\n", POLICY));
    place
}

fn grant(place: &Place, more: &[&str]) -> String {
    let project = place.project().display().to_string();
    let usual = [
        "grant",
        "new",
        "--task",
        "t-1",
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
        "process",
        "--wall",
        "process/wasm",
    ];
    let made = place.ringwall([&usual[..], more].concat()).exits(0);
    let path = place.path("token");
    std::fs::write(&path, made.stdout).expect("a file");
    path.display().to_string()
}

/// What came of fetching something there.
fn fetched(place: &Place, token: &str, host: &str) -> String {
    let command = format!("curl -sS -m 20 -w ' %{{http_code}}' http://{host}.example.com/");
    let model = Model::scripted(vec![call("exec", json!({"command": command})), say("done")]);
    let done = place.run(&model, &["--grant", token]).exits(0);
    of_kind(&entries(&done), "call-ended")[0]["content"].as_str().unwrap_or_default().to_owned()
}

#[test]
fn commands_reach_what_grant_and_policy_allow() {
    let Some(address) = server() else {
        eprintln!("not tested here: ports below 1024 belong to somebody else");
        return;
    };
    let place = place_with(&address);
    let both =
        grant(&place, &["--endpoint", "api.example.com:80", "--endpoint", "else.example.com:80"]);
    let said = fetched(&place, &both, "api");
    assert!(said.contains("hello\n 200"), "{said:?}");
    // By policy alone it could; by the grant it cannot. And the other way round.
    for host in ["git", "else"] {
        let said = fetched(&place, &both, host);
        assert!(said.contains(" 403") && !said.contains("hello"), "{host}: {said:?}");
    }
    // A grant without endpoints gives no network, and neither does one that counts bytes.
    let bytes = ["--endpoint", "api.example.com:80", "--budget", "egress_bytes=1000000"];
    for more in [&[][..], &bytes[..]] {
        let said = fetched(&place, &grant(&place, more), "api");
        assert!(!said.contains("hello") && !said.contains(" 200"), "{more:?}: {said:?}");
    }
}

#[test]
fn an_agent_under_a_grant_names_no_tier_above_that_of_the_policy() {
    let place = Place::new();
    let high = "[trust-levels.high]\nread = [\"/**\"]\nwrite = [\"/**\"]\nnetwork = \"open\"\ntools = \"all\"\napply = true\n";
    place.policy(&crate::taint::POLICY.replace("[limits]\n", &format!("{high}[limits]\n")));
    let token = grant(&place, &[]);
    let model = || Model::scripted(vec![say("done")]);
    let flags = ["--grant", &token, "--trust", "high"];
    place.run(&model(), &flags).exits(125).holds("trust level high").holds("above medium");
    place.run(&model(), &["--grant", &token, "--trust", "medium"]).exits(0);
    // The owner names the trust level of an agent of its own.
    place.run(&model(), &["--trust", "high"]).exits(0);
}

fn records(place: &Place) -> Vec<Value> {
    let log = std::fs::read_to_string(place.path("home/audit/log")).unwrap_or_default();
    // The last line may be one that is being written.
    log.lines().filter_map(|line| serde_json::from_str(line).ok()).collect()
}

/// Runs an agent that calls this, revokes its grant once the call has begun, and gives what the agent said.
fn revoked_under(place: &Place, tool: &str, input: Value, begun: &str) -> Output {
    let token = grant(place, &["--for", "30m"]);
    let listed = place.ringwall(["grant", "ls", "-o", "json"]).exits(0);
    let listed: Value = serde_json::from_str(&listed.stdout).expect("JSON");
    let id = listed[0]["id"].as_str().expect("an id").to_owned();
    let model = Model::scripted(vec![call(tool, input), say("done")]);
    let mut command = place.command(place.run_words(&model, &["--grant", &token]));
    let agent = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn();
    let agent = agent.expect("it can be started");
    eventually("the call has begun", || {
        let starts = records(place).into_iter().filter(|it| it["event"]["kind"] == "call-started");
        let mut words = starts.filter_map(|it| Some(it["event"]["what"].as_str()?.to_owned()));
        words.any(|what| what.contains(begun)).then_some(())
    });
    place.ringwall(["grant", "revoke", &id]).exits(0);
    agent.wait_with_output().expect("it ends")
}

#[track_caller]
fn ended_with_its_grant(place: &Place, agent: &Output) {
    assert_ne!(agent.status.code(), Some(0), "{agent:?}");
    let text = String::from_utf8_lossy(&agent.stdout);
    let last = text.lines().last().and_then(|line| serde_json::from_str::<Value>(line).ok());
    let reason = last.unwrap_or_default()["reason"].to_string();
    assert!(reason.contains("the grant was revoked"), "{agent:?}");
    let denied =
        |it: &Value| it["event"]["kind"] == "admission-denied" && it["event"]["action"] == "go on";
    assert!(records(place).iter().any(denied), "{agent:?}");
    // The sandbox does not wait until the agent is resumed.
    eventually("its sandbox has ended", || {
        let listed = place.ringwall(["ps", "-o", "json"]).exits(0);
        let listed: Value = serde_json::from_str(&listed.stdout).expect("JSON");
        listed.as_array().is_some_and(Vec::is_empty).then_some(())
    });
}

#[test]
fn a_command_of_an_agent_ends_with_the_grant() {
    let place = Place::new();
    place.policy(crate::taint::POLICY);
    let command = json!({"command": "sleep 250", "timeout_seconds": 280});
    let agent = revoked_under(&place, "exec", command, "sleep 250");
    ended_with_its_grant(&place, &agent);
}

#[test]
fn a_tool_call_of_an_agent_ends_with_the_grant() {
    let place = Place::new();
    place.policy(crate::taint::POLICY);
    let path = place.path("yes.wasm");
    let slow = json!({ "time_ms": 300_000, "fuel": 1u64 << 50 });
    let manifest = with(manifest("yes"), &json!({ "limits": slow }));
    std::fs::write(&path, component(&manifest, &Does::Loops)).expect("a file");
    place.ringwall(["tool", "add", path.to_str().expect("a path")]).exits(0);
    let agent = revoked_under(&place, "yes", json!({}), "yes");
    ended_with_its_grant(&place, &agent);
}

/// These fields on top.
fn with(mut fields: Value, more: &Value) -> Value {
    for (name, value) in more.as_object().expect("fields") {
        fields[name] = value.clone();
    }
    fields
}
