//! Agents under somebody's grant: they reach what grant and policy both allow.

use std::io::{Read, Write};
use std::net::TcpListener;

use serde_json::json;

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
